"""What another tool, such as a connector, left of a partition: its newest objects, counted.

Such objects say where they begin and, once opened, how many records they hold, but not where they
end.  The group that came with them is believed where the two add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from kbackup import formats
from kbackup.errors import CorruptObjectError
from kbackup.formats import FormatOptions
from kbackup.naming import ObjectKey
from kbackup.records import TopicPartition
from kbackup.sink.held import unlike
from kbackup.stores import Store

OPENED_MOST: Final = 128
"""Objects of a partition that are opened: a cut of the connector rarely has more directories."""

Warnings = tuple[tuple[str, str], ...]
"""Codes and sentences for the operator."""


@dataclass(frozen=True, slots=True)
class Counted:
    """An object that was opened.

    Attributes:
        key: Its key.
        start_offset: Of its first record.
        records: How many it holds.
        directory: Where it is; empty where all objects are in one.
    """

    key: str
    start_offset: int
    records: int
    directory: str = ""

    @property
    def least_end(self) -> int:
        """The lowest offset that can follow its last record: each record has an offset."""
        return self.start_offset + self.records


@dataclass(frozen=True, slots=True)
class Inherited:
    """The objects of a partition whose newest was written by another tool.

    Attributes:
        starts: The start offset of every object.
        counted: The newest ones, the newest first; at least one.
        is_one_directory: All objects are in one directory, so each is a cut of its own.
        cut_records: How many records make a cut, by configuration.
    """

    starts: tuple[int, ...]
    counted: tuple[Counted, ...]
    is_one_directory: bool = True
    cut_records: int = 0

    def start(
        self, where: TopicPartition, committed: int | None, log_start: int
    ) -> tuple[int | None, Warnings]:
        """Return where the backup continues, None for the log's start, and what to say of it.

        No hole may arise.  Where offsets and records do not add up, the newest object is
        written again: the same records give the same object.  Where the log no longer has them,
        the backup continues at the lowest offset that can follow them.

        Args:
            where: For the sentences.
            committed: The group's offset, None without.
            log_start: The first offset that the log still has.

        Raises:
            RefusedError: If the objects hold records that the group has not come to, in several
                directories, and do not show that the same ones would be written again.
        """
        if committed is None:
            return self._without_group(where, log_start)
        totals = accumulate(one.records for one in self.counted)
        for one, total in zip(self.counted, totals, strict=True):
            if total == committed - one.start_offset:
                return committed, ()
            if total > committed - one.start_offset:
                return self._after_group(where, committed, log_start)
        return self._before_group(where, committed, log_start)

    def _without_group(self, where: TopicPartition, log_start: int) -> tuple[int | None, Warnings]:
        if not self.is_one_directory:
            if max(self.starts) >= log_start and not self._are_cuts_from(log_start):
                raise unlike(where, log_start)
            text = (
                f"{where}: the group has no offset, and the bucket's objects do not show where "
                "they end: starting at the beginning"
            )
            return None, (("offset_missing", text),)
        offset, how = self._again(self.counted[0].start_offset, log_start)
        text = f"{where}: the group has no offset; {self._newest()}: {how}"
        return offset, (("offset_missing", text),)

    def _after_group(
        self, where: TopicPartition, committed: int, log_start: int
    ) -> tuple[int, Warnings]:
        """The objects hold records that the group has not come to: a crash, or it was set back."""
        if not self.is_one_directory and not self._are_cuts_from(committed):
            raise unlike(where, committed)
        before = [start for start in self.starts if start <= committed]
        whole = max(before) if before and self.is_one_directory else committed
        offset, how = self._again(whole, log_start)
        text = f"{where}: the group's offset is {committed}, but {self._newest()}: {how}"
        return offset, (("group_behind", text),)

    def _before_group(
        self, where: TopicPartition, committed: int, log_start: int
    ) -> tuple[int, Warnings]:
        """The objects hold fewer records than there are offsets before the group's."""
        totals = accumulate(one.records for one in self.counted)
        pairs = zip(self.counted, totals, strict=True)
        cuts = (one.start_offset for one, total in pairs if total == self.cut_records)
        offset, how = self._again(next(cuts, self.counted[0].start_offset), log_start)
        text = (
            f"{where}: the group's offset is {committed}, but {self._newest()}: what is between "
            f"may have held no records, or is missing: {how}"
        )
        return offset, (("bucket_behind", text),)

    def _are_cuts_from(self, offset: int) -> bool:
        """Whether the objects show that the same cuts would be made now from *offset* on.

        Those before *offset* hold as many records as there are offsets, so none of their records
        comes after it.  What follows is one cut of `cut_records` after another, with one object a
        directory; the last may be short, as after a crash.  It takes all objects to know that.
        """
        if len(self.counted) < len(self.starts) or self.cut_records < 1:
            return False
        before = [one for one in self.counted if one.start_offset < offset]
        if sum(one.records for one in before) != offset - min(self.starts):
            return False
        cuts: dict[int, list[Counted]] = {}
        for one in self.counted:
            if one.start_offset >= offset:
                cuts.setdefault((one.start_offset - offset) // self.cut_records, []).append(one)
        if any(len({one.directory for one in cut}) < len(cut) for cut in cuts.values()):
            return False
        last = max(cuts, default=0)
        *whole, short = (sum(one.records for one in cuts.get(at, ())) for at in range(last + 1))
        return all(total == self.cut_records for total in whole) and short <= self.cut_records

    def _again(self, offset: int, log_start: int) -> tuple[int, str]:
        """Return where to continue, and how, so that what is stored from *offset* on is repeated.

        In the middle of an object the records after it would be in two objects; so where the log
        lacks its beginning, what follows the objects is next.
        """
        if offset >= log_start:
            return offset, f"writing again what begins at {offset}, under the same names"
        end = max(one.least_end for one in self.counted)
        return end, f"the log begins at {log_start}, so continuing at {end}"

    def _newest(self) -> str:
        newest = self.counted[0]
        many = f"{newest.records} record{'' if newest.records == 1 else 's'}"
        return f"{newest.key}, the newest object, begins at {newest.start_offset} and holds {many}"


def count(
    store: Store,
    options: FormatOptions,
    objects: Sequence[tuple[str, ObjectKey]],
    committed: int | None,
    cut_records: int,
) -> Inherited | None:
    """Open the newest of *objects*, and as many more as it takes to judge the group's offset.

    That is one where they are in one directory; else those whose records add up to the offsets
    before the group's, or to a cut; all of them where they are ahead of the group.

    Args:
        store: Where they are.
        options: How they are read.
        objects: Those that hold the values of one partition, and what their keys say; in the order
            of start offsets, at least one.
        committed: The group's offset, None without.
        cut_records: How many records make a cut, by configuration.

    Returns:
        None where no format reads the newest.

    Raises:
        CorruptObjectError: If one is damaged.
        StoreError: If the store does not answer.
    """
    is_one = len({parts.encoded_partition for _, parts in objects}) == 1
    is_ahead = committed is None or committed <= objects[-1][1].start_offset
    takes_all = is_ahead and not is_one and len(objects) <= OPENED_MOST  # fewer show nothing
    counted: list[Counted] = []
    total = 0
    for key, parts in list(reversed(objects))[: 1 if is_one else OPENED_MOST]:
        records = _records(store, options, key, parts)
        if records is None:
            break
        directory = "" if is_one else parts.encoded_partition
        counted.append(Counted(key, parts.start_offset, records, directory))
        total += records
        if takes_all:
            continue
        if committed is None or total >= min(cut_records, committed - parts.start_offset):
            break
    if not counted:
        return None
    starts = tuple(parts.start_offset for _, parts in objects)
    return Inherited(starts, tuple(counted), is_one, cut_records)


def _records(store: Store, options: FormatOptions, key: str, parts: ObjectKey) -> int | None:
    name = formats.by_extension(parts.extension, options)
    if name is None:
        return None
    try:
        with store.open(key) as body:
            batches = formats.by_name(name).read(body, parts.view, parts.extension, options)
            return sum(map(len, batches))
    except CorruptObjectError as error:
        raise CorruptObjectError(
            f"{key}, the newest object",
            error.what if not error.why else f"{error.what}: {error.why}",
            "delete it and the next run stores its records again, as long as the log has them",
            key=key,
        ) from error
