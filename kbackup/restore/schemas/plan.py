"""Which schemas a restore registers, and what its registry has against that."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kbackup.backup.schemas import KeptSchema, SchemaUse
from kbackup.errors import RefusedError
from kbackup.registry import IMPORT, READONLY, READONLY_OVERRIDE, Registry


@dataclass(frozen=True, slots=True)
class PlannedSchema:
    """A schema to register.

    Attributes:
        key: The object that holds it.
        kept: The schema.
        subjects: The subjects to register it under, with its version in the source.
    """

    key: str
    kept: KeptSchema
    subjects: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """What a restore registers.

    Attributes:
        where: The registry's name.
        schemas: What, in the order of their subjects' versions.
        lacking: What records name and the backup does not have.
        without: Topics of which the backup has no schema.
        importing: Subjects that are in mode IMPORT before anything is done.
    """

    where: str = ""
    schemas: tuple[PlannedSchema, ...] = ()
    lacking: tuple[SchemaUse, ...] = ()
    without: tuple[str, ...] = ()
    importing: tuple[str, ...] = ()

    def warnings(self) -> list[tuple[str, str]]:
        """Return codes and sentences about what the backup lacks."""
        only = f"can be read only if Schema Registry at {self.where} has the same schema under it"
        lacking = [
            (
                "lacking_schema",
                f"{use} is not in the backup: records that name it keep its id, and {only}",
            )
            for use in self.lacking
        ]
        without = [
            ("no_schemas", f"the backup has no schemas of {topic}: its records stay as they are")
            for topic in self.without
        ]
        left = (
            f"is in mode {IMPORT} and stays so, and producers cannot register schemas under it; if "
            "no other tool set the mode, it was left by a restore that was killed: send DELETE"
        )
        importing = [
            ("import_mode", f"subject {name} {left} /mode/{name} to {self.where} after this one")
            for name in self.importing
        ]
        return lacking + without + importing


NOTHING: Final = SchemaPlan()
"""Records keep the ids that they have."""


def subjects(kept: KeptSchema, target: str) -> dict[str, int]:
    """Return the subjects to register a schema under for the copy of its topic.

    Those that are named after the topic are renamed with it; those of other topics, which share
    the schema, are left alone.
    """
    use, found = kept.use, {}
    is_shared = False
    for name, version in kept.versions.items():
        if name == f"{use.topic}-{use.part}":
            found[f"{target}-{use.part}"] = version
        elif name.endswith(("-key", "-value")):
            is_shared = True
        else:
            own = f"{use.topic}-"
            found[f"{target}-{name.removeprefix(own)}" if name.startswith(own) else name] = version
    if found or not is_shared:
        return found or {f"{target}-{use.part}": 1}
    return {f"{target}-{use.part}": min(kept.versions.values())}


def check(registry: Registry, found: SchemaPlan) -> tuple[str, ...]:
    """Ask what can be asked before anything is changed.

    Returns:
        The subjects whose own mode is `IMPORT`.

    Raises:
        RefusedError: If something will be refused.
        RegistryError: If the registry does not answer.
    """
    registry.schema(0)  # nobody's id: whether it answers, and its user may read
    names = {name for each in found.schemas for name in each.subjects}
    modes = {"the registry": registry.mode()}
    if modes["the registry"] is not None:
        modes |= {name: registry.mode(name) for name in sorted(names)}
    for what, mode in modes.items():
        if mode in (READONLY, READONLY_OVERRIDE):
            raise RefusedError(
                f"Schema Registry at {found.where} does not accept schemas",
                f"{what} is in mode {mode}",
                "set its mode to READWRITE, or restore without --schema-registry-url",
            )
    grown = {name for name in names if registry.versions_of(name)}
    for each in found.schemas:
        for name in each.subjects.keys() & grown:
            if each.kept.schema.references or registry.is_compatible(name, each.kept.schema):
                continue  # what it refers to may have to be registered first
            raise RefusedError(
                f"{each.kept.use} is not compatible with the schemas of subject {name}",
                f"that subject already has other schemas in Schema Registry at {found.where}",
                "relax the subject's compatibility, or restore under another name: "
                "--rename 'copy_of_$0'",
            )
    return tuple(name for name in sorted(names) if modes.get(name) == IMPORT)


def two_meanings(use: SchemaUse, keys: Iterable[str]) -> RefusedError:
    """Return the error of a backup in which one id means several schemas."""
    return RefusedError(
        f"{use} names several schemas in this backup",
        f"the source's registry was set up anew and assigned the id again: {', '.join(keys)}",
        "restore without --schema-registry-url, or move away the schema objects that do not "
        "belong to the records to be restored",
    )
