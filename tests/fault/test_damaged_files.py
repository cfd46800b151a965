"""Files that were cut short or altered: noticed, in words, and never read as fewer records.

The mutations are F1 to F5 and F9 of the fault matrix.  What nothing in the file can show, a bit
in a file of plain text, or a cut just behind a line, is for the sha256 beside the object; here it
must only not end in anything but an error of ours.
"""

import io
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from record_samples import batch_of, write

from kbackup.errors import CorruptObjectError
from kbackup.formats import HEADERS, Format, FormatOptions
from kbackup.formats.byte_array import ByteArrayFormat
from kbackup.formats.json_lines import JsonFormat
from kbackup.formats.parquet import ParquetFormat
from kbackup.naming import View

GZIP = FormatOptions({"s3.compression.type": "gzip"})
FLIPS = 60


@dataclass(frozen=True)
class File:
    """A good file, and what is known of it."""

    form: Format
    view: View
    extension: str
    data: bytes
    is_checked: bool  # whether its bytes carry a checksum, so that no damage goes unseen
    boundaries: tuple[int, ...]  # where its parts begin and end

    def rows(self, data: bytes) -> list[Any]:
        """Read *data* as this file is read."""
        batches = self.form.read(io.BytesIO(data), self.view, self.extension, GZIP)
        return [row for batch in batches for row in batch.to_pylist()]

    def outcome(self, data: bytes) -> str:
        """Return how reading *data* ends; any other error than ours is the test's failure."""
        try:
            found = self.rows(data)
        except CorruptObjectError as error:
            return "refused" if "\n" not in f"{error.what}{error.why}" else "a traceback"
        return "same" if found == self.good else "other"

    @property
    def is_gzip(self) -> bool:
        """Whether the whole file is compressed."""
        return self.extension.endswith(".gz")

    @cached_property
    def good(self) -> list[Any]:
        """The rows of the file as it was written."""
        return self.rows(self.data)


def record_file() -> File:
    """Return full records in four row groups."""
    rows: list[dict[str, Any]] = [
        {
            "key": b"k%d" % at if at % 3 else None,
            "value": b'{"n":%d}' % at if at % 5 else None,
            "headers": [{"key": "é", "value": b"1"}, {"key": "é", "value": None}][: at % 3],
        }
        for at in range(200)
    ]
    rows[50]["value"] = rows[100]["value"] = rows[150]["value"] = bytes(4 * 2**20)
    facts = {"records": "200", "first-offset": "0", "last-offset": "199"}
    data = write(ParquetFormat(), View.RECORD, [batch_of(rows)], metadata=facts)
    footer = pq.ParquetFile(io.BytesIO(data)).metadata
    starts = [
        footer.row_group(group).column(column).data_page_offset
        for group in range(footer.num_row_groups)
        for column in range(footer.num_columns)
    ]
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    boundaries = (4, *starts, end, len(data) - 8, len(data) - 4)
    assert 4 == footer.num_row_groups
    return File(ParquetFormat(), View.RECORD, ".zstd.parquet", data, True, boundaries)


def text_file(form: Format, view: View, column: pa.Array, options: FormatOptions) -> File:
    """Return a file of one column, compressed or not."""
    name = {View.VALUE: "value", View.HEADERS: "headers"}[view]
    data = write(form, view, [pa.record_batch([column], [name])], options)
    is_gzip = options is GZIP
    lines = [at + 1 for at, byte in enumerate(data) if byte == 10]
    boundaries = (10, len(data) - 8, len(data) - 4) if is_gzip else tuple(lines)
    return File(form, view, form.extension(options), data, is_gzip, boundaries)


def files() -> Iterator[Any]:
    values = pa.array([b"value %d" % at * ((at + 1) % 4) for at in range(60)], pa.binary())
    texts = pa.array([f'{{"n":{at},"s":"é{at}"}}' for at in range(60)], pa.json_())
    pairs = pa.array([[{"key": "a", "value": str(at)}] * (at % 3) for at in range(60)], HEADERS)
    yield pytest.param(record_file(), id="records")
    for options, name in ((FormatOptions(), "plain"), (GZIP, "gzip")):
        for form, view, column, title in (
            (JsonFormat(), View.VALUE, texts, "json"),
            (JsonFormat(), View.HEADERS, pairs, "headers"),
            (ByteArrayFormat(), View.VALUE, values, "bytes"),
        ):
            yield pytest.param(text_file(form, view, column, options), id=f"{title} {name}")


def mutate(data: bytes, seed: int) -> bytes:
    """Return *data* with one thing wrong: a bit, a byte, or a range lost, doubled or moved."""
    rnd = random.Random(seed)
    at, end = sorted(rnd.sample(range(len(data) + 1), 2))
    kind = rnd.choice(["bit", "bit", "bit", "byte", "lost", "doubled", "zeros", "swapped"])
    if kind in ("bit", "byte"):
        at = rnd.randrange(len(data))
        new = data[at] ^ (1 << rnd.randrange(8)) if kind == "bit" else rnd.randrange(256)
        return data[:at] + bytes([new]) + data[at + 1 :]
    middle = {
        "lost": b"",
        "doubled": data[at:end] * 2,
        "zeros": bytes(end - at),
        "swapped": data[at:end][::-1],
    }[kind]
    return data[:at] + middle + data[end:]


every_file = pytest.mark.parametrize("file", list(files()))


@every_file
def test_a_file_of_next_to_nothing_is_refused(file: File) -> None:
    """No bytes, one byte, or the first bytes alone are no file.  (F1)"""
    starts = [b"", file.data[:1], file.data[:4], file.data[:4] * 2, b"PAR1", b"\x1f\x8b\x08"]

    assert ["refused"] * len(starts) == [file.outcome(start) for start in starts]


@every_file
def test_a_file_that_was_cut_is_refused(file: File) -> None:
    """A file cut at any byte never passes for a shorter one. (F2)"""
    size = len(file.data)
    cuts = {size * percent // 100 for percent in (25, 50, 75, 99)}
    cuts |= {at + by for at in file.boundaries for by in (-1, 0, 1)} | {size - 1}
    unseen = set() if file.is_checked else set(file.boundaries)

    outcomes = {cut: file.outcome(file.data[:cut]) for cut in sorted(cuts - unseen) if cut < size}

    assert {"refused"} == set(outcomes.values())


@every_file
def test_a_cut_that_cannot_be_seen_gives_full_records(file: File) -> None:
    """A plain file that ends after a whole line reads as a shorter one, not half a line. (F2)"""
    if file.is_checked:
        pytest.skip("there is no such cut")
    rows = file.rows(file.data)

    for count, at in enumerate(file.boundaries, start=1):
        assert rows[:count] == file.rows(file.data[:at])


@every_file
@pytest.mark.parametrize("seed", range(4))
def test_damage_is_refused_or_does_no_harm(file: File, seed: int) -> None:
    """With anything wrong, a file is refused, or gives exactly what was written.  (F3, F4)"""
    outcomes = {
        number: file.outcome(mutate(file.data, number))
        for number in range(seed * FLIPS, (seed + 1) * FLIPS)
    }

    assert "a traceback" not in outcomes.values()
    if file.is_checked:
        assert [] == [number for number, outcome in outcomes.items() if outcome == "other"]
        assert "refused" in outcomes.values()


@pytest.mark.parametrize(
    "block", [pytest.param("lost", id="lost"), "doubled", "swapped", "first", "last"]
)
def test_row_groups_cannot_be_taken_for_others(block: str) -> None:
    """A row group that is missing, doubled, or out of place is noticed.  (F4)"""
    file = record_file()
    source = pq.ParquetFile(io.BytesIO(file.data))
    groups = {
        "lost": [0, 2, 3],
        "doubled": [0, 1, 1, 2, 3],
        "swapped": [0, 2, 1, 3],
        "first": [1, 2, 3],
        "last": [0, 1, 2],
    }[block]
    out = io.BytesIO()
    metadata = source.metadata.metadata
    with pq.ParquetWriter(out, source.schema_arrow, store_schema=False) as writer:
        for group in groups:
            writer.write_table(source.read_row_group(group))
        writer.add_key_value_metadata(metadata)

    assert "refused" == file.outcome(out.getvalue())


@every_file
def test_a_file_under_another_name_is_refused(file: File) -> None:
    """A format refuses a file that another format wrote. (F5)"""
    others: dict[tuple[Any, str], View] = {
        (ParquetFormat, ".zstd.parquet"): View.RECORD,
        (JsonFormat, ".json"): View.VALUE,
        (JsonFormat, ".json.gz"): View.VALUE,
        (ByteArrayFormat, ".bin.gz"): View.VALUE,
    }
    outcomes = {
        (kind, extension): File(kind(), view, extension, file.data, True, ()).outcome(file.data)
        for (kind, extension), view in others.items()
        if kind is not type(file.form) and extension.endswith(".gz") != file.is_gzip
    }

    assert outcomes
    assert {"refused"} == set(outcomes.values())


def test_encrypted_parquet_is_refused() -> None:
    """A file whose footer is encrypted is named as one that cannot be read.  (F5)"""
    file = record_file()

    assert "refused" == file.outcome(b"PARE" + file.data[4:-4] + b"PARE")


def test_members_of_gzip_are_not_lost() -> None:
    """A damaged second gzip member is not taken for the end of the file. (F9)"""
    column = pa.array(["1", "2"], pa.json_())
    file = text_file(JsonFormat(), View.VALUE, column, GZIP)
    double = file.data * 2
    middle, end = len(file.data), len(double)

    assert 4 == len(file.rows(double))
    for cut in (middle + 1, middle + 10, end - 9, end - 1):
        assert "refused" == file.outcome(double[:cut])
    assert 4 == len(file.rows(double + bytes(512)))
    assert "refused" == file.outcome(double[:-5] + b"\x00" + double[-4:])
