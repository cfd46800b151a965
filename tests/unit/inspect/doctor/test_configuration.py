"""What the doctor says of the configuration and the disk."""

from pathlib import Path
from typing import Any

import pytest

from kbackup.errors import ConfigurationError
from kbackup.inspect import doubt, doubts, host
from tests.support.examined import settings


def test_an_error_of_the_configuration_is_told_doubt_by_doubt() -> None:
    """All configuration errors are reported, not just the first."""
    entries = [
        {"code": "value", "name": name, "origin": "option", "what": f"{name}=x (option)",
         "why": "expected a whole number", "do": "correct it"}
        for name in ("flush.size", "rotate.bytes")
    ]  # fmt: skip
    error = ConfigurationError("2 errors", errors=entries)

    found = [doubt(each) for each in doubts(error)]

    assert [("flush.size", "fail"), ("rotate.bytes", "fail")] == [(c.name, c.level) for c in found]
    assert "x: expected a whole number (option)" == found[0].text


@pytest.mark.parametrize(
    ("more", "named"),
    [
        pytest.param({}, [], id="full records lose nothing"),
        pytest.param(
            {"view": "value", "format_class": "json", "store_kafka_keys": True,
             "store_kafka_headers": True},
            ["view"],
            id="keys and headers beside the values",
        ),
        pytest.param(
            {"view": "value", "format_class": "bytes", "behavior_on_null_values": "ignore"},
            ["store.kafka.keys", "store.kafka.headers", "format.bytearray.separator",
             "behavior.on.null.values", "view"],
            id="bytes without keys",
        ),
        pytest.param({"view": "value", "group": None}, [], id="a source connector writes nothing"),
    ],
)  # fmt: skip
def test_what_a_backup_would_not_keep_is_named(more: dict[str, Any], named: list[str]) -> None:
    """A setting that loses part of a record is reported before a run."""
    found = list(host.losses(settings(**more)))

    assert named == [check.name for check in found]
    assert {"warn"} >= {check.level for check in found}
    assert all(check.do for check in found)


# Disk


def test_tmpdir_that_cannot_be_written_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TMPDIR that cannot be used fails, because a run would end at its first object."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))

    found = host.disk_space(settings())

    assert ("fail", True) == (found.level, "missing" in found.text)
    assert "TMPDIR" in found.do


@pytest.mark.parametrize(
    ("rotate_bytes", "level"),
    [pytest.param(1 << 20, "ok", id="room"), pytest.param(1 << 62, "warn", id="too little")],
)
def test_free_space_is_measured_against_the_files_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotate_bytes: int, level: str
) -> None:
    """Room in TMPDIR is checked for as many files as there are cores."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    found = host.disk_space(settings(rotate_bytes=rotate_bytes))

    assert (level, True) == (found.level, str(tmp_path) in found.text)
