"""Records of a backup, in kcat's words."""

import json
from pathlib import Path
from typing import Any

import pytest
from backup_samples import BYTES, JSON, SIBLINGS, SNAPPY, TIME, Backup, batch
from hypothesis import given, settings
from record_samples import record_batches

from kbackup.catalog.ledger.rows import PartitionLedger, TopicLedger
from kbackup.catalog.listing import Window
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    IncompleteBackupError,
    ObjectNotFoundError,
    RefusedError,
)
from kbackup.inspect.peek import peek, render
from kbackup.pipeline.views import ReadOptions
from kbackup.runs.backup_state import BackupState
from tests.support.json_lines import LINES


def look(backup: Backup, what: str, count: int = 10) -> list[dict[str, Any]]:
    """Return the records that `peek` shows."""
    found: Any = peek(backup.store, backup.layout, ReadOptions(), what, count=count)
    return [*found]


def offsets(backup: Backup, what: str, count: int = 10) -> list[tuple[int, int]]:
    """Return partition and offset of each record that `peek` shows."""
    return [(row["partition"], row["offset"]) for row in look(backup, what, count)]


def test_a_record_has_kcats_names() -> None:
    """What reads kcat's JSON finds the same names here; headers keep order and duplicates."""
    backup = Backup()
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "", "value": b""}]
    backup.put("orders", 3, batch([7], headers=headers, value=b"\xff\x00", timestamp_type=2))

    assert [
        {
            "topic": "orders",
            "partition": 3,
            "offset": 7,
            "tstype": "logappend",
            "ts": TIME + 7,
            "headers": [["a", "1"], ["a", None], ["", ""]],
            "key": "k7",
            "payload": {"$base64": "/wA="},
        }
    ] == look(backup, "orders:3@7")


def test_null_and_empty_stay_apart() -> None:
    """A tombstone is null, an empty value is an empty text."""
    backup = Backup()
    backup.put("orders", 0, batch([0], key=None, value=None), batch([1], key=b"", value=b""))

    shown = look(backup, "orders")

    assert [(None, None), ("", "")] == [(row["key"], row["payload"]) for row in shown]
    for row in shown:
        LINES.validate(row)


def test_what_a_layout_has_not_stored_is_null() -> None:
    """A value object of the connectors' layout knows neither time nor key nor headers."""
    backup = Backup()
    backup.put("orders", 0, [5], views=JSON)

    [row] = look(backup, "orders")
    LINES.validate(row)

    assert ("unknown", None, [], None, '{"n":5}') == tuple(
        row[name] for name in ("tstype", "ts", "headers", "key", "payload")
    )


@pytest.mark.parametrize(
    ("what", "count", "expected"),
    [
        pytest.param("orders", 4, [(0, 0), (0, 1), (0, 2), (0, 5)], id="topic"),
        pytest.param(
            "orders", 9, [(0, 0), (0, 1), (0, 2), (0, 5), (0, 6), (0, 7), (2, 0), (2, 1)],
            id="topic, partition by partition",
        ),
        pytest.param("orders:2", 9, [(2, 0), (2, 1)], id="partition"),
        pytest.param("orders:0@1", 2, [(0, 1), (0, 2)], id="offset within an object"),
        pytest.param("orders:0@2", 3, [(0, 2), (0, 5), (0, 6)], id="on into the next object"),
        pytest.param("orders:0@3", 1, [(0, 5)], id="offset in a hole"),
        pytest.param("orders:0@7", 9, [(0, 7)], id="last offset"),
        pytest.param("orders:0@0", 0, [], id="no record asked for"),
    ],
)  # fmt: skip
def test_a_place_is_found(what: str, count: int, expected: list[tuple[int, int]]) -> None:
    """The object that holds an offset is found, and reading goes on from there."""
    backup = Backup()
    backup.put("orders", 0, [0, 1, 2], [5, 6, 7])
    backup.put("orders", 2, [0, 1])

    assert expected == offsets(backup, what, count)


def test_offsets_are_compared_as_numbers() -> None:
    """An offset of eleven digits comes after one of ten."""
    backup = Backup()
    backup.put("orders", 0, [9_999_999_999], [10_000_000_000])

    assert [(0, 10_000_000_000)] == offsets(backup, "orders:0@10000000000")
    assert [(0, 9_999_999_999), (0, 10_000_000_000)] == offsets(backup, "orders")


def test_an_object_is_shown_by_its_key() -> None:
    """A key as listed shows that object and no other, and of siblings the whole set."""
    backup = Backup()
    backup.put("orders", 0, [0, 1], [2, 3])
    keys = backup.put("paid", 0, [0, 1], views=SIBLINGS)

    assert [(0, 2), (0, 3)] == offsets(
        backup, "topics/orders/partition=0/orders+0+0000000002.record.zstd.parquet"
    )
    assert [["k0", "k1"]] * 3 == [[row["key"] for row in look(backup, key)] for key in keys]


def test_records_are_chosen_by_key_and_time() -> None:
    """A key is compared byte for byte, null and empty apart; a time is each record's own."""
    backup = Backup()
    rows = [batch([0], key=b"a"), batch([1], key=b""), batch([2], key=None), batch([3], key=b"a")]
    backup.put("orders", 0, *rows)

    def chosen(count: int = 9, key: bytes | None = None, low: int | None = None,
               high: int | None = None) -> list[int]:  # fmt: skip
        window = Window.between(None, None, low, high)
        found = peek(
            backup.store, backup.layout, ReadOptions(), "orders",
            count=count, window=window, key=key,
        )  # fmt: skip
        return [row["offset"] for row in found]

    assert [[0, 3], [0], [1]] == [chosen(key=b"a"), chosen(1, b"a"), chosen(key=b"")]
    assert [[2, 3], [1, 2]] == [chosen(low=TIME + 2), chosen(low=TIME + 1, high=TIME + 3)]
    assert [3] == chosen(key=b"a", low=TIME + 1)
    with pytest.raises(IncompleteBackupError, match="that key and such a time"):
        chosen(key=b"a", low=TIME + 4)


def test_objects_without_a_record_of_that_time_are_not_opened() -> None:
    """What the ledger says of an object's times is enough to pass it over."""
    backup = Backup()
    keys = backup.put("orders", 0, [0, 1], [2, 3])
    entry = backup.entry(keys[0])
    known = BackupState(ledgers={"orders": TopicLedger({0: PartitionLedger({keys[0]: entry})})})
    head = backup.store.head(keys[0])
    assert head is not None
    backup.replace(keys[0], b"x" * head.size)
    window = Window.between(None, None, TIME + 2, None)

    found = peek(backup.store, backup.layout, ReadOptions(), "orders", window=window, known=known)

    assert [2, 3] == [row["offset"] for row in found]


def test_values_alone_are_not_chosen_by_time() -> None:
    """The connectors' layout stores no timestamps, which the error says."""
    backup = Backup()
    backup.put("orders", 0, [5], views=JSON)
    window = Window.between(None, None, TIME, None)

    with pytest.raises(IncompleteBackupError, match="store no timestamps"):
        next(peek(backup.store, backup.layout, ReadOptions(), "orders", window=window))


def test_records_that_lie_there_twice_are_shown_once() -> None:
    """Overlaps are normal after retries; each record is shown once, from the first object."""
    backup = Backup()
    backup.put("orders", 0, [0, 1, 2, 3])
    backup.put("orders", 0, [2, 3], [4, 5], views=SNAPPY)

    assert [(0, offset) for offset in range(6)] == offsets(backup, "orders")


def test_values_beside_full_records_are_shown_once() -> None:
    """What a restore reads is what is shown: full records win over values of the same offsets."""
    backup = Backup()
    backup.put("orders", 0, range(10), range(10, 20), views=JSON)
    backup.put("orders", 0, range(6, 14))

    assert [(0, offset) for offset in range(20)] == offsets(backup, "orders", 99)
    assert [(0, offset) for offset in range(12, 20)] == offsets(backup, "orders:0@12", 99)


def test_a_copy_in_another_directory_is_shown_once() -> None:
    """An identical object that lies there twice has each record once."""
    backup = Backup()
    key, *_ = backup.put("orders", 0, range(4), range(4, 8), views=JSON)
    backup.replace(key, backup.body(key), to=key.replace("partition=0/", "hour=0/"))

    assert [(0, offset) for offset in range(8)] == offsets(backup, "orders", 99)


def test_what_a_restore_refuses_is_not_shown() -> None:
    """Where values may hold the same records twice, the objects are named and nothing is shown."""
    backup = Backup()
    backup.put("orders", 0, range(10), range(6, 16), views=JSON)

    with pytest.raises(RefusedError, match="hold these offsets"):
        look(backup, "orders", 99)


def test_full_records_that_reach_beyond_the_next_object_are_found() -> None:
    """Without a ledger an object says where it ends, although a later one begins before."""
    backup = Backup()
    backup.put("orders", 0, range(20), range(5, 8))

    assert [(0, offset) for offset in range(12, 20)] == offsets(backup, "orders:0@12", 99)


def test_several_directories_are_one_partition() -> None:
    """Records come in the order of their offsets, as a restore writes them."""
    backup = Backup()
    for at in range(0, 12, 4):
        backup.put_in("odd=0", "orders", 0, [at, at + 2])
        backup.put_in("odd=1", "orders", 0, [at + 1, at + 3])

    assert [(0, offset) for offset in range(5, 12)] == offsets(backup, "orders:0@5")


@pytest.mark.parametrize(
    ("what", "error"),
    [
        pytest.param("other", IncompleteBackupError, id="topic that is not there"),
        pytest.param("orders:7", IncompleteBackupError, id="partition that is not there"),
        pytest.param("orders:0@99", IncompleteBackupError, id="offset behind the end"),
        pytest.param("orders:x", ConfigurationError, id="no number"),
        pytest.param("orders:0@-1", ConfigurationError, id="negative offset"),
        pytest.param("topics/README", ConfigurationError, id="no key of ours"),
        pytest.param("", ConfigurationError, id="nothing"),
        pytest.param(
            "topics/orders/partition=0/orders+0+0000000009.record.zstd.parquet",
            ObjectNotFoundError,
            id="object that is not there",
        ),
    ],
)
def test_what_is_not_there_is_an_error(what: str, error: type[Exception]) -> None:
    """A missing topic is an error, because an empty answer would look like an empty topic."""
    backup = Backup()
    backup.put("orders", 0, [0, 1])

    with pytest.raises(error):
        look(backup, what)


def test_records_before_a_damage_are_shown(tmp_path: Path) -> None:
    """A file that is cut short shows what is whole, then says what is wrong."""
    backup = Backup.in_folder(tmp_path)
    [key] = backup.put("orders", 0, [0, 1, 2], views=BYTES)
    (tmp_path / ".kbackup/facts" / key).unlink()
    backup.path(key).write_bytes(backup.body(key)[:-3])
    shown = peek(backup.store, backup.layout, ReadOptions(), "orders")

    assert [0, 1] == [next(shown)["offset"], next(shown)["offset"]]
    with pytest.raises(CorruptObjectError) as caught:
        next(shown)
    assert key == caught.value.what


@settings(deadline=None, max_examples=50)
@given(record_batches())
def test_every_record_can_be_shown(records: Any) -> None:
    """Whatever a record holds, what is shown is JSON, and no byte of it is lost."""
    backup = Backup()
    if len(records):
        backup.put("orders", 0, records)
        shown = json.loads(json.dumps(look(backup, "orders", len(records))))

        assert [(row["value"] or b"") for row in records.to_pylist()] == [
            render(row, "%s") for row in shown
        ]
        assert [row["timestamp"] for row in records.to_pylist()] == [row["ts"] for row in shown]


RECORD: Any = {
    "topic": "orders", "partition": 3, "offset": 42, "tstype": "create", "ts": 1000,
    "headers": [["a", "1"], ["b", None], ["c", {"$base64": "/w=="}]],
    "key": "ké", "payload": {"$base64": "/wA="},
}  # fmt: skip
NULLS: Any = RECORD | {"key": None, "payload": None, "headers": [], "ts": None}


@pytest.mark.parametrize(
    ("record", "template", "expected"),
    [
        pytest.param(
            RECORD, r"%t[%p]@%o %k %s\n", b"orders[3]@42 k\xc3\xa9 \xff\x00\n", id="usual"
        ),
        pytest.param(RECORD, "%K %S %T", b"3 2 1000", id="sizes in bytes, and the time"),
        pytest.param(NULLS, "%K %S %T %Z", b"-1 -1 -1 ?", id="sizes of null"),
        pytest.param(RECORD, "%Z", b"1970-01-01T00:00:01Z", id="the time as people read it"),
        pytest.param(RECORD | {"key": ""}, "%K", b"0", id="size of empty"),
        pytest.param(NULLS, "<%k|%s|%h>", b"<||>", id="null prints nothing"),
        pytest.param(RECORD, "%h", b"a=1,b=NULL,c=\xff", id="headers"),
        pytest.param(RECORD, "%R", b"\x00\x00\x00\x02", id="size as four bytes"),
        pytest.param(NULLS, "%R", b"\xff\xff\xff\xff", id="size of null as four bytes"),
        pytest.param(RECORD, "100%%", b"100%", id="percent sign"),
        pytest.param(RECORD, r"\t\r\n\x0a\x7C\033\\\q", b"\t\r\n\n|\x1b\\q", id="escapes"),
        pytest.param(RECORD, "\\", b"\\", id="backslash at the end"),
        pytest.param(RECORD, "", b"", id="empty"),
        pytest.param(RECORD | {"payload": "%t\\n"}, "%s", b"%t\\n", id="record text is no format"),
    ],
)
def test_a_format_prints_what_kcat_prints(record: Any, template: str, expected: bytes) -> None:
    """A format string of peek prints what kcat prints for it."""
    assert expected == render(record, template)


@pytest.mark.parametrize("template", ["%x", "%", "%k %y"])
def test_an_unknown_letter_is_named(template: str) -> None:
    """An unknown letter in a format string is an error."""
    with pytest.raises(ConfigurationError, match=r"has no meaning"):
        render(RECORD, template)
