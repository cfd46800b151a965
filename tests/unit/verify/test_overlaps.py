"""The same offsets in more than one object."""

from collections.abc import Sequence
from typing import Any

import pytest
from backup_samples import BYTES, JSON, Backup, batch

from tests.support.verified import Verified, offsets


def test_the_same_records_twice_are_noted() -> None:
    """Retries leave full records twice; each is restored once, so that is no damage."""
    backup = Backup()
    backup.put("orders", 0, range(6))
    [key] = backup.put("orders", 0, range(3, 6))

    verified = Verified(backup, deep=True)

    [event], [row] = verified.findings, verified.summary["partitions"]
    assert (0, "note", "overlap", key, [3, 5], 6) == (
        verified.exit_code, event["level"], event["code"], event["key"], event["offsets"],
        row["records"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cuts", "records"),
    [
        pytest.param([range(10), range(3, 6), range(10, 12)], 12, id="no hole is behind an end"),
        pytest.param([range(6), [3, 5, 6]], 7, id="compaction took some before the rerun"),
    ],
)
def test_records_that_two_objects_hold_are_counted_once(
    cuts: list[Sequence[int]], records: int
) -> None:
    """An object within another, and a rerun that stored fewer records, and no others."""
    backup = Backup()
    backup.put("orders", 0, *cuts)

    verified = Verified(backup, deep=True)

    assert (0, ["overlap"]) == (verified.exit_code, [each["code"] for each in verified.findings])
    assert [records] == [row["records"] for row in verified.summary["partitions"]]


def test_other_records_at_the_same_offsets_are_an_error() -> None:
    """Nobody can say which of two records for one offset is right."""
    backup = Backup()
    backup.put("orders", 0, range(6))
    [key] = backup.put("orders", 0, batch([3, 4], value=b"another"))

    verified = Verified(backup, deep=True)

    assert (7, [("overlap", key)], [[3, 4]]) == (
        verified.exit_code, verified.errors, offsets(verified),
    )  # fmt: skip


@pytest.mark.parametrize("views", [JSON, BYTES])
def test_values_that_reach_into_the_next_object_are_an_error(views: Any) -> None:
    """Values do not say their offsets, so a restore would write them twice."""
    backup = Backup()
    backup.put("orders", 0, range(6), views=views)
    [key] = backup.put("orders", 0, range(5, 9), views=views)

    verified = Verified(backup, deep=True)

    assert (7, [("overlap", key)]) == (verified.exit_code, verified.errors)
    (error,) = verified.summary["errors"]
    assert "move one of the two objects away" in error["do"]
    assert not [one for one in verified.summary["warnings"] if one["code"] == "repair"]


def test_values_beside_full_records_are_noted() -> None:
    """Where both layouts hold the same offsets the full records are used."""
    backup = Backup()
    backup.put("orders", 0, range(3), range(3, 6))
    backup.put("orders", 0, range(3), range(3, 6), views=JSON)

    verified = Verified(backup, deep=True)

    assert 0 == verified.exit_code
    assert [("overlap", "2 value objects are beside full records, which are used instead")] == (
        verified.notes
    )


def test_values_before_full_records_are_no_overlap() -> None:
    """A backup that changed to full records at some offset holds each record once."""
    backup = Backup()
    backup.put("orders", 0, range(3), views=JSON)
    backup.put("orders", 0, range(3, 6))

    assert [] == Verified(backup, deep=True).findings


@pytest.mark.parametrize("views", [JSON, BYTES])
def test_rows_of_a_copy_under_another_name_are_counted_once(views: Any) -> None:
    """A restore reads one of the two; objects of as many bytes elsewhere are no copies."""
    backup = Backup()
    key, _ = backup.put("orders", 0, range(6), range(6, 12), views=views)
    copy = key.replace("partition=0", "day=1")
    backup.replace(key, backup.body(key), to=copy)

    verified = Verified(backup, deep=True)

    assert (0, [12]) == (
        verified.exit_code, [row["records"] for row in verified.summary["partitions"]],
    )  # fmt: skip
