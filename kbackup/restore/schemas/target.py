"""What one restore plans to register, and has registered."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

from kbackup.backup import schemas
from kbackup.backup.schemas import KeptSchema, SchemaIndex, SchemaUse
from kbackup.config import Settings
from kbackup.events import Event, Tell
from kbackup.naming import Layout
from kbackup.registry import connect
from kbackup.restore.planning.plan import RestorePlan
from kbackup.restore.schemas.plan import (
    NOTHING,
    PlannedSchema,
    SchemaPlan,
    check,
    subjects,
    two_meanings,
)
from kbackup.restore.schemas.registering import Registering
from kbackup.runs import wiring
from kbackup.runs.summary import Summary
from kbackup.stores import Store

_READERS: Final = 8
"""Objects that are read side by side."""


@dataclass(frozen=True, slots=True)
class SchemasPlanned:
    """What is to be registered.

    Attributes:
        registry: Where, as people know it.
        schemas: What the summary says of each.
    """

    registry: str
    schemas: Sequence[Mapping[str, Any]]

    def to_dict(self) -> Event:
        """Return the event as plain data."""
        return {"type": "plan_schemas", "registry": self.registry, "schemas": list(self.schemas)}


class TargetSchemas:
    """The schemas of one restore's target; remembers what it has registered.

    Args:
        settings: They name the target's registry; without one, records keep the ids that they have.
        layout: Which ``topics.dir``.
        summary: Gets what is registered, and warnings.
        tell: Takes events.

    Attributes:
        ids: What tasks need to know: by topic of the backup and part, ``key`` or ``value``, the id
            in the target of each id that is registered so far.
    """

    def __init__(self, settings: Settings, layout: Layout, summary: Summary, tell: Tell) -> None:
        self._registry, self._layout = wiring.schema_registry(settings), layout
        self._summary, self._tell = summary, tell
        self._planned = NOTHING
        self._warned: set[str] = set()
        self._done: set[str] = set()
        self._facts: dict[SchemaUse, dict[str, Any]] = {}
        self.ids: dict[str, dict[str, dict[int, int]]] = {}

    def plan(self, restore: RestorePlan, store: Store) -> None:
        """Find out what is still to be registered for whole records of *restore*; change nothing.

        Raises:
            ConfigurationError: If a client library is missing.
            CorruptObjectError: If a schema cannot be read.
            RefusedError: If the registry will not take them: it is read-only, or has a schema
                under the same subject that one of them is not compatible with; or an id of the
                backup has two meanings.
            RegistryError: If the registry does not answer.
            StoreError: If the backup does not.
        """
        targets = {
            topic.intent.source: topic.intent.target
            for topic in restore.topics
            if not topic.refusals
            and any(files.is_whole for unit in topic.units for files in unit.sets)
        }
        self._planned = NOTHING
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
        with ThreadPoolExecutor(_READERS) as pool:
            loaded = list(pool.map(lambda one: schemas.load(store, *one), new))
        kept: dict[SchemaUse, tuple[str, KeptSchema]] = {}
        for (use, key), each in zip(new, loaded, strict=True):
            _, first = kept.setdefault(use, (key, each))
            if first.schema.meaning != each.schema.meaning:
                raise two_meanings(use, index.keys[use])
        planned = [
            PlannedSchema(key, each, subjects(each, targets[each.use.topic]))
            for use, (key, each) in kept.items()
            if self._done.isdisjoint(index.keys[use])
        ]
        planned.sort(key=lambda each: (max(each.subjects.values()), each.kept.use))
        found = SchemaPlan(
            self._registry.name,
            tuple(planned),
            tuple(sorted(index.unknown | set(index.missing))),
            tuple(sorted(targets.keys() - {use.topic for use in index.keys})),
        )
        if planned or not self._done:  # a registry that is away holds up nothing but new schemas
            found = replace(found, importing=check(connect(self._registry), found))
        self._facts |= {each.kept.use: _fact(each, None) for each in planned}
        self._planned = found

    def show(self) -> None:
        """Say what is planned, and what the backup lacks, once."""
        planned = self._planned
        for code, text in planned.warnings():
            if text not in self._warned:
                self._warned.add(text)
                self._tell(self._summary.warn(code, text))
        if planned.schemas:
            facts = [self._facts[each.kept.use] for each in planned.schemas]
            self._tell(SchemasPlanned(planned.where, facts))
            self._keep_facts()

    def register(self) -> None:
        """Register what was planned; may be repeated.

        Raises:
            RegistryError: If the registry refuses a schema, or does not answer.
        """
        found = self._planned
        if self._registry is None or not found.schemas:
            return
        registering = Registering(connect(self._registry))
        for each in found.schemas:
            use, new = each.kept.use, registering.id_of(each)
            self.ids.setdefault(use.topic, {}).setdefault(use.part, {})[use.id] = new
            self._facts[use] = _fact(each, new)
            self._done.add(each.key)
        self._keep_facts()

    def _keep_facts(self) -> None:
        self._summary.facts["schemas"] = list(self._facts.values())


def _fact(each: PlannedSchema, new_id: int | None) -> dict[str, Any]:
    """Return what the summary says of a schema; *new_id* is None until it is registered."""
    use = each.kept.use
    return {
        "topic": use.topic, "part": use.part, "id": use.id, "new_id": new_id,
        "subjects": sorted(each.subjects),
    }  # fmt: skip
