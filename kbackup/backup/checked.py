"""What reading a file set whole has shown, for those who judge its partition."""

from dataclasses import dataclass

from kbackup.backup.claims import Problem
from kbackup.errors import Failure


@dataclass(frozen=True, slots=True)
class Checked:
    """One set that was read to its end, or that could not be.

    Attributes:
        id: The set's `FileSet.id`.
        objects: How many objects it has.
        bytes_read: Their bytes.
        records: Records read.
        first: Offset of the first record, None where none was read.
        last: That of the last one; None where it is not known.
        unchecked: Keys of objects in which a flipped bit would go unnoticed.
        sha256: Of the main object, as far as it is known.
        problems: What is wrong with it.
        is_same: The records that it has in common with the sets that follow agree; None where it
            reaches into no other set.
        repeated: How many of its records are in one of those sets too.
        failure: Why it could not be read; nothing else is known then.
    """

    id: str
    objects: int = 0
    bytes_read: int = 0
    records: int = 0
    first: int | None = None
    last: int | None = None
    unchecked: tuple[str, ...] = ()
    sha256: str | None = None
    problems: tuple[Problem, ...] = ()
    is_same: bool | None = None
    repeated: int = 0
    failure: Failure | None = None
