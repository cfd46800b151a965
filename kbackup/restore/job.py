"""The job and the units of a restore's tasks: plain data that crosses processes.

With `SAME` each partition goes to the one of its number, and the restore's group keeps one
position in each.  With the other maps several partitions of the backup may go to one of the target,
or one to all of them; then each partition of the backup has a group of its own, so that positions
are kept by source and target.

Source: Apache Kafka, ``org.apache.kafka.common.utils.Utils.murmur2`` and ``toPositive``;
``BuiltInPartitioner.partitionForKey``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import formats
from kbackup.batches import Kept
from kbackup.catalog.listing import EVERYTHING, FileSet, Window, object_bytes
from kbackup.clock import Clock, SystemClock
from kbackup.errors import KbackupError, counted, form
from kbackup.kafka import Connection, Position
from kbackup.naming import Layout
from kbackup.pipeline.views import ReadOptions
from kbackup.plugins import Step
from kbackup.records import TopicPartition
from kbackup.runs.position import Lane, RestorePosition
from kbackup.stores import StoreSettings

SKIPPED_MOST: Final = 1000
"""Bad records and objects that the summary of a restore that follows names; it counts them all."""


KEEPS_CODECS: Final = "producer"
"""The ``compression.type`` of a topic that keeps batches as they come."""

_CODECS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The others, and the bits of batches that such a topic keeps."""

SAFE_MESSAGE_BYTES: Final = 2**20
"""What each topic takes unless ``max.message.bytes`` is set: its default is 12 bytes more."""


@dataclass(frozen=True, slots=True)
class RestoreJob:
    """One run's settings for its tasks.

    Attributes:
        on_error: ``fail``, ``ignore`` or ``log``: what a bad record or object does.
        error_topic: Where what cannot be read is written to; None for nowhere.
        max_record_bytes: Larger records are bad records.
        offset_header: A header that keeps the offset of the backup; None if there is none.
        is_renamed: Whether a transform is to see the new name of a topic from the beginning.
        max_records_per_second: What all tasks together may write; None for no limit.
        max_bytes_per_second: The same in bytes.
        schema_ids: By topic of the backup and part, "key" or "value": the id that each of its
            schemas has in the target's registry.  Other ids stay as they are; a topic is left out
            where no registry is given.
        visit: Which visit of a run that follows this is, from 1; 0 where the run does not follow.
    """

    run: str
    kafka: Connection
    store: StoreSettings
    reading: ReadOptions
    group: str
    exactly_once: bool = True
    on_error: str = "fail"
    error_topic: str | None = None
    max_record_bytes: int = 2**28
    offset_header: str | None = None
    transforms: tuple[Step, ...] = ()
    is_renamed: bool = False
    max_records_per_second: int | None = None
    max_bytes_per_second: int | None = None
    schema_ids: Mapping[str, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    visit: int = 0
    layout: Layout = field(default_factory=Layout)
    clock: Clock = field(default_factory=SystemClock)

    @property
    def committer(self) -> str:
        """The name under which positions are committed, so that no visit counts another's work."""
        return f"{self.run}.{self.visit}" if self.visit else self.run

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit on what may be written in a second."""
        return (self.max_records_per_second, self.max_bytes_per_second) != (None, None)

    def keeps_batches(self, unit: "RestoreUnit") -> bool:
        """Whether stored batches may be written as they are: nothing is changed, or left out.

        What is written at a limited rate, or beside dead letters, goes by records.
        """
        asked = (
            self.transforms, self.schema_ids.get(unit.source.topic), self.error_topic,
            self.offset_header, self.is_limited,
        )  # fmt: skip
        is_plain = unit.window.is_everything and unit.route is None and len(unit.lanes) == 1
        return self.exactly_once and is_plain and has_batches(unit.sets) and not any(asked)

    def reads(self, topic: str) -> ReadOptions:
        """Return how objects are read for a target."""
        return replace(self.reading, topic=topic, salvages=self.on_error != "fail")


@dataclass(frozen=True, slots=True)
class Route:
    """How a unit takes its share of records, where transforms choose a topic for each of them.

    *topic* is what these see at first.  If it *counts_rest*, it counts the records that have no
    topic, because they are bad or left out.
    """

    topic: str
    counts_rest: bool = True


@dataclass(frozen=True, slots=True)
class RestoreUnit:
    """One partition's share of a restore.

    Attributes:
        lanes: The partitions to write to, of one topic.  Of several, which together are all of the
            topic, a record's key chooses one; the position is committed in all of them together,
            and the first one's is asked for.
        begins: The restore begins at its position, which has to be committed before anything is
            written.
        before: Digest of the value sets that are done.
        max_message_bytes: Largest record the target takes; None for what the broker says.
        group: Keeps the positions of this source alone; None for the run's group.
        route: How records are chosen that go to this target; None where all do.
        compression: The target's ``compression.type``.
    """

    position: RestorePosition
    lanes: tuple[Lane, ...]
    sets: tuple[FileSet, ...] = ()
    begins: bool = False
    before: str = ""
    max_message_bytes: int | None = None
    window: Window = EVERYTHING
    group: str | None = None
    writers: int = 1
    route: Route | None = None
    compression: str = KEEPS_CODECS

    @property
    def target(self) -> TopicPartition:
        """The partition to write to; of several the first."""
        return self.lanes[0].target

    @property
    def source(self) -> TopicPartition:
        """The partition that was backed up."""
        return self.position.source.where

    @property
    def committed(self) -> Position | None:
        """What the group's position in the target was when that was found out."""
        return self.lanes[0].committed

    @property
    def is_translated(self) -> bool:
        """Whether a row says which offsets its records have: they are all of one partition."""
        return self.group is None and len(self.lanes) == 1

    @property
    def kept(self) -> Kept:
        """Which batches the target takes as they are stored."""
        codec = None if self.compression == KEEPS_CODECS else _CODECS.get(self.compression, -1)
        return Kept(self.max_message_bytes or SAFE_MESSAGE_BYTES, codec)

    @property
    def counts_rest(self) -> bool:
        """Whether it counts the records that go nowhere."""
        return self.route is None or self.route.counts_rest

    @property
    def size(self) -> int:
        """Bytes of its objects."""
        return object_bytes(self.sets)

    def positions(self) -> dict[TopicPartition, Position]:
        """Return what to commit in each of its partitions."""
        return {lane.target: self.position.position(lane) for lane in self.lanes}

    def at(self, **changes: Any) -> Self:
        """Return it with these changes of its position."""
        return replace(self, position=replace(self.position, **changes))

    def begun(self) -> Self:
        """Return it once its beginning is committed, where it had one to commit."""
        if not self.begins:
            return self
        lanes = tuple(replace(lane, committed=self.position.position(lane)) for lane in self.lanes)
        return replace(self, begins=False, lanes=lanes)

    def left(self, files: FileSet, error: KbackupError, unread: int | None) -> KbackupError:
        """Return the error of a set of whose records so many, if that is known, are left out."""
        place = {**error.place, "key": files.id}
        if unread is None or not (self.window.is_everything and self.counts_rest):
            said = "how many of its records are left out is not known"
        else:
            said = f"{counted(unread, 'record')} of it {form(unread, 'is', 'are')} left out"
            place["records"] = unread
        why = "; ".join(filter(None, (error.why, said)))
        return type(error)(error.what, why, error.do, **place)


def has_batches(sets: Sequence[FileSet]) -> bool:
    """Whether any object holds record batches."""
    forms = {file.format for files in sets for file in files.files}
    return any(formats.by_name(form).traits.stores_batches for form in forms)


_SEED: Final = 0x9747B28C

_M: Final = 0x5BD1E995

_MASK: Final = 0xFFFFFFFF

_POSITIVE: Final = 0x7FFFFFFF

_WORD: Final = 4
"""Bytes that are mixed in at a time."""

_COLUMN_BYTES: Final = 256
"""Keys up to this length are hashed in columns, those of one length together."""


def partitions_of(keys: pa.Array, count: int) -> pa.Array:
    """Return the partition of each key, ``int32``, as Kafka's Java producer would choose it.

    There are *count*; of a key that is null it is null.
    """
    unique = keys.dictionary_encode()
    hashes = murmur2(unique.dictionary)
    positive = pc.bit_wise_and(hashes, _word(_POSITIVE))
    whole = pc.multiply(pc.divide(positive, _word(count)), _word(count))
    return pc.subtract(positive, whole).cast(pa.int32()).take(unique.indices)


def murmur2(keys: pa.Array) -> pa.Array:
    """Return the hash of each key: ``uint32``, none of *keys* is null."""
    lengths = pc.binary_length(keys)
    numbers = pa.array(range(len(keys)), pa.int64())
    rows, hashes = [pa.array([], pa.int64())], [pa.array([], pa.uint32())]
    for length in pc.unique(lengths).to_pylist():
        is_one = pc.equal(lengths, length)
        group = keys.filter(is_one)
        rows.append(numbers.filter(is_one))
        hashes.append(
            _of_length(group, length)
            if length <= _COLUMN_BYTES
            else pa.array(map(_of_key, group.to_pylist()), pa.uint32())
        )
    return pa.concat_arrays(hashes).take(pc.sort_indices(pa.concat_arrays(rows)))


def _of_length(keys: pa.Array, length: int) -> pa.Array:
    found = pa.repeat(_word(_SEED ^ length), len(keys))
    end = length // _WORD * _WORD
    for start in range(0, end, _WORD):
        word = _times_m(_words(pc.binary_slice(keys, start, start + _WORD)))
        word = _times_m(_shifted(word, 24))
        found = pc.bit_wise_xor(_times_m(found), word)
    if end < length:
        padding = b"\0" * (_WORD - (length - end))
        rest = pc.binary_slice(keys, end, length)
        found = _times_m(
            pc.bit_wise_xor(found, _words(pc.binary_join_element_wise(rest, padding, b"")))
        )
    return _shifted(_times_m(_shifted(found, 13)), 15)


def _words(chunks: pa.Array) -> pa.Array:
    """Return chunks of four bytes as little-endian numbers."""
    return chunks.cast(pa.binary(_WORD)).view(pa.uint32())


def _shifted(numbers: pa.Array, bits: int) -> pa.Array:
    return pc.bit_wise_xor(numbers, pc.shift_right(numbers, _word(bits)))


def _times_m(numbers: pa.Array) -> pa.Array:
    return pc.multiply(numbers, _word(_M))  # wraps around, as Java's does


def _word(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint32())


def _of_key(key: bytes) -> int:
    """Return the hash of one key, however long it is."""
    found = _SEED ^ len(key)
    end = len(key) // _WORD * _WORD
    for word in memoryview(key[:end]).cast("I"):
        mixed = word * _M & _MASK
        mixed = (mixed ^ mixed >> 24) * _M & _MASK
        found = found * _M & _MASK ^ mixed
    if end < len(key):
        found = (found ^ int.from_bytes(key[end:], "little")) * _M & _MASK
    found = (found ^ found >> 13) * _M & _MASK
    return found ^ found >> 15


SAME, MODULO, KEY = "same", "modulo", "key"

ORDER = {
    MODULO: "records of one partition of the backup stay in order; those of several that share a "
    "partition of the target are mixed",
    KEY: "records of one key stay in order if they come from one partition of the backup; a record "
    "without a key goes to partition offset modulo {count}",
}
"""What order is promised, for the plan."""


@dataclass(frozen=True, slots=True)
class PartitionMap:
    """How partitions of a backup become partitions of a target.

    Attributes:
        how: ``same``, ``modulo`` (the number modulo the target's count), or ``key`` (by hash, as
            Kafka's Java producer does).
    """

    how: str
    group: str

    @property
    def is_same(self) -> bool:
        """Whether each partition goes to the one of its number."""
        return self.how == SAME

    def name(self, count: int) -> str:
        """Return what tells this map onto *count* partitions from others; empty for ``same``."""
        return "" if self.is_same else f"partition-map {self.how} {count}"

    def group_of(self, partition: int) -> str:
        """Return the group that keeps the positions of a partition of the backup."""
        return self.group if self.is_same else f"{self.group}.{partition}"

    def targets(self, where: TopicPartition, topic: str, count: int) -> list[TopicPartition]:
        """Return where records may go in a topic of so many partitions."""
        if self.how == KEY:
            return [TopicPartition(topic, number) for number in range(count)]
        number = where.partition if self.is_same or not count else where.partition % count
        return [TopicPartition(topic, number)]


def spread(
    batch: pa.RecordBatch, targets: Sequence[TopicPartition]
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yield the records that go to each of *targets* by key, in their order; none is empty.

    These are all partitions of a topic, by number.  A record without a key goes by its offset, so
    that it goes to the same partition whenever the restore is run again.
    """
    count = pa.scalar(len(targets), pa.int64())
    offsets = batch["offset"]
    by_offset = pc.subtract(offsets, pc.multiply(pc.divide(offsets, count), count))
    numbers = pc.coalesce(partitions_of(batch["key"], len(targets)), by_offset.cast(pa.int32()))
    rows = batch.take(pc.sort_indices(numbers))  # stable: each partition's stay in order
    start = 0
    counts = {found["values"]: found["counts"] for found in pc.value_counts(numbers).to_pylist()}
    for number in sorted(counts):
        yield targets[number], rows.slice(start, counts[number])
        start += counts[number]
