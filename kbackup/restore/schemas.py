"""Register the schemas of a backup in the registry of the target before the first record.

`plan` says what is registered under which subjects, and asks what the registry has against it;
`registering` does it; `target` is what a run knows of both.

That is where the id is free, and the subject new, in Confluent's mode IMPORT.  Otherwise a schema
gets the id that the registry gives it, and tasks rewrite that id in the records.  What a schema
refers to is registered first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from kbackup.catalog import schemas
from kbackup.catalog.schemas import KeptSchema, SchemaIndex, SchemaUse
from kbackup.config import Settings
from kbackup.connect.registry import (
    IMPORT,
    READONLY,
    READONLY_OVERRIDE,
    RegisteredSchema,
    connect,
)
from kbackup.errors import RefusedError, RegistryError
from kbackup.events import Tell
from kbackup.naming import Layout
from kbackup.restore.plan import RestorePlan
from kbackup.runs import wiring
from kbackup.runs.report import Summary
from kbackup.stores import Store, side_by_side

if TYPE_CHECKING:
    from kbackup.connect.registry.client import RegistryClient


@dataclass(frozen=True, slots=True)
class _PlannedSchema:
    key: str
    kept: KeptSchema
    subjects: Mapping[str, int]


def _odd(
    where: str,
    lacking: Iterable[SchemaUse],
    without: Iterable[str],
    importing: Iterable[str],
) -> Iterator[tuple[str, str]]:
    """Yield codes and sentences about what the backup lacks, and about subjects left in a mode."""
    only = f"can be read only if Schema Registry at {where} has the same schema under it"
    for use in lacking:
        text = f"{use} is not in the backup: records that name it keep its id, and {only}"
        yield "lacking_schema", text
    for topic in without:
        yield "no_schemas", f"the backup has no schemas of {topic}: its records stay as they are"
    left = (
        f"is in mode {IMPORT} and stays so, and producers cannot register schemas under it; if "
        "no other tool set the mode, it was left by a restore that was killed: send DELETE"
    )
    for name in importing:
        yield "import_mode", f"subject {name} {left} /mode/{name} to {where} after this one"


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


def _check_plan(
    registry: "RegistryClient", where: str, planned: Sequence[_PlannedSchema]
) -> list[str]:
    """Ask what can be asked before anything is changed; return the subjects in mode IMPORT."""
    registry.schema(0)  # nobody's id: whether it answers, and its user may read
    names = {name for each in planned for name in each.subjects}
    modes = {"the registry": registry.mode()}
    if modes["the registry"] is not None:
        modes |= {name: registry.mode(name) for name in sorted(names)}
    for what, mode in modes.items():
        if mode in (READONLY, READONLY_OVERRIDE):
            raise RefusedError(
                f"Schema Registry at {where} does not accept schemas",
                f"{what} is in mode {mode}",
                "set its mode to READWRITE, or restore without --schema-registry-url",
            )
    grown = {name for name in names if registry.versions_of(name)}
    for each in planned:
        for name in each.subjects.keys() & grown:
            if each.kept.schema.references or registry.is_compatible(name, each.kept.schema):
                continue  # what it refers to may have to be registered first
            raise RefusedError(
                f"{each.kept.use} is not compatible with the schemas of subject {name}",
                f"that subject already has other schemas in Schema Registry at {where}",
                "relax the subject's compatibility, or restore under another name: "
                "--rename 'copy_of_$0'",
            )
    return [name for name in sorted(names) if modes.get(name) == IMPORT]


def _two_meanings(use: SchemaUse, keys: Iterable[str]) -> RefusedError:
    return RefusedError(
        f"{use} names several schemas in this backup",
        f"the source's registry was set up again and reassigned the id: {', '.join(keys)}",
        "restore without --schema-registry-url, or move away the schema objects that do not "
        "belong to the records to be restored",
    )


@dataclass(slots=True)
class _Registering:
    registry: "RegistryClient"
    _imports: dict[str, bool] = field(default_factory=dict)
    _known: dict[str, RegisteredSchema] = field(default_factory=dict)  # by digest in the source

    def id_of(self, each: _PlannedSchema) -> int:
        """Register a schema under its subjects; return its id."""
        schema = self._placed(each.kept.schema)
        ids = [
            self._under(subject, schema, each.kept.use.id, version)
            for subject, version in each.subjects.items()
        ]
        return ids[0]

    def _placed(self, schema: RegisteredSchema) -> RegisteredSchema:
        """Register what *schema* refers to; return it with the versions that these have here."""
        if schema.digest in self._known:
            return self._known[schema.digest]
        references = []
        for each in schema.references:
            inner = self._placed(each.schema)
            new = self.registry.register(each.subject, inner)
            version = self.registry.version(new, each.subject) or each.version
            references.append(replace(each, schema=inner, version=version))
        placed = replace(schema, references=tuple(references))
        self._known[schema.digest] = placed
        return placed

    def _under(self, subject: str, schema: RegisteredSchema, old: int, version: int) -> int:
        if self._may_import(subject):
            there = self.registry.schema(old)
            if there is None or there == schema:
                new = self._imported(subject, schema, old, version)
                if new is not None:
                    return new
                self._imports[subject] = False  # as for any subject that is not new
        return self.registry.register(subject, schema)

    def _may_import(self, subject: str) -> bool:
        """Whether ids can be chosen under *subject*: the registry has modes, and it is new."""
        # where someone else, or a run that was killed, has set its mode, nothing else can be done
        if subject not in self._imports:
            self._imports[subject] = self.registry.mode() is not None and (
                not self.registry.versions_of(subject) or self.registry.mode(subject) == IMPORT
            )
        return self._imports[subject]

    def _imported(
        self, subject: str, schema: RegisteredSchema, old: int, version: int
    ) -> int | None:
        """Register a schema under its old id; the subject's mode is as before at the end."""
        try:
            before = self.registry.mode(subject)
        except RegistryError:
            return None
        try:
            if before != IMPORT:
                self.registry.set_mode(subject, IMPORT)
            return self.registry.put(subject, schema, old, version)
        except RegistryError:
            return None
        finally:  # also after a refusal: an answer may have been lost
            self._reset(subject, before)

    def _reset(self, subject: str, before: str | None) -> None:
        try:
            if self.registry.mode(subject) != before:
                self.registry.set_mode(subject, before)
        except RegistryError as error:
            raise RegistryError(
                f"subject {subject} may still be in mode {IMPORT}: it could not be reset",
                f"{error.what}: {error.why}",
                f"send DELETE /mode/{subject} to the registry, then run again",
            ) from error


@dataclass(frozen=True, slots=True)
class SchemasPlanned:
    """What is to be registered."""

    HEAD: ClassVar = {"type": "plan_schemas"}

    registry: str
    schemas: Sequence[Mapping[str, Any]]


class TargetSchemas:
    """The schemas of one restore's target; remembers what it has registered.

    Where *settings* name no registry, records keep the ids that they have.  *ids* is what tasks
    need to know: by topic of the backup and part, ``key`` or ``value``, the id in the target of
    each id that is registered so far.
    """

    def __init__(self, settings: Settings, layout: Layout, summary: Summary, tell: Tell) -> None:
        self._registry, self._layout = wiring.schema_registry(settings), layout
        self._summary, self._tell = summary, tell
        self._planned: Sequence[_PlannedSchema] = ()
        self._odd: Sequence[tuple[str, str]] = ()
        self._warned: set[str] = set()
        self._done: set[str] = set()
        self._facts: dict[SchemaUse, dict[str, Any]] = {}
        self.ids: dict[str, dict[str, dict[int, int]]] = {}

    def plan(self, restore: RestorePlan, store: Store) -> None:
        """Find out what is still to be registered for full records of *restore*; change nothing.

        Raises:
            RefusedError: If the registry will not take them: it is read-only, or has a schema
                under the same subject that one of them is not compatible with; or an id of the
                backup has two meanings.
        """
        targets = _targets(restore)
        self._planned = self._odd = ()
        if self._registry is None or not targets:
            return
        for topic in targets:
            self.ids.setdefault(topic, {})
        index = SchemaIndex.read(store, self._layout, sorted(targets))
        new = [
            (use, key)
            for use, keys in sorted(index.keys.items())
            for key in keys
            if len(keys) > 1 or key not in self._done
        ]
        loaded = side_by_side(lambda one: schemas.load(store, *one), new)
        kept: dict[SchemaUse, tuple[str, KeptSchema]] = {}
        for (use, key), each in zip(new, loaded, strict=True):
            _, first = kept.setdefault(use, (key, each))
            if first.schema.meaning != each.schema.meaning:
                raise _two_meanings(use, index.keys[use])
        planned = [
            _PlannedSchema(key, each, subjects(each, targets[each.use.topic]))
            for use, (key, each) in kept.items()
            if self._done.isdisjoint(index.keys[use])
        ]
        planned.sort(key=lambda each: (max(each.subjects.values()), each.kept.use))
        where, importing = self._registry.name, list[str]()
        if planned or not self._done:  # a registry that is away holds up nothing but new schemas
            importing = _check_plan(connect(self._registry), where, planned)
        lacking = sorted(index.unknown | set(index.missing))
        without = sorted(targets.keys() - {use.topic for use in index.keys})
        self._odd = [*_odd(where, lacking, without, importing)]
        self._facts |= {each.kept.use: _fact(each, None) for each in planned}
        self._planned = planned

    def unregistered(self, restore: RestorePlan, store: Store) -> list[str]:
        """Return topics whose full records name schemas that no registry was given for."""
        if self._registry is not None:
            return []
        index = SchemaIndex.read(store, self._layout)
        return sorted(_targets(restore).keys() & {use.topic for use in index.keys})

    def show(self) -> None:
        """Say what is planned, and what the backup lacks, once."""
        for code, text in self._odd:
            if text not in self._warned:
                self._warned.add(text)
                self._tell(self._summary.warn(code, text))
        if self._registry is not None and self._planned:
            facts = [self._facts[each.kept.use] for each in self._planned]
            self._tell(SchemasPlanned(self._registry.name, facts))
            self._keep_facts()

    def register(self) -> None:
        """Register what was planned; may be repeated."""
        if self._registry is None or not self._planned:
            return
        registering = _Registering(connect(self._registry))
        for each in self._planned:
            use, new = each.kept.use, registering.id_of(each)
            self.ids.setdefault(use.topic, {}).setdefault(use.part, {})[use.id] = new
            self._facts[use] = _fact(each, new)
            self._done.add(each.key)
        self._keep_facts()

    def _keep_facts(self) -> None:
        self._summary.facts["schemas"] = list(self._facts.values())


def _targets(restore: RestorePlan) -> dict[str, str]:
    """Return the targets of the topics of which full records are restored."""
    return {
        topic.copy.source: topic.copy.target
        for topic in restore.topics
        if not topic.refusals and any(files.is_whole for unit in topic.units for files in unit.sets)
    }


def _fact(each: _PlannedSchema, new_id: int | None) -> dict[str, Any]:
    use = each.kept.use
    return {
        "topic": use.topic, "part": use.part, "id": use.id, "new_id": new_id,
        "subjects": sorted(each.subjects),
    }  # fmt: skip
