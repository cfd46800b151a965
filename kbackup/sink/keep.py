"""Store a file without ever replacing records with fewer records.

A rerun writes the same key again: with the same records, or, where the first run closed a short
last file, with more.  What is already there is replaced only by a superset of its records.

A compacted topic loses records between two runs.  Where the first run stored a file and died
before it committed, the second reads fewer records of the same offsets, so its file ends later:
neither file contains the other, and both belong to one topic.  Both are then stored as one.
"""

import hashlib
import io
import json
import logging
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import formats
from kbackup.clock import Clock
from kbackup.errors import (
    CorruptObjectError,
    ObjectKeyError,
    ObjectNotFoundError,
    RefusedError,
    StoreError,
    TopicChangedError,
)
from kbackup.files import SPOOL_BYTES, Spool
from kbackup.formats.block_index import BlockIndex
from kbackup.naming import OFFSET_WIDTH, DatedLayout, Layout, ObjectKey, View
from kbackup.pipeline.rows import RecordsDigest
from kbackup.pipeline.write import (
    NO_RECORDS,
    ClosedFile,
    Index,
    grown,
    inner_metadata,
    merge_logs,
    tallied_to,
)
from kbackup.records import (
    ConflictError,
    Facts,
    TopicIdentity,
    TopicPartition,
    merge_by_offset,
    pairs,
    rest_of,
)
from kbackup.stores import ObjectHead, Seals, Store, StoredObject, with_keyed


def merge_files(
    file: ClosedFile, ours: Iterable[pa.RecordBatch], theirs: Iterable[pa.RecordBatch]
) -> ClosedFile | None:
    """Return a file with the records of both, each once; None where one offset has two records.

    Memory: one batch of each, and 32 MiB of the file.

    Args:
        file: Full records; it stays as it is.
        ours: Its records, ``records.SCHEMA``.
        theirs: Those of the object under its key.

    Returns:
        What to store; its body is the caller's to close.
    """
    body, facts, digest = Spool(SPOOL_BYTES), NO_RECORDS, RecordsDigest()
    writer = file.spec.open_format().writer(body, file.spec.view, file.spec.options)
    try:
        for batch in _merged(iter(ours), iter(theirs)):
            writer.write(batch)
            facts = grown(facts, batch)
            digest.add(batch)
    except ConflictError:
        writer.close({})
        body.close()
        return None
    writer.close(inner_metadata(facts, file.where, file.identity))
    own = replace(facts, sha256=body.sha256, digest=digest.text)
    return replace(file, body=body, facts=own)


def _merged(
    left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of both by offset, each once."""
    mine, other = rest_of(None, left), rest_of(None, right)
    while mine is not None and other is not None:
        limit = min(rows["offset"][len(rows) - 1].as_py() for rows in (mine, other))
        counts = [pc.sum(pc.less_equal(rows["offset"], limit)).as_py() for rows in (mine, other)]
        yield merge_by_offset([mine.slice(0, counts[0]), other.slice(0, counts[1])])[0]
        mine = rest_of(mine.slice(counts[0]), left)
        other = rest_of(other.slice(counts[1]), right)
    for rest, stream in ((mine, left), (other, right)):
        if rest is not None:
            yield rest
            yield from stream


_LAST_DIGITS: Final = "999"
"""What an offset begins with that may be followed by a longer one, whose name comes first."""


def from_on(store: Store, layout: Layout, key: str) -> Iterator[tuple[StoredObject, ObjectKey]]:
    """Yield the objects that begin where *key* does or later, with that one, in that order.

    The listing begins there: what is before costs nothing, unless offsets have so few digits, or
    are so near to one digit more, that names have another order.  Nothing is yielded in a dated
    layout.

    Args:
        key: An object's, whether or not it is there.

    Raises:
        ObjectKeyError: If the layout has no such key.
    """
    first = layout.parse(key)
    if not layout.has_folders:
        return
    after = key.removesuffix(f"{first.view}{first.extension}")
    prefix = after.rstrip(string.digits)
    digits = after[len(prefix) :]
    is_ordered = len(digits) >= OFFSET_WIDTH and not digits.startswith(_LAST_DIGITS)
    found = (
        (one, parts)
        for one, parts in named(store, layout, prefix, after if is_ordered else "")
        if one.key == key or (layout.is_main(parts) and parts.start_offset >= first.start_offset)
    )
    yield from found if is_ordered else sorted(found, key=lambda each: each[1].start_offset)


def named(
    store: Store, layout: Layout, prefix: str, after: str = ""
) -> Iterator[tuple[StoredObject, ObjectKey]]:
    """Yield what lies below *prefix* and has a name of *layout*, with what the name says."""
    for one in store.list(prefix, after=after):
        try:
            parts = layout.parse(one.key)
        except ObjectKeyError:
            continue
        yield one, parts


_log = logging.getLogger(__name__)


def keep(store: Store, file: ClosedFile, layout: Layout) -> Facts:
    """Make sure that *file*'s records are stored under its key, and return what is there now.

    An object of values never grows into the next one, which another run may have stored by now.
    Keys and headers whose values are not there hold nothing: shorter ones replace them.

    Returns:
        The facts of the object under the key: this file's, or those of a longer object that was
        there already, or of one with the records of both where compaction has taken some.

    Raises:
        TopicChangedError: If the object that is there holds other records: the topic was
            recreated, or the bucket holds another cluster's backup.
        RefusedError: If an object of values that is there goes on beyond the cut, or the file has
            records of the object that follows it.
        StoreError: If the store refuses, or cannot have such a key.
    """
    head, wanted = None, file
    try:
        while not _put(store, wanted, head):
            head = store.head(file.key)
            while head is not None:
                longer = _longer(store, wanted, head)
                if isinstance(longer, ClosedFile):
                    _close(wanted, file)
                    wanted = longer
                elif longer is not None:
                    if not _goes_on(file, longer):
                        _log.warning("%s holds these records and more; it is kept", file.key)
                        return longer
                    if not _lacks_values(store, layout, file):
                        raise _cut_too_short(file, "another run")
                before, head = head, store.head(file.key)
                if head == before:  # else another run put more while this one compared
                    _check_next(store, layout, file)
                    break
        return wanted.facts
    finally:
        _close(wanted, file)


def _close(united: ClosedFile, file: ClosedFile) -> None:
    """Close a file that was made here; *file* itself belongs to the caller."""
    if united is not file:
        united.body.close()


def _put(store: Store, file: ClosedFile, replaced: ObjectHead | None) -> bool:
    """Put the file in place of that object, or of none; return whether it was stored."""
    try:
        return store.put(
            file.key,
            file.body,
            sha256=file.facts.sha256,
            metadata=file.metadata,
            if_absent=replaced is None,
            if_match=None if replaced is None else replaced.etag,
        )
    except ObjectKeyError as error:  # nothing is left out: the partition cannot go on
        raise StoreError(error.what, error.why, error.do, key=file.key) from error


def _longer(store: Store, file: ClosedFile, head: ObjectHead) -> Facts | ClosedFile | None:
    """Return what is known of the object at *head* if it holds more than *file*, else None."""
    # where each holds records that the other lacks, a file with all of them is returned
    if file.identity.conflicts(TopicIdentity.from_metadata(head.metadata)):
        raise _other_topic(file, "it was written from a topic with another id")
    there = Facts.from_metadata(head.metadata)
    if isinstance(store, Seals) and not store.can_read(head.metadata):
        _check_unread(store, file, there)
        return None
    if there is None:
        _log.warning("%s exists, written by another tool; comparing it", file.key)
    if there == file.facts:
        return None
    shorter = _common_records(store, file, is_foreign=there is None)
    if shorter == "both":
        return _united(store, file)
    if there is None:
        if shorter == "ours" and file.spec.view is not View.RECORD:
            _check_room(store, file)
        return file.facts if shorter == "ours" else None
    return there if there.covers(file.facts) and shorter != "theirs" else None


def _check_unread(store: Seals, file: ClosedFile, there: Facts | None) -> None:
    """Check by its digest that an object that cannot be read holds the first records of *file*."""
    if there is not None and there.first_offset == file.facts.first_offset:
        mine: Facts | None = file.facts
        if there.last_offset < file.facts.last_offset and file.spec.view is View.RECORD:
            mine = _facts_to(file, there.last_offset)
        if (
            mine is not None
            and (mine.records, mine.last_offset) == (there.records, there.last_offset)
            and mine.digest is not None
            and there.digest in with_keyed(store, [mine.digest])
        ):
            return
    raise RefusedError(
        f"{file.key} already exists, and it is not known whether these records are in it",
        "it is encrypted for others, and its offsets, its count and its digest are not these",
        "run once with encryption.identity.file, so that they can be compared",
        key=file.key,
    )


def _facts_to(file: ClosedFile, last_offset: int) -> Facts | None:
    """Return what is known of *file*'s records up to an offset; None where there is none."""
    if file.spec.stores_batches:
        return tallied_to(file, last_offset)
    facts, digest = NO_RECORDS, RecordsDigest()
    file.body.seek(0)
    for batch in _rows(file, file.body):
        rows = batch.filter(pc.less_equal(batch["offset"], last_offset))
        if len(rows):
            facts = grown(facts, rows)
            digest.add(rows)
    return replace(facts, digest=digest.text) if facts.records else None


def _common_records(store: Store, file: ClosedFile, *, is_foreign: bool) -> str:
    """Compare row by row; return which is shorter: "ours", "theirs", "neither", or "both"."""
    # both where compaction has taken some; rows without offsets that differ are another topic's
    file.body.seek(0)
    ours = _rows(file, file.body)
    with store.open(file.key) as body:
        for mine, other in pairs(ours, _rows(file, body)):
            if mine is None or other is None:
                return "ours" if mine is None else "theirs"
            if not mine.equals(other) and not (is_foreign and _says_the_same(mine, other)):
                if file.spec.view is View.RECORD:
                    return "both"
                raise _other_rows(file)
    return "neither"


def _says_the_same(mine: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """Whether two batches of JSON are equal but for key order and how numbers are spelt."""
    # the connector writes the keys of a schemaless object in the order of a Java hash map
    columns = zip(mine.columns, other.columns, strict=True)
    try:
        return all(_json(left) == _json(right) for left, right in columns)
    except (ValueError, RecursionError):  # no JSON, or JSON too deep to compare
        return False


def _json(column: pa.Array) -> list[Any]:
    texts = column.storage if isinstance(column, pa.ExtensionArray) else column
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        return texts.to_pylist()  # type: ignore[no-any-return]
    return [None if text is None else json.loads(text) for text in texts.to_pylist()]


def _united(store: Store, file: ClosedFile) -> ClosedFile:
    file.body.seek(0)
    with store.open(file.key) as body:
        if not _is_of(file, formats.own_metadata(file.spec.format, body)):
            raise _other_topic(file, "it was written under another name")
        body.seek(0)
        if file.spec.stores_batches:
            found = merge_logs(file, body)
        else:
            found = merge_files(file, _rows(file, file.body), _rows(file, body))
    if found is None:
        raise _other_topic(file, "it holds other records")
    return found


def _goes_on(file: ClosedFile, there: Facts) -> bool:
    """Whether values that are there go on behind the cut, so that the next one has them too."""
    is_behind = there.last_offset >= file.cut.span.end_offset
    return is_behind and file.spec.view is not View.RECORD


def _lacks_values(store: Store, layout: Layout, file: ClosedFile) -> bool:
    """Whether it is keys or headers beside which nobody has stored values."""
    if file.is_main or not layout.has_folders:
        return False
    # they hold no record then, and what replaces them loses none, however short it is
    start = file.facts.first_offset
    mains = (parts for _, parts in from_on(store, layout, file.key) if layout.is_main(parts))
    return next((parts.start_offset for parts in mains), start + 1) > start


def _check_next(store: Store, layout: Layout, file: ClosedFile) -> None:
    """Check that values that are to replace a shorter object end before the next one begins."""
    if file.spec.view is View.RECORD:
        return
    for one, parts in from_on(store, layout, file.key):
        if file.facts.first_offset < parts.start_offset <= file.facts.last_offset:
            raise RefusedError(
                f"{file.key} would get records that are in {one.key}",
                "another run has stored what follows, and a restore could not tell that rows of "
                "values are there twice",
                "let one run at a time back up a topic, then run again: it continues after what is "
                "stored",
                key=file.key,
            )


def _check_room(store: Store, file: ClosedFile) -> None:
    """Check that the rows of another tool's object, which begins as *file* does, are in its cut."""
    with store.open(file.key) as body:
        rows = sum(map(len, _rows(file, body)))
    facts, end = file.facts, file.cut.span.end_offset
    has_gaps = facts.last_offset - facts.first_offset + 1 != facts.records
    if has_gaps or file.cut.files > 1 or facts.first_offset + rows > end:
        raise _cut_too_short(file, "another tool")


def _cut_too_short(file: ClosedFile, who: str) -> RefusedError:
    return RefusedError(
        f"{file.key}, written by {who}, holds more records than this "
        f"rotation's {file.facts.records}",
        "the rest of them would be stored again in the next objects, and a restore could not tell: "
        "rows of values do not store their offsets",
        "set flush.size, and rotation by bytes or time, so high that one file holds them all",
        key=file.key,
    )


def _is_of(file: ClosedFile, own: Mapping[str, str]) -> bool:
    wanted = inner_metadata(file.facts, file.where, file.identity)
    return all(own.get(name) == wanted[name] for name in ("topic", "partition", "first-offset"))


def _other_topic(file: ClosedFile, why: str) -> TopicChangedError:
    return TopicChangedError(
        f"{file.key} already exists and belongs to another topic: {why}",
        "the topic was deleted and created again, or this is another cluster's backup",
        "choose another topics.dir or bucket; the existing object is left as it is",
        key=file.key,
    )


def _other_rows(file: ClosedFile) -> TopicChangedError:
    return TopicChangedError(
        f"{file.key} already exists and holds other records",
        "the topic was deleted and created again, this is another cluster's backup, or compaction "
        "has removed records since the object was stored, which rows without offsets do not show",
        "choose another topics.dir or bucket; the existing object is left as it is",
        key=file.key,
    )


def _rows(file: ClosedFile, body: object) -> Iterator[pa.RecordBatch]:
    extension = file.spec.extension()
    return file.spec.open_format().read(body, file.spec.view, extension, file.spec.options)  # type: ignore[arg-type]


_DAYS_MOST: Final = 31
"""Days that are listed one by one; where more have passed, all of the layout is listed at once."""


# Files that are stored under the date of their upload have an index each, and one pointer for all.
# An index is there before its file is, and the pointer names an index whose file is there.  Neither
# is needed to restore anything, nor to go on.


@dataclass(slots=True)
class UploadDates:
    """The dates under which a partition's files are stored.

    A file that a run stored and did not commit keeps its date when it is stored again, so that
    its records do not get a second object after midnight.

    Attributes:
        last_key: The last object that is known to be committed; None where that is not known.
    """

    store: Store
    layout: DatedLayout
    where: TopicPartition
    clock: Clock
    last_key: str | None = None
    _known: dict[int, str] | None = field(default=None, init=False)

    def of(self, start_offset: int) -> str:
        """Return the date of the file that begins at *start_offset*."""
        if self._known is None:
            self._known = self._stored()
        return self._known.get(start_offset) or self.layout.upload(self._now())

    def _stored(self) -> dict[int, str]:
        """Return the dates of what may not be committed yet, the earliest of each offset."""
        found: dict[int, str] = {}
        for prefix in self._prefixes():
            for _, parts in named(self.store, self.layout, prefix):
                if (parts.topic, parts.partition) == (self.where.topic, self.where.partition):
                    found.setdefault(parts.start_offset, parts.encoded_partition)
        return found

    def _prefixes(self) -> list[str]:
        """Return what to list: the days since the last committed object, or everything."""
        today, since = self._now().date(), self._last_date()
        if since is None or not 0 <= (today - since).days < _DAYS_MOST:
            return [self.layout.prefix()]
        days = [since + timedelta(days=day) for day in range((today - since).days + 1)]
        topic, partition = self.where.topic, self.where.partition
        found = (self.layout.day_prefix(day, topic, partition) for day in days)
        return list(dict.fromkeys(found))

    def _last_date(self) -> date | None:
        try:
            parts = self.layout.parse(self.last_key or "")
        except ObjectKeyError:
            return None
        return self.layout.upload_day(parts.encoded_partition)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.ms() / 1000, UTC)


def keep_indexed(store: Store, file: ClosedFile, layout: Layout) -> Facts:
    """Do what `keep` does, and see to it that the file is never there without an index.

    Where the file replaces one with fewer records, its index follows: until then, the index that
    is there says of how many bytes it is, which shows that it is of the other one.
    """
    assert file.index is not None  # noqa: S101  (callers chose such files)
    is_there = _put_index(store, file.index, if_absent=True)
    facts = keep(store, file, layout)
    if facts == file.facts and not is_there:
        _put_index(store, file.index)
    return facts


def write_pointer(store: Store, layout: DatedLayout, where: TopicPartition, index: Index) -> None:
    """Name *index* as the newest of its partition."""
    key = layout.pointer(where.topic, where.partition)
    _put_index(store, Index(key, index.key.encode()))


def read_pointer(store: Store, layout: DatedLayout, where: TopicPartition) -> int | None:
    """Return the first offset of the object that the pointer of a partition leads to.

    None where there is no pointer, as before a first run, or it leads nowhere: then a warning
    says so.
    """
    key = layout.pointer(where.topic, where.partition)
    try:
        with store.open(key) as body:
            index_key = body.read().decode().strip()
    except (ObjectNotFoundError, UnicodeDecodeError):
        return None
    try:
        parts = layout.parse(index_key)
        with store.open(index_key) as body:
            BlockIndex.from_bytes(body.read(), parts.start_offset)
    except (ObjectKeyError, ObjectNotFoundError, CorruptObjectError) as error:
        _log.warning("%s points nowhere: %s", key, error)
        return None
    if (parts.topic, parts.partition) != (where.topic, where.partition):
        _log.warning("%s points to another partition: %s", key, index_key)
        return None
    return parts.start_offset


def _put_index(store: Store, index: Index, *, if_absent: bool = False) -> bool:
    digest = hashlib.sha256(index.body).hexdigest()
    return store.put(
        index.key, io.BytesIO(index.body), sha256=digest, metadata={}, if_absent=if_absent
    )
