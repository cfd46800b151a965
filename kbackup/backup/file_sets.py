"""The objects of a backup, and the sets of them that hold the same records."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from kbackup.naming import View
from kbackup.records import Span, TopicPartition


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One object of a backup.

    Attributes:
        key: As listed: open it by this.
        view: The part of the records it holds.
        extension: Dot first.
        format: Name of the format's plugin.
        size: Bytes.
        modified: When it was stored, seconds since the epoch.
        storage_class: What the store calls the way it is kept; empty where there is only one.
        sha256: What the ledger says was stored under this key, in hexadecimal; empty where it was
            not asked, or does not know.
        records: How many the ledger says were stored in it; None where it was not asked, or does
            not know.
        etag: The store's own mark of the content, of objects that no sink has named; empty for
            others.
    """

    key: str
    view: View
    extension: str
    format: str
    size: int
    modified: float
    storage_class: str = ""
    sha256: str = ""
    etag: str = ""
    records: int | None = None


@dataclass(frozen=True, slots=True)
class FileSet:
    """The objects that hold the same records: one of whole records, or a value with siblings.

    Attributes:
        where: Topic and partition, from the name.
        start_offset: Offset of the first record, from the name.
        encoded_partition: The directory; where it is a date of upload, which says nothing of the
            records, `kbackup.naming.UPLOAD_DATE`.
        main: The whole-record or the value object, or of tombstones the keys object; None where
            only siblings were found.
        keys: The keys object beside the values, None if there is none.
        headers: The headers object, None if there is none.
        index: Key of the index beside the value object; None if there is none, which loses nothing.
        is_generic: An expression over keys has found it, so its records have no offsets that mean
            anything, unless the expression has read the first one, and what it says of itself is
            about another place.
        only: Of values, only these offsets: full records hold the others.  None for all.
    """

    where: TopicPartition
    start_offset: int
    encoded_partition: str
    main: BackupFile | None = None
    keys: BackupFile | None = None
    headers: BackupFile | None = None
    index: str | None = None
    is_generic: bool = False
    only: Span | None = None

    @property
    def files(self) -> list[BackupFile]:
        """All objects of the set."""
        return [file for file in (self.main, self.keys, self.headers) if file is not None]

    def known_by(self, told: Callable[[BackupFile], BackupFile]) -> "FileSet":
        """Return the set with what the ledger says of each object."""
        main, keys, headers = (
            None if file is None else told(file) for file in (self.main, self.keys, self.headers)
        )
        return replace(self, main=main, keys=keys, headers=headers)

    def before(self, moment: float) -> "FileSet | None":
        """Return its objects stored before *moment*, in s since the epoch; None where none was."""
        kept = [
            None if file is None or file.modified >= moment else file
            for file in (self.main, self.keys, self.headers)
        ]
        if not any(kept):
            return None
        main, keys, headers = kept
        return replace(self, main=main, keys=keys, headers=headers)

    @property
    def id(self) -> str:
        """The key that stands for the set."""
        return self.files[0].key

    @property
    def is_tombstones(self) -> bool:
        """Whether it holds records without a value."""
        return self.main is not None and self.main.view is View.KEY

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole records."""
        return self.main is not None and self.main.view is View.RECORD
