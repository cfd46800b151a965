"""A registry through confluent-kafka's own client, with its errors translated."""

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kbackup.errors import ConfigurationError, RegistryError
from kbackup.registry import AVRO, RegisteredSchema, RegistrySettings, without_user

try:
    from confluent_kafka.schema_registry import (
        Schema,
        SchemaRegistryClient,
        SchemaRegistryError,
    )
except ImportError as problem:
    raise ConfigurationError(
        "Schema Registry needs libraries that are not installed",
        str(problem),
        "pip install 'kbackup[registry]'",
    ) from problem

T = TypeVar("T")

_UNKNOWN: Final = (40401, 40402, 40403)
"""Error codes of an unknown subject, version and schema."""


class RegistryClient:
    """One registry, and all of its answers so far."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._name = settings.name
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

    def version(self, schema_id: int, subject: str) -> int | None:
        """Return the version of a schema under *subject*, None if it has none there."""
        with self._lock:
            if schema_id not in self._versions:
                found = self._asked(
                    f"for the versions of schema {schema_id}",
                    lambda: self._client.get_schema_versions(schema_id),
                )
                self._versions[schema_id] = {
                    _get(each, "subject"): _get(each, "version") for each in found or ()
                }
            return self._versions[schema_id].get(subject)

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the id of *schema* under *subject*, registering it if it is not there yet."""
        with self._lock:
            known = self._ids.get((subject, schema))
            if known is not None:
                return known
            given = Schema(schema.text, schema.kind)
            found = self._asked(
                f"to register a schema under {subject}",
                lambda: self._client.register_schema(subject, given),
            )
            if found is None:
                raise RegistryError(
                    f"Schema Registry at {self._name} registered no schema under {subject}",
                    "it answered that there is no such subject",
                    "let the user of basic.auth.user.info write to the subject",
                )
            self._ids[subject, schema] = int(found)
            return int(found)

    def _registered(self, found: Any) -> RegisteredSchema:
        imports: dict[str, str] = {}
        self._gather(found, imports)
        return RegisteredSchema(
            found.schema_type or AVRO, found.schema_str or "", tuple(imports.items())
        )

    def _gather(self, schema: Any, imports: dict[str, str]) -> None:
        """Add the schemas that *schema* refers to, each after those that it itself refers to."""
        for each in schema.references or ():
            if each.name in imports:
                continue
            found = self._asked(
                f"for version {each.version} of {each.subject}",
                lambda each=each: self._client.get_version(  # type: ignore[misc]
                    each.subject, each.version, deleted=True
                ),
            )
            if found is not None:
                inner = getattr(found, "schema", found)
                self._gather(inner, imports)
                imports[each.name] = inner.schema_str or ""

    def _asked(self, what: str, ask: Callable[[], T]) -> T | None:
        """Return the answer, None if what was requested does not exist.

        Raises:
            RegistryError: If there is no answer, or an error.
        """
        try:
            return ask()
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code in _UNKNOWN:
                return None
            raise self._refused(what, error) from error
        except Exception as error:  # its HTTP library is httpx2 or httpx, with errors of their own
            raise RegistryError(
                f"Schema Registry at {self._name} did not answer when asked {what}",
                f"{type(error).__name__}: {without_user(str(error))}",
                "check that it runs, schema.registry.url, and the network; then run again",
            ) from error

    def _refused(self, what: str, error: Any) -> RegistryError:
        status = error.http_status_code
        why = f"HTTP {status}: {without_user(str(error.error_message))[:300]}"
        if status in (401, 403):
            right = "register" if what.startswith("to register") else "read"
            do = (
                "set basic.auth.credentials.source=USER_INFO and basic.auth.user.info, with a user "
                f"who may {right} schemas"
            )
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


def _properties(settings: RegistrySettings) -> dict[str, Any]:
    found: dict[str, Any] = {
        "url": ",".join(settings.urls),
        "timeout": (settings.connect_s, settings.read_s, settings.read_s, settings.connect_s),
        "max.retries": settings.retries,
        "retries.wait.ms": settings.wait_s * 1000,
        "retries.max.wait.ms": settings.wait_max_s * 1000,
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
