"""The data that stages pass on: rows of one partition, columns of a file.

Rows have `SCHEMA`; null, empty and absent are three different things in every column.  Beside
them stand the words all stages share: `TopicPartition`, `TopicIdentity`, `Span`, and `Facts`, what
is known of the records in one object.
"""

import hashlib
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum, IntEnum
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

HEADER: Final = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
"""One header: its name, and its value, which may be null or empty."""

SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        # ms since the epoch, UTC; -1 is Kafka's "none".  Null: not stored in this layout.
        pa.field("timestamp", pa.int64()),
        pa.field("timestamp_type", pa.int8(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),  # null: a tombstone
        pa.field("headers", pa.list_(pa.field("element", HEADER, nullable=False)), nullable=False),
    ]
)
"""One row is one Kafka record.  Header order and repeated header names are kept."""

RECORD_OVERHEAD: Final = 24
"""Bytes a record counts for besides its key, value and headers: offset, timestamp, lengths."""

NO_TIMESTAMP: Final = -1
"""Kafka's timestamp of a record that has none."""


class TimestampType(IntEnum):
    """Who set a record's timestamp; the numbers are librdkafka's ``rd_kafka_timestamp_type_t``."""

    NONE = 0
    CREATE = 1
    LOG_APPEND = 2

    @staticmethod
    def word(number: int) -> str:
        """Return kcat's word for a type: ``unknown``, ``create`` or ``logappend``."""
        return {1: "create", 2: "logappend"}.get(number, "unknown")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic, 0 to 2**31 - 1."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def place(self) -> dict[str, Any]:
        """Where an error about it happened: `kbackup.errors.KbackupError.place`."""
        return {"topic": self.topic, "partition": self.partition}


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """Which topic of which cluster; a topic that was deleted and created again is another one.

    Attributes:
        cluster_id: The cluster's id; empty where it is not known.
        topic_id: The topic's id; empty where it is not known, as with brokers before 2.8.
    """

    cluster_id: str = ""
    topic_id: str = ""

    def conflicts(self, other: "TopicIdentity") -> bool:
        """Whether this is known to be another topic than *other*.

        Topic ids are unique across clusters.  Where one side does not know its own, two clusters
        are two topics.
        """
        mine, theirs = self.topic_id, other.topic_id
        if not (mine and theirs):
            mine, theirs = self.cluster_id, other.cluster_id
        return bool(mine and theirs) and mine != theirs

    def to_metadata(self) -> dict[str, str]:
        """Return what is known as an object's user metadata."""
        both = {"cluster-id": self.cluster_id, "topic-id": self.topic_id}
        return {name: text for name, text in both.items() if text}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Self:
        """Read what `to_metadata` wrote; what is not there is not known."""
        return cls(metadata.get("cluster-id", ""), metadata.get("topic-id", ""))


UNKNOWN: Final = TopicIdentity()
"""The identity of a topic of which none was kept, as by versions that kept none."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A range of offsets: from *start_offset*, inclusive, to *end_offset*, the next one."""

    start_offset: int
    end_offset: int

    def __len__(self) -> int:
        return max(0, self.end_offset - self.start_offset)

    def __contains__(self, offset: int) -> bool:
        return self.start_offset <= offset < self.end_offset


_T = TypeVar("_T", pa.RecordBatch, pa.Table)


def replaced(rows: _T, name: str, column: pa.Array | pa.ChunkedArray) -> _T:
    """Return rows with another column in place of one."""
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), column)


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the offsets of *spans* in as few spans as will do, in order."""
    found: list[Span] = []
    for span in sorted(span for span in spans if len(span)):
        if found and span.start_offset <= found[-1].end_offset:
            end = max(found[-1].end_offset, span.end_offset)
            found[-1] = Span(found[-1].start_offset, end)
        else:
            found.append(span)
    return tuple(found)


def without(span: Span, others: Iterable[Span]) -> tuple[Span, ...]:
    """Return the offsets of *span* that are in none of *others*, in order."""
    found: list[Span] = []
    start = span.start_offset
    for other in joined(others):
        found.append(Span(start, min(other.start_offset, span.end_offset)))
        start = max(start, other.end_offset)
    return joined([*found, Span(start, span.end_offset)])


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the records in one object.

    Attributes:
        first_offset: Offset of the first record.
        last_offset: Offset of the last record, inclusive.
        records: Number of records.
        min_timestamp: Lowest record timestamp in ms, None where no record has one.
        max_timestamp: Highest record timestamp in ms, None where no record has one.
        sha256: Of the object's bytes, in hexadecimal.
        digest: Of the records as they were when they were stored, behind its method; None: not
            taken.  It says nothing of what the same bytes hold, so facts are equal without it.
    """

    first_offset: int
    last_offset: int
    records: int
    min_timestamp: int | None
    max_timestamp: int | None
    sha256: str
    digest: str | None = field(default=None, compare=False)

    def to_metadata(self) -> dict[str, str]:
        """Return the facts as an object's user metadata: lower-case names, text values."""
        return {
            name.replace("_", "-"): str(value)
            for name in self.__dataclass_fields__
            if (value := getattr(self, name)) is not None
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Self | None:
        """Read what `to_metadata` wrote; None where it is not there, or not ours."""
        try:
            values = {f.name: metadata.get(f.name.replace("_", "-")) for f in fields(cls)}
            sha256, digest = values.pop("sha256"), values.pop("digest")
            numbers = {name: None if text is None else int(text) for name, text in values.items()}
            known = [number for number in numbers.values() if number is not None]
            if sha256 is None or any(
                numbers[name] is None for name in ("first_offset", "last_offset", "records")
            ):
                return None
            if not -(2**63) <= min(known) <= max(known) < 2**63:  # the ledger could not have it
                return None
            facts = cls(sha256=sha256, digest=digest, **numbers)  # type: ignore[arg-type]
        except ValueError:
            return None
        # the offset after the last one is a position, of 64 bits too
        is_sound = 0 <= facts.first_offset <= facts.last_offset < 2**63 - 1 and facts.records > 0
        return facts if is_sound else None

    @property
    def is_dense(self) -> bool:
        """Whether no offset between the first and the last one was left out."""
        return self.records == self.last_offset - self.first_offset + 1

    def covers(self, other: "Facts") -> bool:
        """Whether every record of *other* may be in this object too, by offsets and counts.

        What begins earlier, or ends later, has a record more at that end.
        """
        more = (self.first_offset < other.first_offset) + (self.last_offset > other.last_offset)
        return (
            self.first_offset <= other.first_offset
            and self.last_offset >= other.last_offset
            and self.records >= other.records + more
        )

    def has_grown(self, now: "Facts | None") -> bool:
        """Whether *now* are those of an object that begins as this one and ends later."""
        return (
            now is not None
            and now.first_offset == self.first_offset
            and now.last_offset > self.last_offset
            and now.covers(self)
        )


_ROTATION: Final = ("cut-start", "cut-end", "cut-files")


@dataclass(frozen=True, slots=True)
class Rotation:
    """The files that were closed together.

    Attributes:
        span: From the position before them to the one after them.
        files: How many of values, or of full records, there are, over all directories.
    """

    span: Span
    files: int

    def to_metadata(self) -> dict[str, str]:
        """Return it as an object's user metadata."""
        values = self.span.start_offset, self.span.end_offset, self.files
        return dict(zip(_ROTATION, map(str, values), strict=True))

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Self | None:
        """Read what `to_metadata` wrote; None where it is not there, or not sound."""
        try:
            start, end, files = (int(metadata[name]) for name in _ROTATION)
        except (KeyError, ValueError):
            return None
        return cls(Span(start, end), files) if 0 <= start <= end < 2**63 and files > 0 else None


class ColumnsDigest:
    """A digest of rows that come some at a time; how they are split does not show in it.

    Each column is a stream of bytes with a SHA-256 of its own.

    Attributes:
        METHOD: What a digest of this kind begins with; others are not comparable with it.
        COLUMNS: How many columns there are.
    """

    METHOD: ClassVar[str]
    COLUMNS: ClassVar[int]

    def __init__(self) -> None:
        self._rows = 0
        self._columns = [hashlib.sha256(usedforsecurity=False) for _ in range(self.COLUMNS)]

    def _take(self, rows: int, columns: Iterable[memoryview]) -> None:
        """Take the bytes that each column has of so many more rows."""
        for digest, column in zip(self._columns, columns, strict=True):
            digest.update(column)
        self._rows += rows

    @property
    def text(self) -> str:
        """The digest of all that was taken, behind its method."""
        found = hashlib.sha256(self._rows.to_bytes(8, "little"), usedforsecurity=False)
        for digest in self._columns:
            found.update(digest.digest())
        return self.METHOD + found.hexdigest()


def bytes_of(numbers: pa.Array) -> memoryview:
    """Return numbers, none of them null, as they are in memory: little-endian."""
    if not len(numbers):
        return memoryview(b"")
    width = numbers.type.bit_width // 8
    start = numbers.offset * width
    return memoryview(numbers.buffers()[1]).cast("B")[start : start + len(numbers) * width]


def record_bytes(batch: pa.RecordBatch) -> pa.Int64Array:
    """Return the bytes each row counts for: key, value, headers and `RECORD_OVERHEAD`.

    Args:
        batch: Rows of `SCHEMA`.

    Returns:
        int64, one row per row of *batch*, never null.  It depends on the records alone, so it
        can decide where files are cut.
    """
    size = pc.add(_lengths(batch["key"]), _lengths(batch["value"]))
    headers = batch["headers"]
    flat = headers.flatten()  # of these rows only, where the batch is a slice
    if len(flat):
        each = pc.add(_lengths(flat.field("key")), _lengths(flat.field("value")))
        before = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each)])
        ends = before.take(pc.subtract(headers.offsets, headers.offsets[0]))
        size = pc.add(size, pc.subtract(ends[1:], ends[:-1]))
    return pc.add(size, RECORD_OVERHEAD)


def record_bytes_bound(batch: pa.RecordBatch) -> int:
    """Return what no element of `record_bytes` exceeds, for a fifth of its time."""
    headers = batch["headers"]
    flat = headers.flatten()
    header = _longest(flat.field("key")) + _longest(flat.field("value"))
    most = (pc.max(headers.value_lengths()).as_py() or 0) * header
    return _longest(batch["key"]) + _longest(batch["value"]) + most + RECORD_OVERHEAD


def _longest(column: pa.Array) -> int:
    return pc.max(pc.binary_length(column)).as_py() or 0


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Return the sum of `record_bytes`, without measuring each row where nothing is null."""
    flat = batch["headers"].flatten()
    columns = (batch["key"], batch["value"], flat.field("key"), flat.field("value"))
    return sum(map(_total_length, columns)) + RECORD_OVERHEAD * len(batch)


def _total_length(column: pa.Array) -> int:
    if column.null_count:  # the place of a null may hold bytes
        return pc.sum(_lengths(column)).as_py() or 0
    return int(column.view(pa.binary()).total_values_length)


def _lengths(column: pa.Array) -> pa.Int64Array:
    return pc.fill_null(pc.binary_length(column).cast(pa.int64()), 0)


_TEXT: Final = b"kbackup.schema"
_VERSION: Final = b"kbackup.schema.version"
_ENCODING: Final = b"kbackup.schema.encoding"

ENCODED: Final = "encoded"
"""Column of a file's batches that has `Encoded.values`, beside the values themselves."""


class Kind(Enum):
    """What a converter's columns are, by which it goes with a format or not."""

    BYTES = "bytes"
    """``binary`` without a schema."""

    TEXT = "text"
    """``string`` without a schema."""

    JSON = "JSON"
    """``pa.json_()`` without a schema."""

    TYPED = "typed"
    """Any type, with a schema."""


ANY_KIND: Final = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class Schema:
    """What describes a column's values beyond their Arrow type.  Equal schemas share a file.

    A converter whose schemas are compatible in more cases than equality derives a class of its
    own from this one, still plain data.

    Attributes:
        text: The schema, in a form in which equal schemas have equal texts.
        version: Its number in a registry, None without one.
        encoding: How the values are encoded under it, such as ``avro``: the column is ``binary``
            then, and nothing has been decoded.  Empty where the Arrow type says it all.
        name: What the schema is called, None where it has no name.
    """

    text: str
    version: int | None = None
    encoding: str = ""
    name: str | None = None

    def on(self, field: pa.Field) -> pa.Field:
        """Return *field* with this schema among its metadata, where `schema_of` finds it."""
        version = {} if self.version is None else {_VERSION: str(self.version)}
        return field.with_metadata({_TEXT: self.text, _ENCODING: self.encoding, **version})

    def takes(self, other: "Schema") -> bool:
        """Whether values under *other* can be brought under this schema without a loss."""
        return (self.text, self.encoding) == (other.text, other.encoding)


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that cannot be stored, and why, in the three parts of an error.

    Attributes:
        row: Its row in the column or batch at hand, counted from 0.
        what: What is wrong with it.
        why: The reason; may be empty.
        do: What the operator can do about it; may be empty.
        by: The Java class that would complain in a Connect worker; empty for that of the stage.
    """

    row: int
    what: str
    why: str = ""
    do: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Values as their producer encoded them, for formats that keep values so.

    Attributes:
        of: The values that are encoded; those of a column that has been changed are others.
        values: ``binary``, one row per row of *of*.
        schema: What they are encoded under; its ``encoding`` says how.
    """

    of: pa.Array
    values: pa.BinaryArray
    schema: Schema


@dataclass(frozen=True, slots=True)
class Column:
    """Values under one schema.

    Attributes:
        values: One row per row of what was converted; null where it was null, and where it is bad.
        schema: What they are under, None where the Arrow type says it all.
        bad: The rows that could not be converted, in rising order.
        encoded: The same values as they came, where a format may make use of it.
    """

    values: pa.Array
    schema: Schema | None = None
    bad: tuple[Bad, ...] = ()
    encoded: Encoded | None = None

    @property
    def kind(self) -> Kind:
        """What a format must take to hold it."""
        if self.schema is not None:
            return Kind.TYPED
        if isinstance(self.values.type, pa.JsonType):
            return Kind.JSON
        return Kind.TEXT if pa.types.is_string(self.values.type) else Kind.BYTES


def known_times(timestamps: pa.Int64Array) -> pa.Int64Array:
    """Return *timestamps*, null for `NO_TIMESTAMP`."""
    lowest = pc.min(timestamps).as_py()
    if lowest is None or lowest > NO_TIMESTAMP:  # as most are
        return timestamps
    return pc.if_else(pc.equal(timestamps, NO_TIMESTAMP), pa.scalar(None, pa.int64()), timestamps)


def bad_where(wrong: pa.BooleanArray, what: str, why: str = "", do: str = "") -> tuple[Bad, ...]:
    """Return the rows where *wrong* is true, all bad for the same reason."""
    return tuple(Bad(row, what, why, do) for row in pc.indices_nonzero(wrong).to_pylist())


def all_bad(values: pa.Array, what: str, why: str = "", do: str = "") -> Column:
    """Return a ``binary`` column of nulls; each of *values* but null is bad for the same reason."""
    return Column(
        pa.nulls(len(values), pa.binary()), bad=bad_where(values.is_valid(), what, why, do)
    )


def row_by_row(
    values: Iterable[Any], convert: Callable[[Any], Any], kind: pa.DataType, what: str, do: str = ""
) -> Column:
    """Return a column of what *convert* returns for each value, for which Arrow has no function.

    Args:
        values: Python values; None stays null, and is not converted.
        convert: Returns what `pyarrow.array` accepts as *kind*; its ``ValueError`` says why a row
            is bad.
        kind: The column's type.
        what: What is wrong with a bad row.
        do: What the operator can do about it.
    """
    found: list[Any] = []
    bad: list[Bad] = []
    for row, value in enumerate(values):
        made = None
        if value is not None:
            try:
                made = convert(value)
            except ValueError as error:
                bad.append(Bad(row, what, str(error), do))
        found.append(made)
    return Column(pa.array(found, kind), bad=tuple(bad))


def schema_of(field: pa.Field) -> Schema | None:
    """Return what `Schema.on` put into *field*, None where there is nothing."""
    found = field.metadata or {}
    if _TEXT not in found:
        return None
    version = found.get(_VERSION)
    return Schema(
        found[_TEXT].decode(),
        None if version is None else int(version),
        found.get(_ENCODING, b"").decode(),
    )


def pairs(
    left: Iterable[pa.RecordBatch], right: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch | None, pa.RecordBatch | None]]:
    """Yield rows of both streams in pairs of equal length, never empty.

    Where one stream ends first, the last pair is None for it, and rows of the other.  No batch is
    read before its rows are due, so a caller may stop at the first difference.

    Memory: one batch of each.
    """
    lefts, rights = iter(left), iter(right)
    mine = other = None
    while True:
        mine, other = rest_of(mine, lefts), rest_of(other, rights)
        if mine is None or other is None:
            if mine is not other:
                yield mine, other
            return
        count = min(len(mine), len(other))
        yield mine.slice(0, count), other.slice(0, count)
        mine, other = mine.slice(count), other.slice(count)


def rest_of(
    rest: pa.RecordBatch | None, batches: Iterator[pa.RecordBatch]
) -> pa.RecordBatch | None:
    """Return *rest*, or the next batch that has a row where it has none; None at the end."""
    while rest is None or not len(rest):
        rest = next(batches, None)
        if rest is None:
            return None
    return rest


Item = TypeVar("Item")

DEPTH: Final = 2
"""Items read ahead: what this adds to memory, beside the one the thread has in hand."""

_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class _End:
    """The source has no more items, or has failed."""

    error: BaseException | None


def _is_never_last(_item: object) -> bool:
    return False


class Prefetch(Generic[Item]):
    """Reads a source ahead in a thread of its own; a context manager that ends it.

    Whoever uses the items reads the first one: a source without a second one needs no thread.

    Args:
        source: Exhausted in the thread, unless *is_last* says of its first item that it has no
            more.
        depth: Items that may wait; 0 for a source that whoever uses the items reads to its end.
    """

    def __init__(
        self,
        source: Iterable[Item],
        depth: int = DEPTH,
        *,
        is_last: Callable[[Item], bool] = _is_never_last,
    ) -> None:
        self._source, self._depth, self._is_last = source, depth, is_last
        self._read: queue.Queue[Item | _End] = queue.Queue(depth)
        self._left = threading.Event()
        self._thread: threading.Thread | None = None

    def __iter__(self) -> Iterator[Item]:
        """Yield the items; raise what the source raised."""
        items = iter(self._source)
        if not self._depth:
            yield from items
            return
        for first in items:
            if not self._is_last(first):
                self._thread = threading.Thread(
                    target=self._run, args=(items,), name="read-ahead", daemon=True
                )
                self._thread.start()
            yield first
            break
        if self._thread is None:
            return
        while not isinstance(found := self._read.get(), _End):
            yield found
        if found.error is not None:
            raise found.error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
        if self._thread is not None:
            self._thread.join()
        elif isinstance(self._source, Generator):
            self._source.close()

    def _run(self, items: Iterator[Item]) -> None:
        end = _End(None)
        try:
            for item in items:
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001  (raised where the items are used)
            end = _End(error)
        finally:
            if isinstance(self._source, Generator):
                self._source.close()
        self._put(end)

    def _put(self, item: Item | _End) -> bool:
        """Hand *item* over; False if nobody waits for it any more."""
        while not self._left.is_set():
            try:
                self._read.put(item, timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False


class ConflictError(Exception):
    """Two streams hold different records at one offset."""

    def __init__(self, earlier: int, later: int, offset: int) -> None:
        super().__init__(earlier, later, offset)
        self.earlier, self.later, self.offset = earlier, later, offset


def merge_by_offset(parts: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, int]:
    """Return the rows of *parts* by offset, each once, and how many there were twice."""
    filled = [part for part in parts if len(part)] or list(parts[:1])
    if len(filled) == 1:
        return filled[0], 0
    batch = pa.concat_batches(filled)
    order = pc.sort_indices(batch["offset"])  # stable: of the same offset the earlier part is first
    rows = batch.take(order)
    offsets = rows["offset"]
    again = pc.indices_nonzero(pc.equal(offsets[1:], offsets[:-1]))  # each names the one before
    if not len(again):
        return rows, 0
    repeats, firsts = rows.take(pc.add(again, pa.scalar(1, again.type))), rows.take(again)
    if not repeats.equals(firsts):
        at = next(
            n for n in range(len(again)) if not repeats.slice(n, 1).equals(firsts.slice(n, 1))
        )
        origin = pa.concat_arrays(
            [pa.repeat(pa.scalar(number), len(part)) for number, part in enumerate(parts)]
        ).take(order)
        row = again[at].as_py()
        raise ConflictError(origin[row].as_py(), origin[row + 1].as_py(), offsets[row].as_py())
    is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(offsets[1:], offsets[:-1])])
    return rows.filter(is_first), len(again)
