"""What the doctor says about the Schema Registry of records and of converters."""

from typing import Any

from kbackup.inspect import Check, examination
from tests.support.examined import settings
from tests.support.registry import FakeRegistry


def checks(*, view: str = "value", keys: bool = False, **parts: Any) -> list[Check]:
    named = {f"{part}_converter_properties": given for part, given in parts.items()}
    found = settings(view=view, store_kafka_keys=keys, **named)
    return list(examination.registry_checks(found))


def test_a_registry_that_answers_is_asked_once_for_both_parts() -> None:
    """The doctor asks a registry one read-only question, even if keys and values both use it."""
    with FakeRegistry() as found:
        given = {"schema.registry.url": found.url.replace("://", "://ann:s3cret@")}

        [check] = checks(keys=True, key=given, value=given)

    assert ("registry", "key and value", "ok") == (check.area, check.name, check.level)
    assert ["GET /schemas/ids/0"] == found.asked
    assert found.url in check.text
    assert "s3cret" not in check.text


def test_one_that_refuses_the_user_fails_without_a_wait() -> None:
    """A registry that refuses the user fails at once, with what to set and a run's exit code."""
    with FakeRegistry(user="ann:s3cret") as found:
        [check] = checks(value={"schema.registry.url": found.url})

    assert ("fail", 5, 1) == (check.level, check.issue().exit_code, len(found.asked))
    assert "basic.auth.user.info" in check.do


def test_one_that_is_away_is_asked_once() -> None:
    """The doctor asks a registry that is away only once."""
    with FakeRegistry() as found:
        found.script = [503] * 4
        [check] = checks(value={"schema.registry.url": found.url})

    assert ("fail", "registry", 1) == (check.level, check.code, len(found.asked))


def test_nothing_is_asked_where_no_value_is_read() -> None:
    """No registry is asked for full records or for keys that are not stored."""
    with FakeRegistry() as found:
        given = {"schema.registry.url": found.url}

        assert [] == checks(view="record", value=given, key=given)
        assert [] == checks(key=given)
    assert [] == found.asked


def test_the_registry_of_full_records_is_asked() -> None:
    """A sink stores its schemas, and a restore registers them."""
    with FakeRegistry() as found:
        [check] = examination.registry_checks(
            settings(view="record", schema_registry_url=(found.url,))
        )

    assert ("records", "ok", ["GET /schemas/ids/0"]) == (check.name, check.level, found.asked)
