"""The Schema Registry of records and of converters: whether it answers and schemas may be read."""

from collections.abc import Iterator
from dataclasses import replace

from kbackup.config import Settings
from kbackup.doctor import Check, failed
from kbackup.errors import KbackupError
from kbackup.registry import RegistrySettings, connect
from kbackup.registry.options import URL, settings_of
from kbackup.runs import wiring

_NOBODYS: int = 0
"""An id that no schema has: requesting it needs only the right to read."""


def checks(settings: Settings) -> Iterator[Check]:
    """Yield a check of each registry that is used, once for all of its uses."""
    asked: dict[RegistrySettings, list[str]] = {}
    given = wiring.schema_registry(settings)
    if given is not None:
        asked[given] = ["records"]
    parts = [("value", settings.value_converter_properties)] if settings.view != "record" else []
    if parts and settings.store_kafka_keys:
        parts.insert(0, ("key", settings.key_converter_properties))
    for part, properties in parts:
        if URL.of(properties):
            asked.setdefault(settings_of(properties), []).append(part)
    for registry, names in asked.items():
        yield _readable(registry, " and ".join(names))


def _readable(registry: RegistrySettings, name: str) -> Check:
    try:
        connect(replace(registry, retries=0)).schema(_NOBODYS)
    except KbackupError as error:
        return failed("registry", name, error)
    return Check("registry", name, "ok", f"{registry.name} answers, and schemas can be read")
