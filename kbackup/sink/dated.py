"""Files that are stored under the date of their upload, each with an index and all with a pointer.

An index is there before its file is, and the pointer names an index whose file is there.  Neither
is needed to restore anything: the file alone holds the records, and where a sink goes on the
group's offset and the ledger say.
"""

import hashlib
import io
import logging
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

from kbackup.clock import Clock
from kbackup.errors import CorruptObjectError, ObjectKeyError, ObjectNotFoundError
from kbackup.formats.block_index import BlockIndex
from kbackup.naming import Layout
from kbackup.pipeline.write import ClosedFile, Index
from kbackup.records import Facts, TopicPartition
from kbackup.sink.keep import keep
from kbackup.stores import Store

_log = logging.getLogger(__name__)
_DAYS_MOST: Final = 31
"""Days that are listed one by one; where more have passed, all of the layout is listed at once."""


@dataclass(slots=True)
class UploadDates:
    """The dates under which a partition's files are stored.

    A file that a run stored and did not commit keeps its date when it is stored again, so that
    its records do not get a second object after midnight.

    Attributes:
        store: Where the files are.
        layout: How they are named.
        where: Their partition.
        clock: The time.
        last_key: The last object that is known to be committed; None where that is not known.
    """

    store: Store
    layout: Layout
    where: TopicPartition
    clock: Clock
    last_key: str | None = None
    _known: dict[int, str] | None = field(default=None, init=False)

    def of(self, start_offset: int) -> str:
        """Return the date of the file that begins at *start_offset*.

        Raises:
            StoreError: If the bucket cannot be asked.
        """
        if self._known is None:
            self._known = self._stored()
        return self._known.get(start_offset) or self.layout.upload(self._now())

    def _stored(self) -> dict[int, str]:
        """Return the dates of what may not be committed yet, the earliest of each offset."""
        found: dict[int, str] = {}
        for prefix in self._prefixes():
            for entry in self.store.list(prefix):
                try:
                    parts = self.layout.parse(entry.key)
                except ObjectKeyError:
                    continue
                if (parts.topic, parts.partition) == (self.where.topic, self.where.partition):
                    found.setdefault(parts.start_offset, parts.encoded_partition)
        return found

    def _prefixes(self) -> list[str]:
        """Return what to list: the days since the last committed object, or everything."""
        today, since = self._today(), self._last_date()
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

    def _today(self) -> date:
        return self._now().date()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.ms() / 1000, UTC)


def keep_indexed(store: Store, file: ClosedFile, layout: Layout) -> Facts:
    """Do what `keep` does, and see to it that the file is never there without an index.

    Where the file replaces one with fewer records, its index follows: until then, the index that
    is there says of how many bytes it is, which shows that it is of the other one.

    Raises:
        TopicChangedError: As `keep` does.
        StoreError: If the store refuses.
    """
    assert file.index is not None  # noqa: S101  (callers chose such files)
    is_there = _put(store, file.index, if_absent=True)
    facts = keep(store, file, layout)
    if facts == file.facts and not is_there:
        _put(store, file.index)
    return facts


def point(store: Store, layout: Layout, where: TopicPartition, index: Index) -> None:
    """Name *index* as the newest of its partition.

    Raises:
        StoreError: If the store refuses.
    """
    key = layout.pointer(where.topic, where.partition)
    _put(store, Index(key, index.key.encode()))


def pointed_to(store: Store, layout: Layout, where: TopicPartition) -> int | None:
    """Return the first offset of the object that the pointer of a partition leads to.

    None where there is no pointer, as before a first run, or it leads nowhere: then a warning
    says so.

    Raises:
        StoreError: If the store does not answer.
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
        _log.warning("%s leads nowhere: %s", key, error)
        return None
    if (parts.topic, parts.partition) != (where.topic, where.partition):
        _log.warning("%s leads to another partition: %s", key, index_key)
        return None
    return parts.start_offset


def _put(store: Store, index: Index, *, if_absent: bool = False) -> bool:
    digest = hashlib.sha256(index.body).hexdigest()
    return store.put(
        index.key, io.BytesIO(index.body), sha256=digest, metadata={}, if_absent=if_absent
    )
