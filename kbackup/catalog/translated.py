"""Keep which offset of a restored topic each of the backup became: ``_kbackup/restores/``.

A restore keeps a row for each of its transactions in a partition.  The newest rows travel in the
text beside the committed position (`kbackup.runs.position`), so that no kill loses one and no
aborted transaction leaves one; those that it has no more room for are stored here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.catalog.ledger.rows import StreamForm, latest, rows_of, table
from kbackup.catalog.ledger.stream import Stream, folder
from kbackup.clock import Clock
from kbackup.errors import Issue
from kbackup.naming import Layout
from kbackup.stores import Store


@dataclass(frozen=True, slots=True, order=True)
class Translation:
    """Records of one transaction: the first and the last offset in the backup and in the target.

    Fewer *records* were written than lie between the two where some are missing.
    """

    first: int
    last: int
    records: int
    target_first: int
    target_last: int

    @property
    def is_contiguous(self) -> bool:
        """Whether nothing else lies between its records in the target."""
        return self.target_last - self.target_first + 1 == self.records

    @property
    def is_dense(self) -> bool:
        """Whether each offset between the two of the backup is that of a record."""
        return self.last - self.first + 1 == self.records


@dataclass(frozen=True, slots=True)
class TranslatedEntry:
    """One row of the stream of a restored topic: a `Translation` in a partition of the target.

    *target_id* is empty where the cluster has no ids of topics.
    """

    partition: int
    target_id: str
    source_topic: str
    source_partition: int
    first: int
    last: int
    records: int
    target_first: int
    target_last: int
    run: str | None = None
    time: int = 0
    counter: int | None = None

    @property
    def translation(self) -> Translation:
        """What it says of the records."""
        return Translation(
            self.first, self.last, self.records, self.target_first, self.target_last
        )  # fmt: skip


def _merged(rows: pa.Table) -> pa.Table:
    """A row that was stored twice counts once: a kill may come between it and the next commit."""
    if not len(rows):
        return rows
    names = (
        "partition", "target_id", "source_topic", "source_partition", "first", "last", "records",
        "target_first", "target_last",
    )  # fmt: skip
    about = [rows[name].cast(pa.string()) for name in names]
    return latest(rows, pc.binary_join_element_wise(*about, "\n"))


TRANSLATED: Final = StreamForm.of(
    TranslatedEntry,
    _merged,
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("source_partition", pa.int32(), nullable=False),
    forged="move it away: groups are then translated by reading the records",
)
"""The stream of a restored topic: rows of `TranslatedEntry`."""


@dataclass(frozen=True, slots=True)
class TranslationLog:
    """The rows that restores with one consumer group have stored, by restored topic."""

    store: Store
    layout: Layout
    group: str
    clock: Clock

    def append(self, topic: str, entries: Iterable[TranslatedEntry]) -> None:
        """Store rows of a restored topic; many runs cost a reader no more than a few."""
        stream = self._stream(topic)
        stream.append(table(entries, TRANSLATED))
        stream.fold()

    def read(self, topic: str) -> tuple[list[TranslatedEntry], list[Issue]]:
        """Return the rows of a restored topic, and the files whose rows are lost.

        They are an index: what it lacks is counted.
        """
        found, do = self._stream(topic).read(), "records are counted in the target instead"
        damage = [replace(one, do=do) for one in found.damage]
        return [*rows_of(TranslatedEntry, found.rows)], damage

    def delete(self) -> None:
        """Delete the rows of all topics."""
        for entry in self.store.list(self._folder()):
            self.store.delete(entry.key)

    def _stream(self, topic: str) -> Stream:
        return Stream(self.store, f"{self._folder()}{topic}/", TRANSLATED, self.clock)

    def _folder(self) -> str:
        # a group's name may hold any characters, a slash too
        group = quote(self.group, safe="").replace(".", "%2E")
        return f"{folder(self.layout, 'restores')}{group}/"
