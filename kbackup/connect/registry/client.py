"""A registry through confluent-kafka's own client, with its errors translated."""

import random
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import orjson

from kbackup.connect.registry import (
    AVRO,
    Reference,
    RegisteredSchema,
    RegistrySettings,
    not_installed,
    without_user,
)
from kbackup.errors import ConfigurationError, RegistryError

try:
    from confluent_kafka.schema_registry import (
        Schema,
        SchemaReference,
        SchemaRegistryClient,
        SchemaRegistryError,
    )
except ImportError as problem:
    raise not_installed(str(problem)) from problem

T = TypeVar("T")

_UNKNOWN: Final = (40401, 40402, 40403)
"""Error codes of an unknown subject, version and schema."""

_NO_MODES: Final = (404, 405)
"""What registries without modes, or without one of the requests about them, answer; and Confluent's
for a subject without a mode of its own."""

_PASSING: Final = (408, 429, 500, 502, 503, 504)
"""The statuses after which a request is repeated."""


class RegistryClient:
    """One registry, and all of its answers so far.  Threads may share it.

    The time for a question is bounded: after its first repetition it is asked again only if it is
    younger than one answer may take.  A registry that lets a question wait to the end is not asked
    anything for as long as one answer may take; questions fail at once meanwhile.

    *now* is the time in seconds, of a clock that never goes back.

    Raises:
        RegistryError: From every method, if the registry does not answer, or refuses, after as many
            retries as the settings allow.
    """

    def __init__(
        self, settings: RegistrySettings, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._now = settings, now
        self._name = settings.name
        self._silent: tuple[float, str] | None = None
        try:
            self._client = SchemaRegistryClient(_properties(settings))
        except (ValueError, OSError) as error:
            raise ConfigurationError(
                "the connection to Schema Registry cannot be set up",
                without_user(str(error)),
                "correct schema.registry.url and the properties beside it",
            ) from error
        weakref.finalize(self, self._client.close)  # it does not close its sockets itself
        self._lock = threading.RLock()
        self._schemas: dict[int, RegisteredSchema] = {}
        self._versions: dict[int, dict[str, int]] = {}
        self._ids: dict[tuple[str, RegisteredSchema], int] = {}
        self._referred: dict[tuple[str, int], RegisteredSchema | None] = {}

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema with *schema_id*, None if the registry does not know it."""
        with self._lock:
            if schema_id not in self._schemas:
                found = self._asked(
                    f"for schema {schema_id}", lambda: self._client.get_schema(schema_id)
                )
                if found is None:
                    return None
                self._schemas[schema_id] = self._registered(found)
            return self._schemas[schema_id]

    def forget(self) -> None:
        """Forget all answers: the registry may have been set up anew."""
        with self._lock:
            for answers in (self._schemas, self._versions, self._ids, self._referred):
                answers.clear()
            self._client.clear_caches()

    def version(self, schema_id: int, subject: str) -> int | None:
        """Return the version of a schema under *subject*, None if it has none there."""
        return self.versions(schema_id).get(subject)

    def versions(self, schema_id: int) -> Mapping[str, int]:
        """Return the subjects that a schema is registered under, with its version in each."""
        with self._lock:
            if schema_id not in self._versions:
                found = self._asked(
                    f"for the versions of schema {schema_id}",
                    lambda: self._client.get_schema_versions(schema_id),
                )
                self._versions[schema_id] = {
                    _get(each, "subject"): _get(each, "version") for each in found or ()
                }
            return self._versions[schema_id]

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the id of *schema* under *subject*, registering it if it is not there yet.

        What it refers to must be registered already.
        """
        with self._lock:
            if (subject, schema) not in self._ids:
                found = self._asked(
                    f"to register a schema under {subject}",
                    lambda: self._client.register_schema(subject, _given(schema)),
                )
                if found is None:
                    raise RegistryError(
                        f"Schema Registry at {self._name} registered no schema under {subject}",
                        "it answered that there is no such subject",
                        "let the user of basic.auth.user.info write to the subject",
                    )
                self._ids[subject, schema] = int(found)
                self._versions.pop(int(found), None)
            return self._ids[subject, schema]

    def find(self, subject: str, schema: RegisteredSchema) -> int | None:
        """Return the id of *schema* under *subject*, None if it is not registered there."""
        with self._lock:
            if (subject, schema) not in self._ids:
                found = self._asked(
                    f"for a schema under {subject}",
                    lambda: self._client.lookup_schema(subject, _given(schema)),
                )
                if found is None:
                    return None
                self._ids[subject, schema] = int(_get(found, "schema_id"))
            return self._ids[subject, schema]

    def put(self, subject: str, schema: RegisteredSchema, schema_id: int, version: int) -> int:
        """Register *schema* under an id and a version of the caller's choice; return its id.

        The subject must be in the mode `IMPORT`.
        """
        body = {**_given(schema).to_dict(), "id": schema_id, "version": version}
        path = f"subjects/{quote(subject, safe='')}/versions"
        rest: Any = self._client._rest_client  # noqa: SLF001  (its own method takes no id)
        with self._lock:
            found = self._asked(
                f"to register schema {schema_id} under {subject}",
                lambda: rest.post(path, body=body),
            )
            new = int(found["id"]) if found else schema_id
            self._versions.pop(new, None)
        return new

    def versions_of(self, subject: str) -> list[int]:
        """Return the versions that a subject has; none if there is no such subject."""
        with self._lock:
            found = self._asked(
                f"for the versions of {subject}", lambda: self._client.get_versions(subject)
            )
        return list(found or ())

    def is_compatible(self, subject: str, schema: RegisteredSchema) -> bool:
        """Whether *subject* would take *schema* after the newest that it has."""
        given = _given(schema)
        with self._lock:
            found = self._asked(
                f"whether a schema is compatible with {subject}",
                lambda: self._client.test_compatibility(subject, given),
            )
        return found is not False

    def mode(self, subject: str | None = None) -> str | None:
        """Return the mode of a subject, or of the registry.

        None if the subject has none of its own, or the registry knows no modes.
        """

        def ask() -> Any:
            try:
                if subject is None:
                    return self._client.get_global_mode()
                return self._client.get_mode(subject)
            except SchemaRegistryError as error:
                if error.http_status_code in _NO_MODES:
                    return None
                raise

        with self._lock:
            return self._asked(f"for the mode of {subject or 'all subjects'}", ask)

    def set_mode(self, subject: str, mode: str | None) -> None:
        """Set the mode of a subject; None for that of the registry.

        Where a subject's own mode cannot be removed, None sets it to the registry's.
        """

        def ask() -> Any:
            if mode is not None:
                return self._client.update_mode(subject, mode)
            try:
                return self._client.delete_mode(subject)
            except SchemaRegistryError as error:
                if error.http_status_code not in _NO_MODES:
                    raise
            # Confluent's before 6.1 cannot take a mode away; the registry's own has that effect
            return self._client.update_mode(subject, self._client.get_global_mode())

        with self._lock:
            self._asked(f"to register schemas under ids of {subject}'s own", ask)

    def _registered(self, found: Any) -> RegisteredSchema:
        data = found.to_dict()
        rules = {name: data[name] for name in ("metadata", "ruleSet") if data.get(name)}
        return RegisteredSchema(
            found.schema_type or AVRO,
            found.schema_str or "",
            tuple(filter(None, map(self._reference, found.references or ()))),
            orjson.dumps(rules, option=orjson.OPT_SORT_KEYS).decode() if rules else "",
        )

    def _reference(self, each: Any) -> Reference | None:
        """Return what a schema refers to, asked for once; None if the registry does not know it."""
        place = each.subject, int(each.version)
        if place not in self._referred:
            found = self._asked(
                f"for version {each.version} of {each.subject}",
                lambda: self._client.get_version(each.subject, each.version, deleted=True),
            )
            if found is None:
                return None
            self._referred[place] = None  # of a schema that refers to itself there is no end
            try:
                self._referred[place] = self._registered(getattr(found, "schema", found))
            finally:
                if self._referred[place] is None:
                    del self._referred[place]
        schema = self._referred[place]
        return None if schema is None else Reference(each.name, each.subject, each.version, schema)

    def _asked(self, what: str, ask: Callable[[], T]) -> T | None:
        """Return the answer, None if what was requested does not exist."""
        given, began = self._settings, self._now()
        if self._silent is not None and began < self._silent[0]:
            raise self._unanswered(what, self._silent[1])
        self._silent = None
        for attempt in range(given.retries + 1):
            try:
                return ask()
            except SchemaRegistryError as error:
                if error.http_status_code == 404 and error.error_code in _UNKNOWN:
                    return None
                if error.http_status_code not in _PASSING or self._is_last(attempt, began):
                    raise self._refused(what, error) from error
            except Exception as error:  # its HTTP library is httpx2 or httpx, with their own errors
                if self._is_last(attempt, began):
                    why = f"{type(error).__name__}: {without_user(str(error))}"
                    now = self._now()
                    if now - began >= given.read_s:
                        self._silent = now + given.read_s, why
                    raise self._unanswered(what, why) from error
            wait_s = min(given.wait_s * 2**attempt, given.wait_max_s) * random.random()  # noqa: S311
            time.sleep(wait_s)
        return None

    def _is_last(self, attempt: int, began: float) -> bool:
        """Whether a question that began then is not asked again after its *attempt*."""
        given = self._settings
        is_over = attempt > 0 and self._now() - began >= given.read_s
        return is_over or attempt >= given.retries

    def _unanswered(self, what: str, why: str) -> RegistryError:
        return RegistryError(
            f"Schema Registry at {self._name} did not answer when asked {what}",
            why,
            "check that it runs, schema.registry.url, and the network; then run again",
        )

    def _refused(self, what: str, error: Any) -> RegistryError:
        status = error.http_status_code
        why = f"HTTP {status}: {without_user(str(error.error_message))[:300]}"
        if status in (401, 403):
            right = "register" if what.startswith("to register") else "read"
            user = f"a user who may {right} schemas"
            do = f"set basic.auth.user.info of the converter, or of schema.registry, to {user}"
            if self._settings.has_login:
                do = f"correct basic.auth.user.info, or what the URL says: it has to be {user}"
        elif status == 409:
            do = (
                "the subject has a schema that this one is not compatible with: restore under "
                "another name, or relax the compatibility of the subject"
            )
        elif status == 404:
            do = "correct schema.registry.url: what answers there is not a Schema Registry"
        else:
            do = "look at the registry's log; then run again"
        name = f"Schema Registry at {self._name}"
        return RegistryError(f"{name} refused when asked {what}", why, do)


def _get(found: Any, name: str) -> Any:
    """Return a field of an answer, which is an object or, in other versions, a mapping."""
    return found[name] if isinstance(found, dict) else getattr(found, name)


def _given(schema: RegisteredSchema) -> Any:
    """Return *schema* as the client takes it."""
    references = [
        SchemaReference(each.name, each.subject, each.version) for each in schema.references
    ]
    plain = Schema(schema.text, schema.kind, references).to_dict()
    return Schema.from_dict({**plain, **orjson.loads(schema.rules or "{}")})


def _properties(settings: RegistrySettings) -> dict[str, Any]:
    found: dict[str, Any] = {
        "url": ",".join(settings.urls),
        "timeout": (settings.connect_s, settings.read_s, settings.read_s, settings.connect_s),
        "max.retries": 0,  # `RegistryClient` repeats requests, within a time
    }
    given = {
        "basic.auth.user.info": settings.user,
        "ssl.ca.location": settings.ca,
        "ssl.certificate.location": settings.certificate,
        "ssl.key.location": settings.key,
        "ssl.key.password": settings.key_password,
        "proxy": settings.proxy,
    }
    return found | {name: value for name, value in given.items() if value}
