"""All of it together: what was given, to `Settings` and what there is to say."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from kbackup.config import checks, clients, known, refusals, seams, sources, transforms
from kbackup.config.doubts import (
    DEFAULT,
    Doubt,
    Origin,
    Value,
    error,
    masked,
    to_error,
    warning,
)
from kbackup.config.property import READING, SINK
from kbackup.config.settings import BY_NAME, PROPERTIES, Settings, by_attribute, shown_value
from kbackup.errors import ConfigurationError

Command = Literal["sink", "restore", "topics", "verify", "peek", "config", "doctor"]

_NEAREST_MAX: Final = 50
"""Unknown names for which a nearest one is looked up: each costs some milliseconds."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that was read and found good.

    Attributes:
        settings: The values.
        origins: Where each came from, by property; what is not in it is a default.
        warnings: What there is to say against it.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    warnings: tuple[Doubt, ...]
    given: Mapping[str, str]

    def shown(self, *, all: bool = False) -> list[tuple[str, str, str]]:  # noqa: A002
        """Return name, value and origin of what differs from the defaults, or of all properties.

        Secrets are masked; a value is as it was written, a default as one would write it.
        """
        rows = []
        for found in PROPERTIES:
            effective = getattr(self.settings, found.attribute)
            if all or found.name in self.given or effective != found.default:
                text = self.given.get(found.name, shown_value(effective))
                origin = self.origins.get(found.name, DEFAULT)
                rows.append((found.name, masked(found.name, text), str(origin)))
        others = sorted(self.given.keys() - BY_NAME.keys())
        rows += [(name, masked(name, self.given[name]), str(self.origins[name])) for name in others]
        return rows


def load(
    command: Command,
    *,
    options: Mapping[str, object],
    files: Sequence[Path],
    environ: Mapping[str, str],
    extra: Sequence[str] = (),
) -> Loaded:
    """Read a configuration for *command*.

    Args:
        command: Decides which properties count and which are needed; "config" and "doctor" need
            none.
        options: By attribute or property name, text or what click made of it; None and () are not
            given.
        files: ``--config``, the last one first in rank.
        environ: All variables; those that begin with ``KBACKUP_`` are ours.
        extra: ``-X name=value``.

    Raises:
        ConfigurationError: Naming every error with its origin; ``place["errors"]`` lists them.
    """
    merged = sources.merge(options, files, environ, extra)
    judged = _Judged(merged, _sides(command, merged.values))
    settings = judged.judge(command)
    errors = [doubt for doubt in judged.doubts if doubt.level == "error"]
    if errors:
        raise to_error(errors)
    return Loaded(
        settings,
        {name: merged.values[name].origin for name in judged.used},
        tuple(judged.doubts),
        {name: merged.values[name].text for name in judged.used},
    )


def check(files: Sequence[Path], environ: Mapping[str, str]) -> list[Doubt]:
    """Return all there is to say about a configuration, errors first.

    The connector's class decides whether it is a sink's or a restore's.  What an option could
    still bring, such as ``bootstrap.servers``, which no connector's file has, is a warning.
    """
    merged = sources.merge({}, files, environ, ())
    judged = _Judged(merged, _sides("config", merged.values))
    judged.judge("config")
    return sorted(judged.doubts, key=lambda doubt: doubt.level != "error")


def _sides(command: str, given: Mapping[str, Value]) -> frozenset[str]:
    """Return the commands whose properties count."""
    if command in SINK | READING:
        return frozenset({command})
    match _connector(given):
        case "sink":
            return SINK
        case "restore":
            return frozenset({"restore"})
    return SINK | {"restore"}


def _connector(given: Mapping[str, Value]) -> str | None:
    """Return what the connector of this file would be to us; None where it is no connector's."""
    named = given.get("connector.class")
    if named is None:
        return None
    return "restore" if "Source" in named.text.rpartition(".")[2] else "sink"


class _Judged:
    """One configuration while it is judged.

    Attributes:
        doubts: What was found so far.
        used: Names that end in the settings.
    """

    def __init__(self, merged: sources.Merged, sides: frozenset[str]) -> None:
        self.given = merged.values
        self.sides = sides
        self.doubts = list(merged.doubts)
        self.used: list[str] = []
        self.without_effect: list[str] = []
        self.connector = _connector(self.given)

    def judge(self, command: Command) -> Settings:
        """Return the settings; what is wrong with them is in `doubts`."""
        bad = {doubt.name for doubt in self.doubts if doubt.level == "error"}
        self._sort(bad)
        usable = {name: self.given[name] for name in self.used if name not in bad}
        writes = "sink" in self.sides
        found = seams.resolve(usable, writes=writes, is_connector=self.connector is not None)
        self._take(found.doubts, found.without_effect)
        values: dict[str, Any] = {
            BY_NAME[name].attribute: value.value
            for name, value in usable.items()
            if name in BY_NAME
        }
        self._derive(values, usable, found)
        self._requirements(command, found.view)
        if not self.sides <= READING:
            self.doubts += checks.suspicions(self.given, self.sides)
        kafka = clients.translate(
            {name: value for name, value in usable.items() if clients.is_client_property(name)}
        )
        self._take(kafka.doubts, kafka.without_effect)
        renaming = transforms.chain(usable)
        self._take(renaming.doubts, [])
        self._say_without_effect()
        return self._settings(
            values | found.found,
            renames=renaming.steps,
            **{f"kafka_{client}": pairs for client, pairs in kafka.properties.items()},
        )

    def _take(self, doubts: Iterable[Doubt], without_effect: Iterable[str]) -> None:
        self.doubts += doubts
        self.without_effect += without_effect

    def _sort(self, bad: set[str]) -> None:
        """Tell what is used from what is refused, without effect or unknown."""
        unknown = 0
        for name, value in self.given.items():
            refusal = refusals.find(name)
            if refusal is not None and self._is_refused(refusal, name, value, bad):
                self.doubts.append(error("unsupported", name, value, refusal.why, refusal.do))
                bad.add(name)
            elif self._is_used(name, value):
                self.used.append(name)
            elif known.is_known(name):
                self.without_effect.append(name)
            else:
                unknown += 1
                why, do = "no such property; it has no effect", ""
                if unknown <= _NEAREST_MAX:
                    why, do = known.nearest(name)
                what = f"{name} ({value.origin})"
                origin = str(value.origin)
                self.doubts.append(Doubt("warning", "unknown_name", name, origin, what, why, do))

    def _is_refused(
        self, refusal: refusals.Refusal, name: str, value: Value, bad: set[str]
    ) -> bool:
        counts = name not in bad and not refusal.commands.isdisjoint(self.sides)
        return counts and refusal.applies(value.text)

    def _is_used(self, name: str, value: Value) -> bool:
        if name in BY_NAME:
            found = BY_NAME[name]
            if not found.is_property and value.origin.kind == "file":
                return False
            return bool(found.commands & self.sides) or not found.is_property
        if transforms.is_transform(name):
            return "restore" in self.sides and self.connector != "sink"
        if name.startswith(known.CONVERTER_PREFIXES):
            return not self.sides.isdisjoint({"sink", "restore", "peek"})
        return clients.is_client_property(name) and not self.sides.isdisjoint({"sink", "restore"})

    def _derive(
        self, values: dict[str, Any], usable: Mapping[str, Value], found: seams.Seams
    ) -> None:
        """Fill in the defaults that depend on other values."""
        if found.view == "value" and "sink" in self.sides:
            values.setdefault("rotate_bytes", -1)
            interval = usable.get("rotate.interval.ms")
            if interval is not None and not interval.text.startswith("-"):
                why = "the default partitioner has no time to go by: ignored, as the connector does"
                do = "set rotate.bytes, or whole records, or remove it"
                self.doubts.append(warning("ignored", "rotate.interval.ms", interval, why, do))
            values["rotate_interval_ms"] = -1
        width = str(values.get("filename_offset_zero_pad_width", "")).strip()
        if width and not width.strip("+0"):
            values["filename_offset_zero_pad_width"] = 1
        if "group" not in usable and self.sides == SINK:
            values["group"] = self._group(usable)

    def _group(self, usable: Mapping[str, Value]) -> str:
        """Return the consumer group of a sink: the connector's, so that its offsets count."""
        if self.connector is not None and "name" in usable:
            return f"connect-{usable['name'].text}"
        url = usable.get("store.url")
        is_folder = url is not None and url.text.startswith("file://")
        place = url if is_folder else usable.get("s3.bucket.name")
        folder = usable.get("topics.dir")
        parts = ("" if place is None else place.text, "topics" if folder is None else folder.text)
        return "-".join(part for part in ("kbackup", *parts) if part)

    def _requirements(self, command: Command, view: str) -> None:
        elsewhere: frozenset[str] = frozenset()
        needed: str = command
        if command == "config":
            needed = self.connector or ("sink" if self.sides == SINK else "restore")
            elsewhere = frozenset({"bootstrap.servers"})
            if self.connector is None:
                elsewhere |= {"topics", "s3.bucket.name"}
        self.doubts += checks.requirements(
            needed, self.given, is_value_view=view == "value", elsewhere=elsewhere
        )

    def _say_without_effect(self) -> None:
        refused = {doubt.name for doubt in self.doubts if doubt.level == "error"}
        idle = [name for name in dict.fromkeys(self.without_effect) if name not in refused]
        if "partitioner.class" in refused:
            idle = [name for name in idle if name not in known.OF_PARTITIONERS]
        if idle:
            names = ", ".join(idle)
            why = "accepted, and without effect here"
            self.doubts.append(Doubt("warning", "no_effect", names, "", names, why))
        self.used = [name for name in self.used if name not in idle]

    def _settings(self, values: dict[str, Any], **more: Any) -> Settings:
        """Return the settings, what is not valid replaced by its default and doubted."""
        try:
            return Settings.model_validate(values | more)
        except ValidationError as problem:
            for detail in problem.errors(include_url=False, include_input=False):
                attribute = str(detail["loc"][0])
                values.pop(attribute, None)
                name = by_attribute()[attribute].name
                why = (
                    detail["msg"]
                    .removeprefix("Value error, ")
                    .replace("Input should be", "expected")
                )
                self.doubts.append(error("value", name, self.given.get(name), why, "correct it"))
            return Settings.model_validate(values | more)


__all__ = ["Command", "ConfigurationError", "Loaded", "check", "load"]
