"""``ReplaceField``: drops or renames fields.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.ReplaceField``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from kbackup.errors import ConfigurationError
from kbackup.options import Option, boolean, names
from kbackup.transforms.data import Data, Records, on_objects

EXCLUDE: Final = names("exclude", "Fields to leave out.", aliases=("blacklist",))
INCLUDE: Final = names("include", "The only fields to keep.", aliases=("whitelist",))
RENAMES: Final = names("renames", "Other names of fields: old:new, separated by commas.")
REPLACE_NULL: Final = boolean(
    "replace.null.with.default",
    "Replace null fields with their default, where they have one.",
    True,
)


class ReplaceField:
    """Drops or renames fields; null values stay null."""

    class_names: ClassVar[tuple[str, ...]] = ("ReplaceField",)
    java_package: ClassVar[str] = "org.apache.kafka.connect.transforms"
    sides: ClassVar[tuple[str, ...]] = ("key", "value")
    reads: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option[Any], ...]] = (EXCLUDE, INCLUDE, RENAMES, REPLACE_NULL)

    def configure(self, options: Mapping[str, Any], side: str) -> None:
        """Take the names.

        Raises:
            ConfigurationError: If a renaming is not of the form old:new.
        """
        self._side = side
        self._exclude = frozenset(EXCLUDE.of(options))
        self._include = frozenset(INCLUDE.of(options))
        self._fills = REPLACE_NULL.of(options)
        self._names = {}
        for pair in RENAMES.of(options):
            old, colon, new = (part.strip() for part in pair.partition(":"))
            if not (old and colon and new) or ":" in new:
                raise ConfigurationError(
                    f"{pair!r} renames nothing", "expected old:new", "correct renames",
                    property=RENAMES.name,
                )  # fmt: skip
            self._names[old] = new

    def apply(self, records: Records) -> Records:
        """Return the records with the fields that are kept."""
        return on_objects(records, self._side, self._structs, self._object)

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def _structs(self, records: Records, data: Data) -> Records:
        columns = data.columns(fills_defaults=self._fills)
        kept = [at for at in (data.schema.fields if data.schema else ()) if self._keeps(at[0])]
        fields = [(self._names.get(name, name), schema) for name, schema in kept]
        found = data.rebuilt(fields, [columns[name] for name, _ in kept])
        return records.with_side(self._side, found)

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        return {
            self._names.get(name, name): each for name, each in value.items() if self._keeps(name)
        }
