"""What is stored of one partition: a row of ``restore topics``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Self

from kbackup import moments
from kbackup.backup.file_sets import BackupFile, FileSet
from kbackup.backup.judged import JudgedPartition
from kbackup.backup.reading import facts, read
from kbackup.events import Event
from kbackup.flow.views import ReadOptions
from kbackup.records import TopicPartition
from kbackup.runs.known import Known
from kbackup.stores import Store

_CODECS: Final = {
    "br": "brotli", "gz": "gzip", "lz4hadoop": "lz4", "lz4raw": "lz4_raw", "lzo": "lzo",
    "snappy": "snappy", "zstd": "zstd",
}  # fmt: skip
"""What a part of an extension says of the compression."""


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """A row.

    Attributes:
        where: The partition.
        format: Formats and compressions of its objects, as `format_label` gives them.
        objects: Number of objects.
        first: Offset of the first record; None without objects.
        last: That of the last one; None where names and ledger do not show it.
        records: Number of records; None where names and ledger do not show it.
        bytes: Bytes of the objects.
        newest: When the newest object was stored; None without objects.
    """

    where: TopicPartition
    format: str
    objects: int
    first: int | None
    last: int | None
    records: int | None
    bytes: int
    newest: datetime | None

    def looked_at(self, store: Store, sets: Sequence[FileSet], options: ReadOptions) -> Self:
        """Return the row with what the last object of each directory shows.

        In the connectors' layout without facts the last offset is that of a topic without holes.
        """
        finals = {files.encoded_partition: files for files in sets if files.main is not None}
        ends = [_end(store, files, options) for files in finals.values()]
        if not ends:
            return self
        records = ends[0][1] if len(sets) == 1 else self.records
        return replace(self, last=max(end for end, _ in ends), records=records)

    def to_dict(self) -> Event:
        """Return it as a line of ``--json``."""
        return {"type": "partition", **self.row()}

    def row(self) -> Event:
        """Return it as a row of the summary."""
        return {
            "topic": self.where.topic,
            "partition": self.where.partition,
            "format": self.format,
            "objects": self.objects,
            "first": self.first,
            "last": self.last,
            "records": self.records,
            "bytes": self.bytes,
            "newest": None if self.newest is None else moments.text(self.newest),
        }


def stored(where: TopicPartition, sets: Sequence[FileSet], known: Known) -> StoredPartition:
    """Return what names and ledger show of *where*, whose objects are *sets*."""
    files = [file for each in sets for file in each.files]
    newest = max((file.modified for file in files), default=None)
    judged = JudgedPartition(
        where, sets, known.recorded.get(where, ()), (), {}, is_deep=False,
        ledger=known.ledger(where),
    )  # fmt: skip
    return StoredPartition(
        where,
        format=", ".join(sorted({format_label(_main(each)) for each in sets})),
        objects=len(files),
        first=sets[0].start_offset if sets else None,
        last=judged.last(),
        records=judged.records(),
        bytes=sum(file.size for file in files),
        newest=None if newest is None else datetime.fromtimestamp(newest, UTC),
    )


def format_label(file: BackupFile) -> str:
    """Return format and compression, as far as the name shows them: ``json/gzip``."""
    codecs = [_CODECS[part] for part in file.extension.split(".") if part in _CODECS]
    return "/".join([file.format, *codecs])


def _main(files: FileSet) -> BackupFile:
    return files.main if files.main is not None else files.files[0]


def _end(store: Store, files: FileSet, options: ReadOptions) -> tuple[int, int]:
    """Return the last offset of a set, and its records: by its facts, else by its rows."""
    known = None if files.main is None else facts(store, files.main)
    if known is not None:
        return known.last_offset, known.records
    last, records = files.start_offset, 0
    for batch in read(store, files, options):
        last = batch["offset"][len(batch) - 1].as_py()
        records += len(batch)
    return last, records
