"""Checks of the configuration, of disk space, of the C library for Avro and of the registry."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace

from kbackup import files, formats
from kbackup.config import ConfigIssue, Settings
from kbackup.connect import native
from kbackup.connect.registry import RegistrySettings, connect
from kbackup.connect.registry.options import URL, settings_of
from kbackup.doctor import Check, failed
from kbackup.errors import ConfigurationError, KbackupError
from kbackup.runs import wiring
from kbackup.sink.job import SPOOL_BYTES


def doubt(found: ConfigIssue) -> Check:
    """Return a doubt as a check."""
    return Check(
        "configuration",
        found.name or found.code,
        "fail" if found.level == "error" else "warn",
        _text(found),
        found.do,
        ConfigurationError.code,
        {"code": found.code, "origin": found.origin or None},
    )


def doubts(error: ConfigurationError) -> list[ConfigIssue]:
    """Return the doubts that `kbackup.config.load` combined into one error."""
    listed = error.place.get("errors")
    if not listed:
        return [ConfigIssue("error", "configuration", "", "", error.what, error.why, error.do)]
    return [ConfigIssue("error", **entry) for entry in listed]


def _text(found: ConfigIssue) -> str:
    """Return value, reason and origin; the name precedes them already."""
    origin = f"({found.origin})"
    subject = found.what.removeprefix(found.name).removesuffix(origin).strip().removeprefix("=")
    text = ": ".join(filter(None, (subject, found.why)))
    place = found.origin.partition(" ")[2]
    is_said = not found.origin or (place != "" and place in text)
    return text if is_said else f"{text} {origin}"


def is_sink(settings: Settings) -> bool:
    """Whether the configuration can be a sink's: a source connector's has no group."""
    return settings.group is not None and not settings.renames


def losses(settings: Settings) -> Iterator[Check]:
    """Yield a warning for each part of a record that a sink would not keep."""
    if not is_sink(settings) or settings.view == "record":
        return
    if not settings.store_kafka_keys:
        yield _loss("store.kafka.keys", "keys are not stored, so a restore has none")
    if not settings.store_kafka_headers:
        yield _loss("store.kafka.headers", "headers are not stored, so a restore has none")
    separator = formats.by_name(settings.format_class).splits_at if settings.format_class else ""
    if separator:
        text = "a value that contains the separator is read back as two"
        do = "choose --view record, or a separator that no value contains"
        yield Check("configuration", separator, "warn", text, do)
    if settings.behavior_on_null_values == "ignore":
        text = "tombstones are left out, so a restore brings deleted keys back"
        yield Check("configuration", "behavior.on.null.values", "warn", text, "--view record")
    text = "the connectors' layout keeps no timestamps, and offsets of first records only"
    yield Check("configuration", "view", "warn", text, "--view record keeps full records")


def _loss(name: str, text: str) -> Check:
    do = f"set {name}=true, or choose --view record"
    return Check("configuration", name, "warn", text, do)


_MIB = 1 << 20


def disk_space(settings: Settings) -> Check:
    """Return whether ``TMPDIR`` is usable and has space for unfinished objects.

    Each core fills one file at a time.
    """
    try:
        folder = files.spool_folder()
    except KbackupError as error:
        return failed("disk", "TMPDIR", error)
    wanted = (os.cpu_count() or 1) * max(settings.rotate_bytes, SPOOL_BYTES)
    free = shutil.disk_usage(folder).free
    text = f"{folder} has {free // _MIB} MiB free"
    if free < wanted:
        text += f", and open files may take {wanted // _MIB} MiB"
        return Check("disk", "TMPDIR", "warn", text, "free some, or set TMPDIR to a larger disk")
    return Check("disk", "TMPDIR", "ok", text)


def avro_reader() -> Check:
    """Return how Avro values would be read: nothing but the speed depends on it."""
    name = "Avro reader"
    why = native.why_not()
    if not why:
        return Check("configuration", name, "ok", "Avro values are read by the C library")
    text = f"Avro values are read by Arrow and in Python, at about half the speed: {why}"
    do = "install kbackup where there is a C compiler (cc), or from a wheel for this platform"
    return Check("configuration", name, "warn", text, do)


_NOBODYS: int = 0
"""An id that no schema has: requesting it needs only the right to read."""


def registry_checks(settings: Settings) -> Iterator[Check]:
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
