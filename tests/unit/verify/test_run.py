"""Is it all there, readable and unbroken: damage of every kind, and no false alarm."""

import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from gzip import compress as pack
from gzip import decompress
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backup_samples import (
    BYTES,
    JSON,
    JSON_GZIP,
    RECORD,
    SIBLINGS,
    Backup,
    batch,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from record_samples import record_batches

from kbackup.channel import Line
from kbackup.cli.json_lines import schema
from kbackup.errors import IncompleteBackupError
from kbackup.flow.views import ReadOptions
from kbackup.records import Span, TopicPartition
from kbackup.runs.known import of_run_records
from kbackup.runs.locks import Holder
from kbackup.runs.summary import Summary
from kbackup.testing import FaultyStore
from kbackup.verify.run import Notes, Read, verify
from kbackup.verify.share import Share
from kbackup.verify.task import VerifyJob, verify_task

LINES = jsonschema.Draft202012Validator(schema())

NOW = datetime(2026, 11, 21, 2, tzinfo=UTC)

LAYOUTS = [
    pytest.param(RECORD, id="whole records"),
    pytest.param(JSON, id="json"),
    pytest.param(JSON_GZIP, id="gzip"),
    pytest.param(BYTES, id="bytes"),
    pytest.param(SIBLINGS, id="siblings"),
]


class Verified:
    """What `verify` says of a backup.

    Attributes:
        events: All it tells.
        summary: The summary line.
    """

    def __init__(self, backup: Backup, *, deep: bool = False, **options: Any) -> None:
        summary = Summary("r", "restore verify")
        reading = options.pop("reading", ReadOptions())
        options = {"notes": Notes(of_run_records(backup.runs)), "now": NOW} | options
        if deep:
            options = {"read": here(backup, reading)} | options
        store = options.pop("store", backup.store)
        self.events = [*verify(store, backup.layout, reading, summary, **options)]
        self.summary = summary.finish()

    @property
    def exit_code(self) -> int:
        return int(self.summary["exit_code"])

    @property
    def errors(self) -> list[tuple[str, str | None]]:
        """Code and key of each error."""
        return [
            (event["code"], event["key"]) for event in self.findings if event["level"] == "error"
        ]

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Code and text of each note."""
        return [
            (event["code"], event["text"]) for event in self.findings if event["level"] == "note"
        ]

    @property
    def findings(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == "finding"]

    @property
    def states(self) -> list[str]:
        return [event["state"] for event in self.events if event["type"] == "partition"]

    @property
    def texts(self) -> str:
        return "\n".join(str(event["text"]) for event in self.findings)


def here(backup: Backup, reading: ReadOptions) -> Read:
    """Return the task, run in this process in place of Spark."""
    job = VerifyJob(backup.settings, reading)
    return lambda units: [*verify_task(job, units, Line(None))]


def offsets(verified: Verified) -> list[list[int]]:
    """Return the offsets of each error."""
    return [event["offsets"] for event in verified.findings if event["level"] == "error"]


# No false alarm


@pytest.mark.parametrize("deep", [False, True], ids=["names", "deep"])
def test_a_format_narrows_what_is_verified(deep: bool) -> None:
    """
    With a format only its objects are judged: damage of others is not found, nor missed.
    """
    backup = Backup()
    [damaged] = backup.run("orders", 0, range(5))
    backup.run("orders", 0, range(5, 9), views=JSON)
    backup.run("payments", 0, range(5))
    backup.replace(damaged, b"no Parquet")

    narrow = Verified(backup, deep=deep, only_format="json")

    assert (0, ["orders"]) == (
        narrow.exit_code,
        [row["topic"] for row in narrow.summary["partitions"]],
    )
    assert ["other_format"] == [found["code"] for found in narrow.summary["warnings"]]
    assert not deep or Verified(backup, deep=True).exit_code == 7


def test_a_missing_object_of_the_format_is_missed() -> None:
    """
    A run that stored objects of the format that was asked for is still believed.
    """
    backup = Backup()
    _, lost = backup.run("orders", 0, range(5), range(5, 9), views=JSON)
    backup.store.delete(lost)

    assert 7 == Verified(backup, only_format="json").exit_code


@pytest.mark.parametrize("deep", [pytest.param(False, id="names"), pytest.param(True, id="deep")])
@pytest.mark.parametrize("views", LAYOUTS)
def test_a_good_backup_is_good(views: Any, deep: bool) -> None:
    """
    What the sink wrote is found in order, and counted.
    """
    backup = Backup()
    keys = backup.run("orders", 0, range(4), range(4, 7), views=views)

    verified = Verified(backup, deep=deep)

    assert (0, [], ["ok" if deep else "all there"]) == (
        verified.exit_code, verified.findings, verified.states,
    )  # fmt: skip
    [row] = verified.summary["partitions"]
    assert (len(keys), 0, 6, 7) == tuple(
        row[name] for name in ("objects", "first", "last", "records")
    )
    read = sum(entry.size for entry in backup.store.list("topics/")) if deep else 0
    assert read == row["bytes_read"]


@settings(deadline=None, max_examples=50)
@given(st.lists(record_batches(max_size=6), max_size=4))
def test_no_records_make_a_good_backup_look_bad(cuts: Sequence[pa.RecordBatch]) -> None:
    """
    Whatever was backed up, holes in its offsets too, is not called damaged.
    """
    backup = Backup()
    ends = 0
    for cut in cuts:
        if len(cut) and cut["offset"][0].as_py() >= ends:
            backup.put("orders", 0, cut)
            ends = cut["offset"][-1].as_py() + 1

    expected = 0 if ends else 7  # nothing at all is no good backup
    assert (expected, []) == ((verified := Verified(backup, deep=True)).exit_code, verified.errors)


@pytest.mark.parametrize("deep", [pytest.param(False, id="names"), pytest.param(True, id="deep")])
@pytest.mark.parametrize("views", [RECORD, JSON], ids=["whole records", "json"])
def test_several_directories_hold_no_overlap_and_no_hole(views: Any, deep: bool) -> None:
    """
    Objects of one cut have offsets between each other's: that is how a partitioner spreads them.
    """
    backup = Backup()
    for at in range(0, 40, 20):
        backup.put_in("odd=0", "orders", 0, range(at, at + 20, 2), views=views)
        backup.put_in("odd=1", "orders", 0, range(at + 1, at + 20, 2), views=views)

    verified = Verified(backup, deep=deep)

    assert (0, []) == (verified.exit_code, verified.findings)


def test_names_alone_vouch_for_nothing() -> None:
    """
    Without run records nobody knows what should be there: that is not called all there.
    """
    backup = Backup()
    backup.put("orders", 0, range(4))

    assert (0, ["not checkable"]) == ((seen := Verified(backup)).exit_code, seen.states)


def test_names_cost_one_listing() -> None:
    """
    Where runs and names agree, no object is opened or asked about.
    """
    backup = Backup()
    backup.run("orders", 0, range(4), range(4, 7))
    store = FaultyStore("", backup.store)

    Verified(backup, store=store)

    assert [("list", "topics/", "ok")] == store.calls


def test_nothing_to_read_starts_nothing() -> None:
    """
    Spark is not started for an empty bucket, and that it is empty is no good news.
    """

    def read(units: Any) -> Any:
        raise AssertionError

    assert (7, []) == ((seen := Verified(Backup(), read=read)).exit_code, seen.events)


@pytest.mark.parametrize("deep", [pytest.param(False, id="names"), pytest.param(True, id="deep")])
def test_a_first_offset_above_zero_is_noted(deep: bool) -> None:
    """
    Retention takes the first records of any topic; that is told, and no error.
    """
    backup = Backup()
    backup.run("orders", 2, range(1000, 1004))

    verified = Verified(backup, deep=deep)

    assert (0, [("gap", "first offset 1000")]) == (verified.exit_code, verified.notes)


def test_holes_are_noted() -> None:
    """
    Compaction and transactions leave holes: without a record that somebody stored them they are
    told, and no error.
    """
    backup = Backup()
    backup.put("orders", 0, [0, 2], [5, 6], [8])

    verified = Verified(backup, deep=True)

    assert (0, [("gap", "2 holes at 3-4, 7")]) == (verified.exit_code, verified.notes)
    assert ["ok"] == verified.states


def test_many_holes_are_one_note() -> None:
    """
    A compacted topic has holes everywhere, and one line for them.
    """
    backup = Backup()
    backup.run("orders", 0, *([at, at + 1] for at in range(0, 30, 3)))

    verified = Verified(backup, deep=True)

    assert [("gap", "9 holes at 2, 5, 8, 11, 14 and 4 more")] == verified.notes
    assert 0 == verified.exit_code


def test_a_known_gap_is_explained() -> None:
    """
    Offsets that had expired before they were backed up are told as that, not as a hole.
    """
    backup = Backup()
    backup.run("orders", 0, [0, 1])
    backup.run("orders", 0, [5, 6])
    gaps = {TopicPartition("orders", 0): [Span(2, 5)]}

    verified = Verified(backup, deep=True, notes=Notes(of_run_records(backup.runs, gaps)))

    [(code, text)] = verified.notes
    assert ("gap", 0) == (code, verified.exit_code)
    assert "offsets 2 to 4 had expired" in text


def test_offsets_are_compared_as_numbers() -> None:
    """
    No hole arises where offsets get an eleventh digit.
    """
    backup = Backup()
    backup.run("orders", 0, [9_999_999_998, 9_999_999_999], [10_000_000_000])

    verified = Verified(backup, deep=True)

    assert [("gap", "first offset 9999999998")] == verified.notes


# Missing objects: F13


@pytest.mark.parametrize("deep", [pytest.param(False, id="names"), pytest.param(True, id="deep")])
@pytest.mark.parametrize("views", [LAYOUTS[0], LAYOUTS[1], LAYOUTS[3]])
@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(0, [0, 3], id="first"),
        pytest.param(1, [4, 6], id="middle"),
        pytest.param(2, [7, 9], id="last"),
    ],
)
def test_an_object_that_a_run_stored_is_missed(
    at: int, expected: list[int], views: Any, deep: bool
) -> None:
    """
    An object removed at the start, in the middle or at the end is named, with its offsets.
    """
    backup = Backup()
    keys = backup.run("orders", 0, range(4), range(4, 7), range(7, 10), views=views)
    backup.store.delete(keys[at])

    verified = Verified(backup, deep=deep)

    assert (7, [("missing_object", keys[at])]) == (verified.exit_code, verified.errors)
    assert [expected] == offsets(verified)
    assert ["damaged"] == verified.states
    assert [] == verified.notes


def test_a_partition_without_any_object_is_missed() -> None:
    """
    When all of a partition is gone the run records still speak of it.
    """
    backup = Backup()
    keys = backup.run("orders", 0, range(4)) + backup.run("orders", 1, range(4))
    backup.store.delete(keys[1])

    verified = Verified(backup)

    assert [("missing_object", keys[1])] == verified.errors
    assert ["all there", "damaged"] == verified.states


def test_a_topic_without_any_object_is_missed() -> None:
    """
    When a whole topic is gone nobody can say how its objects were named, but that they are gone.
    """
    backup = Backup()
    [key] = backup.run("orders", 0, range(4))
    backup.store.delete(key)

    verified = Verified(backup)

    assert (7, [("missing_object", None)], [[0, 3]]) == (
        verified.exit_code, verified.errors, offsets(verified),
    )  # fmt: skip


def test_what_an_earlier_and_a_later_run_miss_is_told_once() -> None:
    """
    Two runs may have stored the same offsets; a missing object is one error.
    """
    backup = Backup()
    keys = backup.run("orders", 0, range(4), range(4, 7))
    backup.run("orders", 0, range(4), range(4, 7))
    backup.store.delete(keys[0])

    assert [("missing_object", keys[0])] == Verified(backup).errors


def test_others_objects_do_not_stand_in_for_a_lost_one() -> None:
    """
    A run's first object is missed even where as many objects as it stored are there.
    """
    backup = Backup()
    keys = backup.run("orders", 0, range(4), range(4, 7))
    backup.store.delete(keys[0])
    backup.put("orders", 0, [6])

    assert [("missing_object", keys[0])] == Verified(backup).errors


def test_a_loss_among_holes_is_told_with_all_of_them() -> None:
    """
    Where holes outnumber the missing objects nobody can say which it is, so none is accused.
    """
    backup = Backup()
    keys = backup.run("orders", 0, [0, 1], [3, 4], [6, 7], [9])
    backup.store.delete(keys[1])

    verified = Verified(backup)

    [event] = [found for found in verified.findings if found["level"] == "error"]
    assert ("missing_object", None, [2, 8]) == (event["code"], event["key"], event["offsets"])
    assert "1 of the 4 objects" in event["text"]
    assert "2-5, 8" in event["text"]


def test_missing_offsets_are_named_for_another_backup() -> None:
    """
    The last line says which offsets to back up again.
    """
    backup = Backup()
    keys = backup.run("orders", 1, range(4), range(4, 7)) + backup.run("paid", 0, range(3))
    backup.run("late", 0, range(1000, 1002))
    backup.store.delete(keys[1])
    backup.store.delete(keys[2])

    verified = Verified(backup)

    [text] = [event["text"] for event in verified.events if event["type"] == "warning"]
    assert text.endswith(": orders:1:4,paid:0:0")


def test_a_named_topic_that_nobody_knows_is_an_error() -> None:
    """
    A cron job that verifies a topic with a typing error must not report success.
    """
    backup = Backup()
    backup.put("orders", 0, [0])

    with pytest.raises(IncompleteBackupError):
        Verified(backup, names=["order"])


# Siblings: F7


@pytest.mark.parametrize("which", [pytest.param(0, id="keys"), pytest.param(1, id="headers")])
@pytest.mark.parametrize(
    ("cut", "promised", "expected"),
    [
        pytest.param(1, False, 7, id="one of many"),
        pytest.param(2, False, 0, id="the last, unpromised"),
        pytest.param(2, True, 7, id="the last, promised"),
    ],
)
def test_a_missing_sibling_is_missed(which: int, cut: int, promised: bool, expected: int) -> None:
    """
    A value object whose keys or headers are missing is damaged where the configuration promises
    them, or where objects before and behind have them; else they may never have been stored.
    """
    backup = Backup()
    keys = backup.put("orders", 0, range(2), range(2, 4), range(4, 6), views=SIBLINGS)
    lost = keys[3 * cut + which]
    backup.store.delete(lost)
    reading = ReadOptions(wants_keys=promised, wants_headers=promised)

    verified = Verified(backup, reading=reading)

    assert expected == verified.exit_code
    assert ([("missing_object", lost)] if expected else []) == verified.errors


def test_a_missing_sibling_is_not_a_missing_object_too() -> None:
    """
    A run's count of objects and the lost sibling are one error.
    """
    backup = Backup()
    keys = backup.run("orders", 0, range(2), range(2, 4), range(4, 6), views=SIBLINGS)
    backup.store.delete(keys[3])

    assert [("missing_object", keys[3])] == Verified(backup, deep=True).errors


@pytest.mark.parametrize(
    ("cut", "expected"), [pytest.param(1, 7, id="between"), pytest.param(2, 0, id="at the end")]
)
def test_siblings_without_their_value_are_told(cut: int, expected: int) -> None:
    """
    Keys without values at the end are what an interrupted run leaves; before that, a loss.
    """
    backup = Backup()
    keys = backup.put("orders", 0, range(2), range(2, 4), range(4, 6), views=SIBLINGS)
    backup.store.delete(keys[3 * cut + 2])

    verified = Verified(backup, deep=True)

    assert expected == verified.exit_code
    assert ([("missing_object", keys[3 * cut + 2])] if expected else []) == verified.errors
    assert 1 == len(verified.findings)


def test_a_directory_of_keys_alone_is_no_loss() -> None:
    """
    Tombstones have no value, so a connector keeps their keys in a directory of their own.
    """
    backup = Backup()
    keys = backup.put("orders", 0, range(2), range(2, 4), views=SIBLINGS)
    moved = keys[0].replace("partition=0", "tombstone")
    backup.replace(keys[0], backup.body(keys[0]), to=moved)
    for key in keys[:3]:
        backup.store.delete(key)

    verified = Verified(backup, deep=True)

    assert (0, []) == (verified.exit_code, verified.errors)
    assert 4 == verified.summary["objects"]


@pytest.mark.parametrize(
    "mutate",
    [
        pytest.param(lambda lines: lines[:-1], id="a row short"),
        pytest.param(lambda lines: [*lines, lines[-1]], id="a row long"),
    ],
)
@pytest.mark.parametrize("which", [pytest.param(0, id="keys"), pytest.param(1, id="headers")])
def test_rows_are_never_paired_by_guess(
    which: int, mutate: Callable[[list[bytes]], list[bytes]]
) -> None:
    """
    A sibling that has not just one row for each value is damaged, and named.
    """
    backup = Backup()
    keys = backup.put("orders", 0, range(4), views=SIBLINGS)
    lines = backup.body(keys[which]).splitlines(keepends=True)
    backup.replace(keys[which], b"".join(mutate(lines)))

    verified = Verified(backup, deep=True)

    assert (7, [("corrupt", keys[which])]) == (verified.exit_code, verified.errors)


# Damaged bytes: F1 to F5, F9


def damaged(backup: Backup, key: str, data: bytes) -> Verified:
    """Return what a deep verify says once *data* lies in an object's place."""
    backup.replace(key, data)
    return Verified(backup, deep=True)


@pytest.mark.parametrize("views", LAYOUTS)
@pytest.mark.parametrize(
    "share",
    [
        pytest.param(0.0, id="nothing"),
        pytest.param(0.25, id="a quarter"),
        pytest.param(0.5, id="half"),
        pytest.param(0.75, id="three quarters"),
        pytest.param(0.99, id="nearly all"),
    ],
)
def test_an_object_that_was_cut_short_is_named(views: Any, share: float) -> None:
    """
    A file that ends too early is found by its own form, or by its count of records.
    """
    backup = Backup()
    keys = backup.put("orders", 0, range(40), views=views)
    body = backup.body(keys[-1])

    verified = damaged(backup, keys[-1], body[: int(len(body) * share)])

    [(code, key)] = verified.errors
    assert (7, keys[-1]) == (verified.exit_code, key)
    assert code in ("corrupt", "count_mismatch")


@pytest.mark.parametrize("views", LAYOUTS)
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"P", id="one byte"),
        pytest.param(b"PAR1", id="magic of Parquet"),
        pytest.param(b"\x1f\x8b", id="magic of gzip"),
        pytest.param(b"PAR1" + bytes(40) + b"PARE", id="encrypted Parquet"),
        pytest.param(b"Obj\x01", id="magic of Avro"),
        pytest.param(b"\x00" * 1000, id="zeros"),
        pytest.param(b"<html>not found</html>\n", id="another server's answer"),
        pytest.param(pack(b'{"n":0}\n'), id="gzip of one line"),
    ],
)
def test_an_object_that_is_something_else_is_named(views: Any, data: bytes) -> None:
    """
    Whatever lies in an object's place, it is called damaged and nothing crashes.
    """
    backup = Backup()
    keys = backup.put("orders", 0, range(4), views=views)

    verified = damaged(backup, keys[-1], data)

    assert (7, {keys[-1]}) == (verified.exit_code, {key for _, key in verified.errors})


@pytest.mark.parametrize("views", LAYOUTS)
@pytest.mark.parametrize("at", [0.0, 0.1, 0.4, 0.7, 0.95])
def test_a_flipped_bit_is_found(tmp_path: Path, views: Any, at: float) -> None:
    """
    Each object carries its checksum, so one wrong bit anywhere is named.
    """
    backup = Backup.in_folder(tmp_path)
    keys = backup.put("orders", 0, range(20), views=views)
    data = bytearray(backup.body(keys[-1]))
    data[int(len(data) * at)] ^= 1
    backup.path(keys[-1]).write_bytes(data)

    verified = Verified(backup, deep=True)

    assert (7, [("corrupt", keys[-1])]) == (verified.exit_code, verified.errors)
    assert "sha256" in verified.texts


@pytest.mark.parametrize(
    "mutate",
    [
        pytest.param(lambda lines: [lines[0], *lines], id="duplicated"),
        pytest.param(lambda lines: lines[1:], id="removed"),
        pytest.param(lambda lines: [lines[1], lines[0], *lines[2:]], id="swapped"),
    ],
)
def test_changed_lines_are_found(
    tmp_path: Path, mutate: Callable[[list[bytes]], list[bytes]]
) -> None:
    """
    Lines of good JSON that are not the ones that were stored are found by the checksum.
    """
    backup = Backup.in_folder(tmp_path)
    [key] = backup.put("orders", 0, range(5), views=JSON)
    backup.path(key).write_bytes(b"".join(mutate(backup.body(key).splitlines(keepends=True))))

    assert [("corrupt", key)] == Verified(backup, deep=True).errors


@pytest.mark.parametrize(
    ("mutate", "expected"),
    [
        pytest.param(lambda lines: [lines[0], *lines], 6, id="duplicated"),
        pytest.param(lambda lines: lines[1:], 4, id="removed"),
    ],
)
def test_a_wrong_number_of_rows_is_found(
    mutate: Callable[[list[bytes]], list[bytes]], expected: int
) -> None:
    """
    The number of records that was stored with an object is compared with its rows.
    """
    backup = Backup()
    [key] = backup.put("orders", 0, range(5), views=JSON)

    verified = damaged(backup, key, b"".join(mutate(backup.body(key).splitlines(keepends=True))))

    assert [("count_mismatch", key)] == verified.errors
    assert f"it holds {expected} records, stored were 5" == verified.texts


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(lambda plain: pack(plain[:16]) + pack(plain[16:]), None, id="two members"),
        pytest.param(lambda plain: pack(plain) + bytes(512), None, id="zeros behind"),
        pytest.param(
            lambda plain: pack(plain)[:-8] + bytes(4) + pack(plain)[-4:], "corrupt", id="wrong CRC"
        ),
        pytest.param(lambda plain: pack(plain)[:-4] + b"\0\0\0\1", "corrupt", id="false length"),
        pytest.param(lambda plain: pack(plain) + b"x", "corrupt", id="something behind"),
        pytest.param(lambda plain: plain, "corrupt", id="not compressed"),
    ],
)
def test_gzip_is_judged_by_its_own_checks(
    change: Callable[[bytes], bytes], code: str | None
) -> None:
    """
    Gzip of several members or with padding is good; wrong checksums and lengths are not.
    """
    backup = Backup()
    [key] = backup.put("orders", 0, range(5), views=JSON_GZIP)

    verified = damaged(backup, key, change(decompress(backup.body(key))))

    assert ([] if code is None else [(code, key)]) == verified.errors


def test_a_plain_file_named_gzip_is_found() -> None:
    """
    The extension says how a file is packed; gzip under a plain name is not JSON.
    """
    backup = Backup()
    [key] = backup.put("orders", 0, range(5), views=JSON)

    verified = damaged(backup, key, pack(backup.body(key)))

    assert [("corrupt", key)] == verified.errors


def test_an_extension_that_cannot_be_is_found() -> None:
    """
    Whole records are never JSON, so an object renamed to that is named.
    """
    backup = Backup()
    [key] = backup.put("orders", 0, range(5))
    renamed = key.replace(".zstd.parquet", ".json")
    backup.replace(key, backup.body(key), to=renamed)
    backup.store.delete(key)

    verified = Verified(backup, deep=True)

    assert (7, [("corrupt", renamed)]) == (verified.exit_code, verified.errors)


def test_an_empty_object_is_found_by_its_name() -> None:
    """
    No file of ours has 0 bytes, so that needs no reading.
    """
    backup = Backup()
    [key] = backup.run("orders", 0, range(5))
    backup.replace(key, b"")

    verified = Verified(backup)

    assert (7, [("corrupt", key)]) == (verified.exit_code, verified.errors)


def test_one_damaged_object_does_not_hide_another() -> None:
    """
    All objects are read, whatever is wrong with the first.
    """
    backup = Backup()
    keys = backup.put("orders", 0, range(3), range(3, 6), range(6, 9))
    backup.replace(keys[0], b"x")
    backup.replace(keys[2], b"y")

    verified = Verified(backup, deep=True)

    assert [("corrupt", keys[0]), ("corrupt", keys[2])] == verified.errors
    assert [[0, 2], [6, 8]] == offsets(verified)
    assert 3 == verified.summary["objects"]


# Objects in a wrong place: F6


def test_an_object_in_another_topics_folder_is_foreign() -> None:
    """
    Folder and name must agree, or the object is reported and not counted (exit 3).
    """
    backup = Backup()
    [key] = backup.run("orders", 0, range(3))
    backup.replace(key, backup.body(key), to=key.replace("topics/orders/", "topics/paid/"))

    verified = Verified(backup, deep=True)

    assert (3, {"foreign_objects": 1}) == (verified.exit_code, verified.summary["skipped"])
    assert ["foreign_object"] == [each["code"] for each in verified.summary["warnings"]]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        pytest.param("orders", "paid", "wrong_topic", id="another topic"),
        pytest.param("partition=0/orders+0", "partition=0/orders+1", "wrong_topic", id="partition"),
        pytest.param("+0000000000", "+0000000001", "corrupt", id="later than its records"),
        pytest.param("+0000000100", "+0000000099", "corrupt", id="earlier than its records"),
    ],
)
def test_a_renamed_object_is_found(old: str, new: str, code: str) -> None:
    """
    A file of whole records says where it belongs, whatever it is called.
    """
    backup = Backup()
    keys = backup.put("orders", 0, range(3), range(100, 103))
    [key] = [key for key in reversed(keys) if old in key][:1]
    renamed = key.replace(old, new)
    backup.replace(key, backup.body(key), to=renamed)
    backup.store.delete(key)

    verified = Verified(backup, deep=True)

    assert (7, [(code, renamed)]) == (verified.exit_code, verified.errors)


@pytest.mark.parametrize("to", [99, 101])
def test_a_renamed_value_object_is_found_by_its_facts(to: int) -> None:
    """
    Values do not say their offsets, but what was stored with the object does.
    """
    backup = Backup()
    [key] = backup.put("orders", 0, range(100, 103), views=JSON)
    renamed = key.replace("+0000000100", f"+{to:010}")
    backup.replace(key, backup.body(key), to=renamed)
    backup.store.delete(key)

    assert [("corrupt", renamed)] == Verified(backup, deep=True).errors


def test_a_copy_is_noted() -> None:
    """
    A copied value object is as good as its original; that there are two is told.
    """
    backup = Backup()
    [key] = backup.put("orders", 0, range(3), views=JSON)
    copy = key.replace("orders", "paid")
    backup.replace(key, backup.body(key), to=copy)

    verified = Verified(backup, deep=True)

    assert [("duplicate", f"the same bytes as {key}")] == verified.notes
    assert 0 == verified.exit_code


def test_a_file_with_another_end_is_found() -> None:
    """
    As many records as were stored, but not the same ones, are not what was stored.
    """
    backup = Backup()
    [key] = backup.put("orders", 0, [0, 1, 2])
    another = Backup()
    another.put("orders", 0, [0, 1, 3])
    backup.replace(key, another.body(key))

    verified = Verified(backup, deep=True)

    assert [("count_mismatch", key)] == verified.errors
    assert "its last record has offset 3, stored was 2" == verified.texts


# Overlaps


def test_the_same_records_twice_are_noted() -> None:
    """
    Retries leave whole records twice; each is restored once, so that is no damage.
    """
    backup = Backup()
    backup.put("orders", 0, range(6))
    [key] = backup.put("orders", 0, range(3, 6))

    verified = Verified(backup, deep=True)

    [event] = verified.findings
    assert (0, "note", "overlap", key, [3, 5]) == (
        verified.exit_code, event["level"], event["code"], event["key"], event["offsets"],
    )  # fmt: skip


def test_no_hole_is_seen_behind_a_doubled_object() -> None:
    """
    An object within another leaves no hole behind its own end.
    """
    backup = Backup()
    backup.put("orders", 0, range(10), range(3, 6), range(10, 12))

    assert ["overlap"] == [each["code"] for each in Verified(backup, deep=True).findings]


def test_what_compaction_took_in_between_makes_no_difference() -> None:
    """
    A rerun after a compaction stores fewer records at the same offsets, and no others.
    """
    backup = Backup()
    backup.put("orders", 0, range(6), [3, 5, 6])

    verified = Verified(backup, deep=True)

    assert (0, ["overlap"]) == (verified.exit_code, [each["code"] for each in verified.findings])


def test_other_records_at_the_same_offsets_are_an_error() -> None:
    """
    Two records for one offset come from two topics of one name; nobody can say which is right.
    """
    backup = Backup()
    backup.put("orders", 0, range(6))
    [key] = backup.put("orders", 0, batch([3, 4], value=b"another"))

    verified = Verified(backup, deep=True)

    assert (7, [("overlap", key)], [[3, 4]]) == (
        verified.exit_code, verified.errors, offsets(verified),
    )  # fmt: skip


@pytest.mark.parametrize("views", [JSON, BYTES])
def test_values_that_reach_into_the_next_object_are_an_error(views: Any) -> None:
    """
    Values do not say their offsets, so a restore would write them twice.
    """
    backup = Backup()
    backup.put("orders", 0, range(6), views=views)
    [key] = backup.put("orders", 0, range(5, 9), views=views)

    verified = Verified(backup, deep=True)

    assert (7, [("overlap", key)]) == (verified.exit_code, verified.errors)


def test_values_beside_whole_records_are_noted() -> None:
    """
    Where both layouts hold the same offsets the whole records are used.
    """
    backup = Backup()
    backup.put("orders", 0, range(3), range(3, 6))
    backup.put("orders", 0, range(3), range(3, 6), views=JSON)

    verified = Verified(backup, deep=True)

    assert 0 == verified.exit_code
    assert [("overlap", "2 value objects are beside whole records, which are used instead")] == (
        verified.notes
    )


def test_values_before_whole_records_are_no_overlap() -> None:
    """
    A backup that changed to whole records at some offset holds each record once.
    """
    backup = Backup()
    backup.put("orders", 0, range(3), views=JSON)
    backup.put("orders", 0, range(3, 6))

    assert [] == Verified(backup, deep=True).findings


# Whole-record files of another make: F14


def rewritten(data: bytes, change: Callable[[pa.Table], pa.Table], **metadata: str) -> bytes:
    """Return a whole-record file with its table changed, and its metadata."""
    parquet = pq.ParquetFile(io.BytesIO(data))
    names = {name.decode(): text.decode() for name, text in parquet.metadata.metadata.items()}
    table = change(parquet.read())
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            names | {f"kbackup.{name}": text for name, text in metadata.items()}
        )
    return file.getvalue()


@pytest.mark.parametrize(
    ("change", "metadata", "expected"),
    [
        pytest.param(
            lambda table: table.drop_columns("headers"), {}, "headers is missing", id="no column"
        ),
        pytest.param(
            lambda table: table.set_column(3, "key", table["key"].cast(pa.string())),
            {},
            "column key should be",
            id="another type",
        ),
        pytest.param(
            lambda table: table.append_column("key", table["key"]),
            {},
            "key is twice",
            id="a column twice",
        ),
        pytest.param(lambda table: table, {"format_version": "2"}, "version 2", id="later version"),
        pytest.param(lambda table: table, {"records": "9"}, "records", id="false count"),
        pytest.param(lambda table: table.take([1, 0, 2]), {}, "do not rise", id="swapped rows"),
        pytest.param(
            lambda table: table.slice(0, 2),
            {"records": "2", "last_offset": "1"},
            "it holds 2 records, stored were 3",
            id="a row less",
        ),
    ],
)
def test_a_whole_record_file_of_another_make_is_named(
    change: Callable[[pa.Table], pa.Table], metadata: dict[str, str], expected: str
) -> None:
    """
    A file that another program wrote, or changed, is refused with the reason.
    """
    backup = Backup()
    [key] = backup.put("orders", 0, range(3))

    verified = damaged(backup, key, rewritten(backup.body(key), change, **metadata))

    assert (7, key) == (verified.exit_code, verified.errors[0][1])
    assert expected in verified.texts


# What cannot be checked


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        pytest.param("orders+0+0000000000.json", b'{"n":0}\n', "not checkable", id="json"),
        pytest.param("orders+0+0000000000.bin", b"text\n", "not checkable", id="bytes"),
        pytest.param("orders+0+0000000000.json.gz", pack(b'{"n":0}\n'), "ok", id="gzip has a CRC"),
    ],
)
def test_what_nothing_could_show_is_never_called_ok(
    tmp_path: Path, name: str, data: bytes, expected: str
) -> None:
    """
    A connector's plain text has no checksum: readable is all that can be said of it.
    """
    backup = Backup.in_folder(tmp_path)
    path = backup.path(f"topics/orders/partition=0/{name}")
    path.parent.mkdir(parents=True)
    path.write_bytes(data)

    verified = Verified(backup, deep=True)

    assert (0, [expected]) == (verified.exit_code, verified.states)


def test_objects_that_cannot_be_checked_are_counted(tmp_path: Path) -> None:
    """
    Good objects do not vouch for others beside them.
    """
    backup = Backup.in_folder(tmp_path)
    backup.run("orders", 0, range(3), views=JSON)
    path = backup.path("topics/orders/partition=0/orders+0+0000000003.json")
    path.write_bytes(b'{"n":3}\n')

    assert ["ok, 1 not checkable"] == Verified(backup, deep=True).states
    assert ["all there, 1 objects not checkable"] == Verified(backup).states


# How much to read


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), unique=True), st.integers(1, 9))
def test_the_parts_hold_each_object_once(keys: list[str], parts: int) -> None:
    """
    Seven daily parts read all of a backup in a week, each object once.
    """
    found = [[key for key in keys if Share(part, parts).takes(key)] for part in range(1, parts + 1)]

    assert sorted(keys) == sorted(key for part in found for key in part)


def test_a_part_reads_its_objects_and_says_so() -> None:
    """
    What was not read is not called ok: the row says how much was.
    """
    backup = Backup()
    keys = backup.put("orders", 0, *([at] for at in range(40)))
    backup.replace(keys[7], b"x")

    found = [Verified(backup, deep=True, share=Share(part, 4)) for part in (1, 2, 3, 4)]

    assert 40 == sum(verified.summary["objects"] for verified in found)
    assert [("corrupt", keys[7])] == [error for verified in found for error in verified.errors]
    assert [0, 0, 0, 7] == sorted(verified.exit_code for verified in found)
    assert 3 == sum("of 40 objects read" in verified.states[0] for verified in found)
    assert [] == [note for verified in found for note in verified.notes]


def test_a_sample_is_a_share_of_the_objects() -> None:
    """
    A sample of another run is of other objects, about as many as were asked for.
    """
    keys = [f"topics/orders/partition=0/orders+0+{at:010}.json" for at in range(2000)]
    first, second = (
        {key for key in keys if Share.parse(None, "10%", seed).takes(key)} for seed in ("a", "b")
    )

    assert first != second
    assert 120 < len(first) < 280
    assert 120 < len(second) < 280


@pytest.mark.parametrize(
    ("part", "sample", "expected"),
    [
        pytest.param("1/7", None, Share(1, 7, seed="s"), id="part"),
        pytest.param(None, "5%", Share(percent=5, seed="s"), id="sample"),
        pytest.param(None, "0.5", Share(percent=0.5, seed="s"), id="sample without sign"),
        pytest.param("7/7", "100%", Share(7, 7, seed="s"), id="both"),
    ],
)
def test_a_share_is_read(part: str | None, sample: str | None, expected: Share) -> None:
    """
    Parts are numbered from 1, samples are per cent.
    """
    assert expected == Share.parse(part, sample, "s")


@pytest.mark.parametrize(
    ("part", "sample"),
    [
        *((part, None) for part in ("0/7", "8/7", "1", "1/0", "-1/7", "a/b", "")),
        *((None, sample) for sample in ("0%", "101%", "-5%", "x", "")),
    ],
)
def test_a_share_that_cannot_be_is_refused(part: str | None, sample: str | None) -> None:
    """
    A part that does not exist would read nothing and report success.
    """
    with pytest.raises(Exception, match=r"is not a (part|share)") as caught:
        Share.parse(part, sample, "s")

    assert 2 == caught.value.exit_code  # type: ignore[attr-defined]


# Around it


def test_a_store_that_fails_is_not_a_damaged_backup() -> None:
    """
    An object that cannot be fetched is neither good nor corrupt: exit 6, and it is not called ok.
    """
    backup = Backup()
    backup.put("orders", 0, range(3))
    failure = {"code": "store", "exit_code": 6, "what": "s3:GetObject", "why": "503", "do": ""}

    def read(units: Any) -> Any:
        return [{"id": unit.files.files[0].key, "failure": failure} for unit in units]

    verified = Verified(backup, read=read)

    assert (6, ["not read"], []) == (verified.exit_code, verified.states, verified.findings)


def test_an_object_that_goes_while_it_is_verified_is_missing() -> None:
    """
    What was listed and is gone when it is read is named as missing.
    """
    backup = Backup()
    keys = backup.put("orders", 0, range(3), range(3, 6))
    read = here(backup, ReadOptions())

    def delete_and_read(units: Any) -> Any:
        backup.store.delete(keys[0])
        return read(units)

    verified = Verified(backup, read=delete_and_read)

    assert (7, [("missing_object", keys[0])]) == (verified.exit_code, verified.errors)


def test_a_stale_lock_is_told() -> None:
    """
    A lock without a heartbeat is worth a word, a fresh one is not.
    """
    backup = Backup()
    backup.run("orders", 0, range(2))
    old = Holder(NOW - timedelta(hours=1), {"run": "r1", "host": "h", "pid": 1})
    fresh = Holder(NOW - timedelta(seconds=9), {"run": "r2", "host": "h", "pid": 2})

    verified = Verified(backup, notes=Notes(locks=[old, fresh]))

    [event] = [event for event in verified.events if event["type"] == "warning"]
    assert ("warning", "stale_lock", 0) == (event["type"], event["code"], verified.exit_code)
    assert "run r1 on h" in event["text"]


def test_only_what_was_asked_for_is_verified() -> None:
    """
    Topics and partitions that were not asked for are neither read nor judged.
    """
    backup = Backup()
    for topic in ("orders", "paid"):
        for partition in range(3):
            keys = backup.run(topic, partition, range(2))
            backup.store.delete(keys[0])

    verified = Verified(backup, pattern="ord.*", partitions={1, 2})

    assert [("orders", 1), ("orders", 2)] == [
        (row["topic"], row["partition"]) for row in verified.summary["partitions"]
    ]
    assert 2 == len(verified.errors)


def test_of_many_errors_the_summary_keeps_some() -> None:
    """
    A summary stays readable when a whole bucket is damaged; each error is told as a finding.
    """
    backup = Backup()
    for key in backup.put("orders", 0, *([at] for at in range(130))):
        backup.replace(key, b"")

    verified = Verified(backup)

    assert (130, 100, 7) == (
        len(verified.errors), len(verified.summary["errors"]), verified.exit_code,
    )  # fmt: skip


def test_events_keep_the_json_contract() -> None:
    """
    Whatever is told can be printed as a line of the contract.
    """
    backup = Backup()
    keys = backup.run("orders", 0, range(3), range(3, 6), [9])
    backup.run("gone", 0, range(3))
    backup.store.delete(keys[1])
    backup.store.delete("topics/gone/partition=0/gone+0+0000000000.record.zstd.parquet")
    backup.replace(keys[2], b"x", to="topics/orders/README")
    backup.replace(keys[2], b"x")

    verified = Verified(backup, deep=True)

    assert verified.events == json.loads(json.dumps(verified.events))
    for event in [*verified.events, verified.summary]:
        LINES.validate(event)
