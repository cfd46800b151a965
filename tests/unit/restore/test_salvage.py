"""A restore that leaves out what is bad, and no more: ``behavior.on.error=log`` and ``ignore``."""

import gzip
from collections.abc import Callable

import pyarrow as pa
import pytest
from backup_samples import BYTES, JSON, JSON_GZIP, SIBLINGS, batch

from kbackup.batches import HEADER_BYTES
from kbackup.formats import FormatOptions
from kbackup.naming import View
from kbackup.pipeline.views import ReadOptions, ViewSpec
from kbackup.runs.report import OfRestore, PartitionReport
from tests.support.encoded import NONE, ZSTD, Sent, sealed
from tests.support.encoded import batch as sent
from tests.support.standby import Standby
from tests.support.target import COPY, MARKER, CrashError, Restoring

_ZSTD = FormatOptions({"s3.compression.type": "zstd"})
JSON_ZSTD = (ViewSpec(View.VALUE, "json", _ZSTD, "json", {"schemas.enable": "false"}),)
ROWS = 20
BAD = [b"{", b"", b"\xff\xfe", b'{"n":1}x', b'{"n":"\xc3"}', b"nul", b'{"n":1} {"n":2}']


def value(offset: int) -> bytes:
    """The value of a record."""
    return b'{"n":%d}' % offset


def damage(again: Restoring, key: str, lines: dict[int, bytes], *, zipped: bool = False) -> None:
    """Put other lines into an object, in the places of some of its own."""
    body = again.backup.body(key)
    held = (gzip.decompress(body) if zipped else body).split(b"\n")
    for at, line in lines.items():
        held[at] = line
    data = b"\n".join(held)
    again.backup.replace(key, gzip.compress(data) if zipped else data)


def counts(report: PartitionReport[OfRestore]) -> tuple[int, int, int]:
    """How many records were restored, and records and objects left out."""
    return report.done.records, report.done.bad_records, report.done.bad_objects


@pytest.mark.parametrize("policy", ["log", "ignore"])
@pytest.mark.parametrize("line", BAD)
@pytest.mark.parametrize("rows", [{0}, {ROWS - 1}, {7}, {7, 8}, {0, 3, 19}, set(range(ROWS))])
def test_a_bad_line_is_left_out_alone(rows: set[int], line: bytes, policy: str) -> None:
    """A line of JSON that cannot be read is left out, counted and named."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(ROWS), views=JSON)
    damage(again, key, dict.fromkeys(rows, line))

    (report,) = again.restore(on_error=policy)

    good = [value(at) for at in range(ROWS) if at not in rows]
    assert good == again.cluster.values("copy_of_orders")
    assert (len(good), len(rows), 0) == counts(report)
    assert sorted(rows) == [each.place["offset"] for each in report.own.skipped]
    lines = [each.why.split(" of the JSON")[0] for each in report.own.skipped]
    assert [f"line {at + 1}" for at in sorted(rows)] == lines


@pytest.mark.parametrize("which", [0, 1, 2])
def test_rows_beside_a_bad_line_stay_beside_each_other(which: int) -> None:
    """A bad line of values, keys or headers leaves out its record."""
    again = Restoring()
    keys = again.backup.put("orders", 0, range(ROWS), views=SIBLINGS)
    damage(again, keys[which], {0: b"{", 7: b"", 8: b"[]x", ROWS - 1: b"\xff"})

    (report,) = again.restore(on_error="log")

    rows = [row for row in again.cluster.logs[COPY].rows if row]
    good = [at for at in range(ROWS) if at not in {0, 7, 8, ROWS - 1}]
    assert [(b"k%d" % at, value(at), b"t%d" % at) for at in good] == [
        (row["key"], row["value"], row["headers"][0]["value"]) for row in rows
    ]
    assert (len(good), 4, 0) == counts(report)


def test_bad_lines_in_several_files_of_a_set_leave_out_each_record_once() -> None:
    """A record of which several parts are bad is one record."""
    again = Restoring()
    keys = again.backup.put("orders", 0, range(ROWS), views=SIBLINGS)
    for key, at in zip(keys, (3, 3, 4), strict=True):
        damage(again, key, {at: b"{"})

    (report,) = again.restore(on_error="log")

    assert (ROWS - 2, 2, 0) == counts(report)


@pytest.mark.parametrize("codec", [NONE, ZSTD])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_follows_a_batch_that_cannot_be_unpacked_is_left_out(at: int, codec: int) -> None:
    """Its CRC32C is right, and those before it are restored."""
    again = Restoring()
    parts = [sent(base, [Sent(b"%d" % base)] * 3, codec) for base in (0, 3, 6)]
    body = b"\xff" * (len(parts[at]) - HEADER_BYTES)
    bad = sealed(3 * at, body, 3, 2, attributes=codec)
    altered = b"".join([*parts[:at], bad, *parts[at + 1 :]])
    again.backup.put_batches("orders", *parts, altered=altered)

    (report,) = again.restore(on_error="ignore")

    assert [b"0", b"0", b"0", b"3", b"3", b"3"][: 3 * at] == again.cluster.values("copy_of_orders")
    assert (3 * at, 9 - 3 * at, 1) == counts(report)


def test_a_bad_line_in_gzip_is_left_out_alone() -> None:
    """Compression changes nothing about it."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(ROWS), views=JSON_GZIP)
    damage(again, key, {5: b"{"}, zipped=True)

    (report,) = again.restore(on_error="log")

    assert (ROWS - 1, 1, 0) == counts(report)


def test_a_row_that_its_converter_cannot_take_is_left_out_alone() -> None:
    """JSON from which the converter makes no bytes is left out, beside lines that are not JSON."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(ROWS), views=JSON)
    half = rb'"\ud83d"'
    damage(again, key, {4: half, 5: b"{", 11: half})

    (report,) = again.restore(on_error="log", reading=ReadOptions(value_converter="string"))

    assert (ROWS - 3, 3, 0) == counts(report)
    assert [4, 5, 11] == [each.place["offset"] for each in report.own.skipped]


@pytest.mark.parametrize("crash_at", range(2, 7))
def test_a_restore_that_goes_on_delivers_each_good_record_once(
    crash_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore killed at any commit goes on behind bad lines with no record lost or twice."""
    monkeypatch.setattr("kbackup.restore.transaction.TRANSACTION_RECORDS", 3)
    again = Restoring()
    keys = again.backup.put("orders", 0, range(10), range(10, ROWS), views=JSON)
    for key in keys:
        damage(again, key, {0: b"{", 4: b"{", 5: b"{", 9: b"{"})

    with pytest.raises(CrashError):
        again.restore(on_error="log", crash_at=crash_at)
    again.restore(on_error="log", run="r2")

    good = [value(at) for at in range(ROWS) if at % 10 not in {0, 4, 5, 9}]
    assert good == again.cluster.values("copy_of_orders")


def test_more_bad_lines_than_can_be_named_are_counted() -> None:
    """The first thousand bad lines of an object are named one by one, the others together."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(3000), views=JSON)
    damage(again, key, dict.fromkeys(range(1, 2999), b"{"))

    (report,) = again.restore(on_error="log")

    assert (2, 2998, 0) == counts(report)
    assert 1001 == len(report.own.skipped)
    assert "1998 further records of it cannot be read" in report.own.skipped[-1].why


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    at = len(data) - 6  # in the checksum
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(("views", "spoil"), [(JSON, cut), (JSON_GZIP, cut), (JSON_GZIP, flipped)])
def test_what_precedes_damage_is_restored_and_the_rest_is_counted(
    views: tuple[ViewSpec, ...], spoil: Callable[[bytes], bytes]
) -> None:
    """Of a file that cannot be read to its end, the rows before are restored."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(2000), views=views)
    again.backup.replace(key, spoil(again.backup.body(key)))

    (report,) = again.restore(on_error="log")

    found = again.cluster.values("copy_of_orders")
    assert found == [value(at) for at in range(len(found))]
    assert (len(found), 2000 - len(found), 1) == counts(report)
    assert (0 < len(found) < 2000) == (spoil is cut)
    assert f"{2000 - len(found)} records of it are left out" in report.own.skipped[0].why


def test_a_number_that_is_not_known_is_said_not_to_be() -> None:
    """Where neither the object nor the ledger says how many records it had, nobody makes one up."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(ROWS), views=JSON)
    again.backup.replace(key, again.backup.body(key)[:-3], metadata={})

    (report,) = again.restore(on_error="log")

    assert (ROWS - 1, 0, 1) == counts(report)
    assert "how many of its records are left out is not known" in report.own.skipped[0].why


def test_the_ledger_knows_how_many_records_an_object_had() -> None:
    """An object that a shorter one has replaced lacks what the ledger counts."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(ROWS), views=JSON)
    again.entries = {"orders": [again.backup.entry(key)]}
    again.backup.replace(key, again.backup.body(key)[:-30], metadata={})

    (report,) = again.restore(on_error="log", behavior_on_error="log")

    records, bad, objects = counts(report)
    assert (ROWS, 1) == (records + bad, objects)
    assert 0 < bad


@pytest.mark.parametrize("follow", [False, True])
def test_a_run_counts_the_lines_that_it_leaves_out(standby: Standby, *, follow: bool) -> None:
    """The run exits 3, counts and names the line; the next one says that something was left out."""
    (key,) = standby.backup.put("orders", 0, range(5), views=JSON)
    standby.backup.replace(key, b"\n".join([*map(value, range(3)), b"{", value(4), b""]))

    first, again = (
        standby.follow(lambda look: look < 2, follow=follow, behavior_on_error="log")
        for _ in range(2)
    )

    assert [value(at) for at in (0, 1, 2, 4)] == standby.target.values("copy_of_orders")
    code = 143 if follow else 3  # it follows until it is stopped
    assert (code, {"bad_records": 1}) == (first["exit_code"], first["skipped"])
    assert (code, "left_out") == (again["exit_code"], again["warnings"][0]["code"])
    [said] = [each["text"] for each in first["warnings"] if each["code"] == "skipped"]
    assert f"{key}: line 4 of the JSON file is damaged" in said
    assert 1 == [each.get("text") for each in standby.told].count(said)


def test_a_bad_line_is_written_to_the_topic_of_errors(standby: Standby) -> None:
    """The topic of errors is told of each line, with its offset and its object."""
    (key,) = standby.backup.put("orders", 0, range(5), views=JSON)
    standby.backup.replace(key, b"\n".join([*map(value, range(3)), b"{", value(4), b""]))

    standby.follow(
        lambda _: False, follow=False, behavior_on_error="log", parse_error_topic_prefix="error"
    )

    [rows] = [log.rows for where, log in standby.target.logs.items() if "error" in where.topic]
    [letter] = [row for row in rows if row is not MARKER]
    headers = {each["key"]: each["value"] for each in letter["headers"]}
    said = {name: headers[f"__connect.errors.{name}"] for name in ("offset", "object")}
    assert {"offset": b"3", "object": key.encode()} == said


def test_lines_of_an_altered_stream_are_not_taken_for_good() -> None:
    """Where a compressed file is altered, what is still JSON behind the place may be anything."""
    found = []
    for views, spoil in ((JSON_ZSTD, lambda body: body), (JSON_GZIP, cut)):
        again = Restoring()
        (key,) = again.backup.put("orders", 0, range(2000), views=views)
        lines = [value(at) for at in range(2000)]
        lines[3] = b"{"
        data = b"\n".join([*lines, b""])
        is_gzip = views is JSON_GZIP
        again.backup.replace(
            key, spoil(gzip.compress(data) if is_gzip else pa.compress(data, "zstd", asbytes=True))
        )
        (report,) = again.restore(on_error="log")
        found.append(counts(report))

    assert [(0, 2000, 1)] * 2 == found


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_blocks_before_damage_are_restored(codec: str) -> None:
    """Of an Avro file that ends early, the whole blocks are restored, and the rest is counted."""
    options = FormatOptions({"avro.codec": codec})
    views = (ViewSpec(View.VALUE, "avro", options, "string", {}),)
    again = Restoring()
    rows = batch(range(3), value=b"x" * 70_000)
    (key,) = again.backup.put("orders", 0, rows, views=views)
    again.backup.replace(key, again.backup.body(key)[:-9])

    (report,) = again.restore(on_error="log")

    assert (2, 1, 1) == counts(report)
    assert "1 record of it is left out" in report.own.skipped[0].why


def test_rows_that_may_have_become_one_are_not_taken_for_good() -> None:
    """Bytes of which a separator is lost are fewer values, and nobody can say which one is two."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(ROWS), views=BYTES)
    again.backup.replace(key, again.backup.body(key).replace(b"\n", b"+", 1))

    (report,) = again.restore(on_error="log")

    assert (0, ROWS, 1) == counts(report)


def test_lines_that_are_missing_are_counted() -> None:
    """Of an object of JSON that lacks lines, those that are there are restored."""
    again = Restoring()
    (key,) = again.backup.put("orders", 0, range(ROWS), views=JSON)
    again.backup.replace(key, again.backup.body(key).replace(value(5) + b"\n", b""))

    (report,) = again.restore(on_error="log")

    assert (ROWS - 1, 1, 1) == counts(report)
