"""``s3.schema.partition.affix.type``: the name of a value's schema beside its directory."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kbackup.columns import Schema
from kbackup.connect import schema as connect


class AffixKind(StrEnum):
    """Where it stands."""

    NONE = "NONE"
    PREFIX = "PREFIX"
    SUFFIX = "SUFFIX"


@dataclass(frozen=True, slots=True)
class Affix:
    """How directories are lengthened.

    Attributes:
        kind: Where the name stands.
        delimiter: Between two levels of directories.
    """

    kind: AffixKind = AffixKind.NONE
    delimiter: str = "/"

    def beside(self, directory: str, schema: Schema | None) -> str:
        """Return *directory* with the name of *schema*, ``null`` where it has none."""
        found = connect.of(schema)
        part = f"schema_name={'null' if found is None else found.name or 'null'}"
        match self.kind:
            case AffixKind.NONE:
                return directory
            case AffixKind.PREFIX:
                return f"{part}{self.delimiter}{directory}"
            case AffixKind.SUFFIX:
                return f"{directory}{self.delimiter}{part}"


NO_AFFIX: Final = Affix()
"""Directories stay as the partitioner gives them."""
