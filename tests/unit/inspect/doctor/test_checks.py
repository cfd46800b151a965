"""Checks, and what ties them together."""

import json
import threading
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kbackup.cli import root
from kbackup.config import ConfigIssue
from kbackup.connect import avro_walk
from kbackup.errors import KafkaError
from kbackup.events import to_json
from kbackup.inspect import Check, examination, failed, host
from kbackup.inspect.examination import kafka_checks
from kbackup.kafka import native as native_library
from kbackup.native_build import UnavailableError
from tests.support.examined import levels, one, settings
from tests.unit.inspect.doctor.test_spark import JAVA


@pytest.mark.parametrize(
    ("area", "code"),
    [("configuration", 2), ("disk", 2), ("store", 6), ("kafka", 5), ("spark", 9)],
)
def test_a_failed_area_has_its_exit_code(area: Any, code: int) -> None:
    """A failed area has its own exit code."""
    assert code == failed(area, "x", KafkaError("what", "why", "do")).issue().exit_code


def test_a_check_without_a_remedy_says_null() -> None:
    """In JSON unknown is null, and never an empty text."""
    assert to_json(Check("disk", "TMPDIR", "ok", "all well"))["do"] is None


# All together


def test_a_wrong_configuration_keeps_cluster_and_store_out_of_it() -> None:
    """With values that are not those of the run nothing worth knowing can be asked."""
    doubt = ConfigIssue(
        "error", "value", "flush.size", "option", "flush.size=x (option)", "why", "do"
    )
    unreachable = settings(bootstrap_servers="127.0.0.1:1", store_url="http://127.0.0.1:1")

    found = list(examination.examine(unreachable, [doubt], lambda: JAVA, starts=False))

    assert {"configuration", "disk", "spark"} == {check.area for check in found if check.is_made}
    assert {"bucket", "cluster"} == {check.name for check in found if not check.is_made}
    assert "fail" == one(found, "flush.size").level


@pytest.mark.parametrize(
    ("named", "left_out"),
    [
        pytest.param([], 2, id="nothing"),
        pytest.param(["--store-url"], 1, id="store"),
    ],
)
def test_what_was_not_named_was_not_checked(
    named: list[str], left_out: int, tmp_path: Path
) -> None:
    """Exit 0 would promise that a run finds what it needs."""
    place = [tmp_path.as_uri()] if named else []
    shown = CliRunner().invoke(root, ["doctor", "--no-spark", "--json", *named, *place])

    summary = json.loads(shown.stdout.splitlines()[-1])
    assert (3, {"checks_not_made": left_out}) == (summary["exit_code"], summary["skipped"])


def test_what_a_wrong_configuration_keeps_from_being_checked_is_not_left_out() -> None:
    """Its own code says more."""
    words = ["doctor", "--no-spark", "--json", "--flush-size", "many"]
    shown = CliRunner().invoke(root, words)

    summary = json.loads(shown.stdout.splitlines()[-1])
    assert (2, {}) == (summary["exit_code"], summary["skipped"])


def test_a_folder_is_examined_like_a_bucket(tmp_path: Path) -> None:
    """A backup in a local folder is examined as one in a bucket is."""
    here = settings(None, store_url=tmp_path.as_uri())

    found = levels(examination.examine(here, [], lambda: JAVA, writes=True, starts=False))

    assert {
        "readable": "ok",
        "writable": "ok",
        "clock": "ok",
        "cluster": "warn",
    }.items() <= found.items()


def test_a_stop_ends_the_examination() -> None:
    """An interrupt ends the examination at once."""
    stop = threading.Event()
    found = []
    for check in examination.examine(settings(), [], lambda: JAVA, starts=False, stop=stop):
        found.append(check)
        stop.set()

    assert 1 == len(found)


def test_objects_in_place_of_columns_are_worth_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever installed without a compiler learns why a run is slow; who asked for it, nothing."""
    monkeypatch.setattr(native_library, "_found", lambda: UnavailableError("no compiler"))
    now = datetime.now(UTC)

    tuned = {"check.crcs": "true"}  # which only the client library takes
    auto, python, native = (
        next(
            kafka_checks(
                settings(bootstrap_servers="h:1", kafka_client=wanted, kafka_consumer=tuned),
                None, now, "g",
            )
        )
        for wanted in ("auto", "python", "native")
    )  # fmt: skip

    assert ["warn", "ok", "fail"] == [auto.level, python.level, native.level]
    assert "half the speed: no compiler" in auto.text
    assert "kafka.client=native" in native.text


@pytest.mark.parametrize(
    ("mechanism", "level", "text"),
    [("PLAIN", "ok", "batches pass"), ("OAUTHBEARER", "fail", "sasl.mechanism=OAUTHBEARER")],
)
def test_who_stores_batches_is_told_whether_they_can_be_read(
    mechanism: str, level: str, text: str
) -> None:
    """What only librdkafka speaks is found before a run."""
    consumer = {"security.protocol": "SASL_SSL", "sasl.mechanisms": mechanism}
    given = settings(bootstrap_servers="h:1", format_class="log", kafka_consumer=consumer)

    found = next(kafka_checks(given, None, datetime.now(UTC), "g"))

    assert (level, True) == (found.level, text in found.text)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(None, "no C compiler was found", id="missing"),
        pytest.param(b"not a library", "file too short", id="unloadable"),
    ],
)
def test_avro_without_its_library_is_worth_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, why: str
) -> None:
    """Whoever has no library to read Avro with learns why, and what it costs."""
    path = tmp_path / "libavro.so"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("_KBACKUP_NATIVE_AVRO", str(path))
    avro_walk._found.cache_clear()

    try:
        check = host.avro_reader()
    finally:
        avro_walk._found.cache_clear()

    assert ("warn", True, True) == (check.level, "a twentieth" in check.text, why in check.text)


def test_another_projects_package_over_this_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package index has another kbackup, whose module would be imported in place of this."""
    installed: dict[str, dict[str, str]] = {}

    def metadata(name: str) -> dict[str, str]:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(host, "metadata", metadata)
    before = host.package()
    installed["kbackup"] = {"Version": "3.1"}
    check = host.package()

    assert before is None
    assert check is not None
    assert ("fail", True) == (check.level, "another project" in check.text)
