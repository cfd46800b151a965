"""What a run has done in a partition: counts that add up over its tasks and visits."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self


@dataclass(frozen=True, slots=True)
class Done:
    """What one run has done in a partition, over all tasks that it has tried it with.

    Attributes:
        records: Records that are safe: stored, or acknowledged and committed.
        objects: Objects stored, or file sets read to their end.
        bytes_read: Bytes of the records read, as `records.record_bytes` counts; of a restore, of
            the objects read.
        bad_records: Records left out because they do not fit where they go.
        filtered: Records that a transform left out.
        first: Offset in the backed-up partition of the first record that is safe, None without
            one.
        last: That of the last one.
        bytes_stored: Bytes of the objects stored; of sinks only.
        nulls: Records left out because they have no value; of sinks only.
        commits: Transactions that held records, or commits without transactions; of restores
            only, as all that follow.
        duplicates: Records that several objects hold, each of them written once.
        zero_timestamps: Timestamps of 0 ms, written as 1 ms.
        bad_objects: File sets of which rows were left out as bad.
        strange_schemas: Keys and values written with the id of a schema that the backup lacks.
    """

    records: int = 0
    objects: int = 0
    bytes_read: int = 0
    bad_records: int = 0
    filtered: int = 0
    first: int | None = None
    last: int | None = None
    bytes_stored: int = 0
    nulls: int = 0
    commits: int = 0
    duplicates: int = 0
    zero_timestamps: int = 0
    bad_objects: int = 0
    strange_schemas: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return as plain data what is not nothing."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in given.items() if value != getattr(NOTHING, name)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields that are there and whole numbers; the others keep their defaults."""
        given = ((field.name, data.get(field.name)) for field in fields(cls))
        return cls(**{name: value for name, value in given if type(value) is int})

    def __add__(self, later: "Done") -> "Done":
        """Return what was done with what was done *later*."""
        ends = ("first", "last")
        counts = {
            field.name: getattr(self, field.name) + getattr(later, field.name)
            for field in fields(self)
            if field.name not in ends
        }
        first = later.first if self.first is None else self.first
        return Done(**counts, first=first, last=self.last if later.last is None else later.last)


NOTHING: Final = Done()
