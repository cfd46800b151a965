"""What a restore cannot read, in a topic: ``parse.error.topic.prefix``."""

import json
from typing import Any

import pytest

from kbackup.errors import KafkaError
from tests.support.standby import Standby, codes
from tests.support.target import MARKER, values

PREFIX = "__connect.errors."


def letters(standby: Standby, topic: str = "error-kbackup") -> list[dict[str, object]]:
    """What the topic has."""
    [rows] = [log.rows for where, log in standby.target.logs.items() if where.topic == topic]
    return [row for row in rows if row is not MARKER]


def test_a_damaged_object_is_written_to_the_topic_of_errors(standby: Standby) -> None:
    """With what is wrong with it and where; what is intact is restored, and the run exits 3."""
    [_, bad] = standby.sink("orders", 0, range(5), range(5, 10))
    standby.backup.replace(bad, standby.backup.body(bad)[:-9])

    done = standby.follow(
        lambda _: False, follow=False, behavior_on_error="log", parse_error_topic_prefix="error"
    )

    [letter] = letters(standby)
    assert (3, values(range(5))) == (done["exit_code"], standby.target.values("copy_of_orders"))
    headers = {each["key"]: each["value"] for each in letter["headers"]}  # type: ignore[attr-defined]
    assert (bad.encode(), b"orders", b"0", bad.encode()) == (
        letter["key"], headers[PREFIX + "topic"], headers[PREFIX + "partition"],
        headers[PREFIX + "object"],
    )  # fmt: skip
    assert "corrupt" == json.loads(letter["value"])["code"]  # type: ignore[arg-type]


def test_a_record_that_a_transform_does_not_take_is_written_there_as_it_was(
    standby: Standby,
) -> None:
    """The topic is named after the connector, and a restore that follows writes to it too."""
    standby.sink("orders", 0, range(3))
    cast: dict[str, Any] = {
        "transforms": "c", "transforms.c.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.c.spec": "int32", "value.converter": "string", "name": "back",
    }  # fmt: skip

    done = standby.follow(
        lambda look: look < 2, behavior_on_error="ignore", parse_error_topic_prefix="bad", **cast
    )

    found = letters(standby, "bad-back")
    assert ([], values(range(3))) == (done["errors"], [each["value"] for each in found])
    assert {"bad_records": 3} == done["skipped"]


def test_without_tolerance_there_is_no_such_topic(standby: Standby) -> None:
    """A restore that ends at what it cannot read writes it nowhere else."""
    standby.sink("orders", 0, range(5))

    standby.follow(lambda _: False, follow=False, parse_error_topic_prefix="error")

    assert ["copy_of_orders"] == sorted(standby.target.ids)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_topic_of_errors_that_cannot_be_created_ends_a_plan_as_the_run(
    standby: Standby, monkeypatch: pytest.MonkeyPatch, *, dry_run: bool
) -> None:
    """Nothing is restored, and the error names the option that a restore has."""
    standby.sink("orders", 0, range(5))
    create = standby.target.create_topic

    def some(name: str, *given: Any, **more: Any) -> str:
        if name == "error-kbackup":
            raise KafkaError("no topic", "INVALID_REPLICATION_FACTOR")
        return create(name, *given, **more)

    monkeypatch.setattr(standby.target, "create_topic", some)

    done = standby.follow(
        lambda _: False, follow=False, dry_run=dry_run, behavior_on_error="log",
        parse_error_topic_prefix="error",
    )  # fmt: skip

    [error] = done["errors"]
    assert (5, {}) == (done["exit_code"], standby.target.ids)
    assert "--replication-factor" in error["do"]


def test_the_topic_of_errors_is_no_target(standby: Standby) -> None:
    """Records of a backup are never mixed with those that cannot be read."""
    standby.sink("orders", 0, range(5))
    given: dict[str, Any] = {"behavior_on_error": "log", "parse_error_topic_prefix": "error"}

    done = standby.follow(lambda _: False, follow=False, rename="error-kbackup", **given)

    assert (4, ["refused"], {}) == (done["exit_code"], codes(done), standby.target.ids)
