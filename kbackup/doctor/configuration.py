"""The configuration: what `kbackup.config` doubts, and settings that lose something."""

from collections.abc import Iterator

from kbackup import formats
from kbackup.config import Doubt, Settings
from kbackup.doctor import Check
from kbackup.errors import ConfigurationError


def doubt(found: Doubt) -> Check:
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


def doubts(error: ConfigurationError) -> list[Doubt]:
    """Return the doubts that `kbackup.config.load` combined into one error."""
    listed = error.place.get("errors")
    if not listed:
        return [Doubt("error", "configuration", "", "", error.what, error.why, error.do)]
    return [Doubt("error", **entry) for entry in listed]


def _text(found: Doubt) -> str:
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
    yield Check("configuration", "view", "warn", text, "--view record keeps whole records")


def _loss(name: str, text: str) -> Check:
    do = f"set {name}=true, or choose --view record"
    return Check("configuration", name, "warn", text, do)
