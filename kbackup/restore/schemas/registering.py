"""Schemas are put into a registry: under their ids where it lets them keep these.

That is where the id is free, and the subject new, in Confluent's mode IMPORT.  Otherwise a schema
gets the id that the registry gives it, and tasks rewrite that id in the records.  What a schema
refers to is registered first.
"""

from dataclasses import dataclass, field, replace

from kbackup.errors import RegistryError
from kbackup.registry import IMPORT, RegisteredSchema, Registry
from kbackup.restore.schemas.plan import PlannedSchema


@dataclass(slots=True)
class Registering:
    """Registers schemas in one registry."""

    registry: Registry
    _imports: dict[str, bool] = field(default_factory=dict)
    _known: dict[str, RegisteredSchema] = field(default_factory=dict)  # by digest in the source

    def id_of(self, each: PlannedSchema) -> int:
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
        """Whether ids can be chosen under *subject*: the registry has modes, and it is new.

        Or someone else has set its mode, or a run that was killed: then nothing else can be done.
        """
        if subject not in self._imports:
            self._imports[subject] = self.registry.mode() is not None and (
                not self.registry.versions_of(subject) or self.registry.mode(subject) == IMPORT
            )
        return self._imports[subject]

    def _imported(
        self, subject: str, schema: RegisteredSchema, old: int, version: int
    ) -> int | None:
        """Register a schema under its old id; the subject's mode is as before at the end.

        Returns:
            The id; None if the registry refuses.

        Raises:
            RegistryError: If the mode is not as before.
        """
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
