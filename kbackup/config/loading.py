"""Check what was given, and turn it into `Settings`, errors and warnings."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from kbackup import plugins
from kbackup.config import checks, foreign_names, selection, sources, transforms
from kbackup.config.foreign_names import RefusedProperty, is_slip_in_family, refusals_of
from kbackup.config.issues import (
    DEFAULT,
    ConfigIssue,
    Given,
    Origin,
    Value,
    masked,
    short,
    to_error,
    warning,
)
from kbackup.config.layout import CONNECTORS_EXTRACTOR
from kbackup.config.property import (
    CONVERTING,
    DRILL,
    KAFKA,
    KEYS,
    NAMING,
    READING,
    RESTORE,
    SETTLING,
    SINK,
    STATUS,
    names_store,
)
from kbackup.config.selection import NamedPlugins
from kbackup.config.settings import BY_NAME, OWN, PLACES, PROPERTIES, Settings, shown_value
from kbackup.errors import ConfigurationError
from kbackup.java.regex import PatternError
from kbackup.naming import View
from kbackup.naming.renaming import Rename, matching, rename
from kbackup.options import read_names
from kbackup.plugins import Step

_OWN_NAMES: Final = frozenset(found.name for found in OWN)
_NEAREST_MAX: Final = 50
"""The most unknown names for which the nearest name is looked up: each costs milliseconds."""
_FAMILIES: Final[tuple[Callable[[str], bool], ...]] = (
    lambda name: name in ("partitioner.class", "timezone", "timestamp.extractor") or _files(name),
    lambda name: name.startswith("s3.credentials.provider."),
    transforms.is_transform,
)
"""Properties that belong together: if one is refused, the others are not mentioned."""

_FOLLOW: Final = "follow"
_ONCE: Final = frozenset({"restore", "copy"})
"""A restore and a copy take it only from their own command line: the configuration file is often
the sink's, and one that does not end would be a surprise."""


def _is_restores(name: str) -> bool:
    """Whether *name* is a property that a restore takes and a sink does not."""
    return name in BY_NAME and bool(BY_NAME[name].commands & (RESTORE | SINK) == RESTORE)


def _files(name: str) -> bool:
    """Whether *name* is an option of a partitioner or a timestamp extractor."""
    extension_points_of = (
        {extension_point for extension_point, _ in BY_NAME[name].plugins}
        if name in BY_NAME
        else set()
    )
    return not extension_points_of.isdisjoint({"partitioners", "extractors"})


def _sides(command: str, connector: str | None) -> frozenset[str]:
    """Return the commands whose properties apply."""
    if command == "ddl":  # it describes what a sink will write
        return SINK
    if command in NAMING | DRILL:  # what tells a restore from another tells which one wrote it
        return RESTORE | {command}
    if command in SINK | READING | STATUS | KEYS:
        return frozenset({command})
    return SINK | {"restore"} if connector is None else frozenset({connector})


def _connector(given: Given) -> str | None:
    """Return the command that a connector's file corresponds to; None for other files."""
    named = given.get("connector.class")
    if named is None:
        return None
    return "restore" if "Source" in named.text.rpartition(".")[2] else "sink"


class ConfigValidator:
    """One configuration while it is checked.

    Attributes:
        used: Names that become settings.
        connectors: The files that are a connector's.
    """

    def __init__(self, merged: sources.Merged, command: str) -> None:
        self.given = merged.values
        self.command = command
        self.connector = _connector(self.given)
        self.connectors = merged.connectors
        self.sides = _sides(command, self.connector)
        self.issues = list(merged.issues)
        self.used: list[str] = []
        self.without_effect: list[str] = []
        self.is_complete = merged.is_complete

    def validate(self) -> Settings:
        """Return the settings; `issues` holds their errors and warnings."""
        self.issues += checks.blanks(self.given)
        bad = {issue.name for issue in self.issues if issue.level == "error"}
        self._sort(bad)
        self._excuse()
        readable = [name for name in self.used if name not in bad]
        unreadable = list(selection.refused_values(readable, self.given))
        self.issues += unreadable
        bad |= {issue.name for issue in unreadable}
        usable = selection.usable(self.used, self.given, bad)
        writes = "sink" in self.sides
        named, form = self.given.get("connector.class"), "format.class"
        takes_format = not self.sides.isdisjoint(BY_NAME[form].commands)
        found = NamedPlugins(usable, writes)
        found.resolve(
            converts=not self.sides.isdisjoint(CONVERTING),
            connector=None if named is None else named.text,
            lacks_format=takes_format and not self.given.text(form),
        )
        self._take(found.issues, found.without_effect)
        values: dict[str, Any] = {
            BY_NAME[name].attribute: value.value
            for name, value in usable.items()
            if name in _OWN_NAMES and name not in found.without_effect
        }
        self._derive(values, usable, found)
        for attribute, default in found.defaults.items():
            values.setdefault(attribute, default)
        if self.is_complete:
            is_known = "format.class" not in {*self.given} & {issue.name for issue in self.issues}
            self._requirements(
                cuts_by_number=is_known and found.view == "value" and not found.defaults
            )
        if writes:  # before a partitioner is tried, which would refuse a time zone once more
            self.issues += checks.zones_of(self.given)
        options = self._options(values | found.found, usable)
        self.issues += checks.suspicions(self.given, self.sides, self.without_effect)
        if self.sides & READING:
            mode = usable.text("mode")
            is_foreign = found.holds_records and (mode == "GENERIC" or not found.stores_batches)
            self.issues += checks.generic(self.given, mode, holds_records=is_foreign)
        if "restore" in self.sides:
            self.issues += checks.parse_errors(self.given)
            self.issues += checks.followed(self.given)
        if "sink" in self.sides:
            self.issues += checks.dead_letters(self.given)
            self.issues += checks.header_text(self.given)
        clients = {n: one for n, one in usable.items() if foreign_names.is_client_property(n)}
        kafka = foreign_names.translate(clients)
        self._take(kafka.issues, kafka.without_effect)
        self.issues += checks.logins(self.given, kafka.properties)
        renames = self._renames(usable)
        steps = self._steps(usable, found)
        self._route_topics(values)
        self._exclude_topics(values)
        self._refuse_misspelt()
        self._say_without_effect()
        return self._settings(
            values | found.found,
            renames=renames,
            transforms=steps,
            unasked_converters=tuple(self._unasked_converters(found.found)),
            plugin_options=options,
            **{f"kafka_{client}": pairs for client, pairs in kafka.properties.items()},
        )

    def _renames(self, usable: Given) -> tuple[Rename, ...]:
        """Return the routing of a sink, or the renaming of a restore, which `configs` uses too."""
        if self.sides.isdisjoint(SETTLING | SINK):
            return ()
        renaming = transforms.renaming_of(usable)
        self.issues += renaming.issues
        return renaming.steps

    def _unasked_converters(self, found: Mapping[str, Any]) -> Iterator[View]:
        """Yield the views whose converter is at most that of a file which a sink goes by too."""
        for view, name in ((View.KEY, "key.converter"), (View.VALUE, "value.converter")):
            given, plugin = self.given.get(name), found.get(name.replace(".", "_"))
            # options of one that registers say where and who, not what the records are to be
            has_own = plugin and not plugins.load("converters", plugin).traits.registers
            is_asked = self.connector == "restore" or any(
                value.origin.kind != "file"
                for each, value in self.given.items()
                if each == name or (has_own and each.startswith(f"{name}."))
            )
            if not (given and given.text and is_asked):
                yield view

    def _route_topics(self, values: dict[str, Any]) -> None:
        """Where a backup is read by the sink's file, let its topics be those that it stored."""
        # names from elsewhere are the backup's own
        named = self.given.get("topics")
        is_of_sink = self.connector == "sink" and not self.sides.isdisjoint(READING | SETTLING)
        if not is_of_sink or named is None or named.origin.kind != "file" or "topics" not in values:
            return
        own = {name: one for name, one in self.given.items() if transforms.is_transform(name)}
        if steps := transforms.renaming_of(Given(own)).steps:
            values["topics"] = tuple(rename(topic, steps) for topic in read_names(named.value))

    def _exclude_topics(self, values: dict[str, Any]) -> None:
        """Leave what is to be left out of the topics that are named; of none, take all others."""
        excluded = self.given.get("topics.exclude")
        if excluded is None or "topics_exclude" not in values or not excluded.text:
            return
        named = values.get("topics")
        if named is None and "sink" in self.sides:  # only the restore of a backup has all it finds
            values.setdefault("topics_regex", ".*")
        if named is None:
            return
        try:
            out = {*matching(names := read_names(named), excluded.text, "topics.exclude")}
        except (PatternError, ConfigurationError):
            return  # which is reported as what it is
        values["topics"] = tuple(name for name in names if name not in out)
        if out and not values["topics"]:
            why, do = "it leaves out every topic that is named", "correct one of the two"
            self.issues.append(self.given.error("topics", "topics.exclude", why, do))
        if names and not out:
            why, do = "it matches none of the topics that are named", "remove or correct it"
            self.issues.append(self.given.warning("no_effect", "topics.exclude", why, do))

    def _steps(self, usable: Given, found: NamedPlugins) -> tuple[Step, ...]:
        if "restore" in self.sides:
            sides = {"key", "value"}
            known = frozenset(side for side in sides if f"{side}_converter" in found.found)
            steps = transforms.restore_steps(usable, known)
        elif "sink" in self.sides:
            has_keys = usable.is_true("store.kafka.keys")
            steps = transforms.steps(usable, found.view, has_keys=has_keys)
        else:
            return ()
        if steps.steps and "sink" in self.sides and found.stores_batches:
            why, do = selection.OF_RECORDS, selection.AS_PARQUET
            self.issues.append(self.given.error("combination", "transforms", why, do))
        said = {(issue.level, issue.name) for issue in self.issues}  # by `_renames`
        self.issues += [one for one in steps.issues if (one.level, one.name) not in said]
        return steps.steps

    def _take(self, issues: Iterable[ConfigIssue], without_effect: Iterable[str]) -> None:
        self.issues += issues
        self.without_effect += without_effect

    def _sort(self, bad: set[str]) -> None:
        """Separate what is used from what is refused, without effect or unknown."""
        unknown = 0
        for name, value in self.given.items():
            rows = refusals_of(name)
            refusal = next((row for row in rows if self._is_refused(row, name, value, bad)), None)
            if refusal is not None:
                self.issues.append(self.given.error("unsupported", name, refusal.why, refusal.do))
                bad.add(name)
            elif self._is_used(name, value):
                self.used.append(name)
            elif name in BY_NAME and value.origin.kind == "env":
                self.without_effect.append(name)  # exported for the commands that have the option
            elif foreign_names.is_known(name) and not is_slip_in_family(name, self.given):
                self.without_effect.append(name)
            else:
                unknown += 1
                why, do = "no such property; it has no effect", ""
                if unknown <= _NEAREST_MAX:
                    why, do = foreign_names.nearest(name)
                what = f"{short(name)} ({value.origin})"
                origin = str(value.origin)
                self.issues.append(
                    ConfigIssue("warning", "unknown_name", name, origin, what, why, do)
                )

    def _refuse_misspelt(self) -> None:
        """Let a name that there is not be an error, but where a connector's file has it."""
        for at, issue in enumerate(self.issues):
            given = self.given.get(issue.name)  # no variable that there is not is in it
            if issue.code != "unknown_name" or given is None:
                continue
            is_looked_up = issue.do != ""
            # a connector ignores what it does not know; a slip of our own names is not meant for it
            if given.origin.file not in self.connectors or (
                is_looked_up and foreign_names.is_slip(issue.name)
            ):
                self.issues[at] = replace(
                    issue,
                    level="error",
                    why=issue.why.removesuffix("; it has no effect"),
                    do=issue.do or "correct or remove it",
                )

    def _is_refused(self, refusal: RefusedProperty, name: str, value: Value, bad: set[str]) -> bool:
        counts = name not in bad and not refusal.commands.isdisjoint(self.sides)
        if not counts or not refusal.applies(value.text):
            return False
        return refusal.reads_others({name: value.text for name, value in self.given.items()})

    def _is_used(self, name: str, value: Value) -> bool:
        if name in BY_NAME:
            found = BY_NAME[name]
            if not found.is_property and value.origin.kind == "file":
                return False
            if name == _FOLLOW and self.command in _ONCE and value.origin.kind == "file":
                return False
            is_typed = not found.is_property and value.origin.kind == "option"
            return bool(found.commands & self.sides) or is_typed
        if transforms.is_transform(name):
            return "sink" in self.sides or ("restore" in self.sides and self.connector != "sink")
        # where a restore stands is asked from any host, which need not reach its cluster
        talks = not self.sides.isdisjoint(KAFKA) and self.command not in NAMING - KAFKA
        return foreign_names.is_client_property(name) and talks

    def narrowing(self) -> Iterator[str]:
        """Yield the variables that choose the command's records, or their topics."""
        for name in checks.NARROWING:
            if name in self.used and BY_NAME[name].commands & self.sides:
                origin = self.given[name].origin
                yield from [origin.place] if origin.kind == "env" else []

    def _options(self, settings: dict[str, Any], usable: Given) -> dict[str, Any]:
        """Return what was given for the options of the chosen plugins; note what has no effect."""
        reads = self.sides != SINK
        idle = set(selection.idle(self.used, settings, reads=reads))
        self.without_effect += [name for name in self.used if name in idle]
        kept = {name: value for name, value in usable.items() if name not in idle}
        values = selection.option_values(Given(kept))
        if self.is_complete:
            lacks = list(selection.missing(settings, self.given, self.sides))
            self.issues += lacks
            bad = {issue.name for issue in self.issues if issue.level == "error"}
            if "sink" in self.sides:
                self.issues += selection.unusable(settings, values, bad)
            if reads:
                self.issues += selection.unreadable(values, bad)
        return values

    def _derive(self, values: dict[str, Any], usable: Given, found: NamedPlugins) -> None:
        """Fill in the defaults that depend on other values."""
        if found.view == "value" and "sink" in self.sides and not found.defaults:
            values.setdefault("rotate_bytes", -1)
            if not self._is_timeless(usable, found):
                self._derive_times(values, usable)
            interval = usable.get("rotate.interval.ms")
            if interval is None:
                values["rotate_interval_ms"] = -1
            elif checks.is_positive(interval) and self._is_timeless(usable, found):
                why = "the default partitioner uses no time: ignored, as in the connector"
                do = "set rotate.bytes, or full records, or remove it"
                self.issues.append(usable.warning("ignored", "rotate.interval.ms", why, do))
                values["rotate_interval_ms"] = -1
        schedule = usable.get("rotate.schedule.interval.ms")
        if schedule is not None and checks.is_positive(schedule):
            values.setdefault("rotate_idle_ms", 2**63 - 1)  # the clock closes files, not a pause
        width = str(values.get("filename_offset_zero_pad_width", "")).strip()
        if width and not width.strip("+0"):
            values["filename_offset_zero_pad_width"] = 1
        if "group" not in usable and "sink" in self.sides:
            values["group"] = self._group(usable)
            if self.connector == "sink" and not usable.text("name"):
                why = f"not given, so the group is {values['group']}, not the connector's"
                do = "set name to the connector's, or --group to its group"
                self.issues.append(warning("assumed", "name", None, why, do))

    def _derive_times(self, values: dict[str, Any], usable: Given) -> None:
        """Fill in the connectors' defaults for time, and warn of a surprising one."""
        if "timestamp.extractor" not in usable:
            values["timestamp_extractor"] = CONNECTORS_EXTRACTOR
            why = f"not given, so the connector's {CONNECTORS_EXTRACTOR} applies: directories show "
            why += "when a record was backed up"
            do = "set timestamp.extractor=Record to file by the records' own time"
            self.issues.append(warning("assumed", "timestamp.extractor", None, why, do))
        values.setdefault("rotate_file_on_partition_change", True)

    def _is_timeless(self, usable: Given, found: NamedPlugins) -> bool:
        """Whether the partitioner does not depend on time."""
        asked = usable.get("partitioner.class")
        name = found.found.get("partitioner_class")
        if asked is not None and name is None:
            return False  # refused by name
        chosen = plugins.load("partitioners", name or BY_NAME["partitioner.class"].default)
        return not chosen.traits.goes_by_time

    def _group(self, usable: Given) -> str:
        """Return the consumer group of a sink: the connector's, so that its offsets are used."""
        if self.connector is not None and (name := usable.text("name")):
            return f"connect-{name}"
        place = usable.text("store.url")
        if not names_store(place):
            place = next((usable[found.name].text for found in PLACES if found.name in usable), "")
        folder = usable.text("topics.dir") if "topics.dir" in usable else "topics"
        return "-".join(part for part in ("kbackup", place, folder) if part)

    def _requirements(self, *, cuts_by_number: bool) -> None:
        elsewhere: frozenset[str] = frozenset()
        needed = self.command
        if needed == "config":
            needed = self.connector or ("sink" if self.sides == SINK else "restore")
            elsewhere = frozenset({"bootstrap.servers"})
            if self.connector is None:
                elsewhere |= {"topics", *(found.name for found in PLACES)}
        self.issues += checks.requirements(
            needed, self.given, cuts_by_number=cuts_by_number, elsewhere=elsewhere
        )

    def _excuse(self) -> None:
        """Let placeholders be that nobody filled in, where the value is not read."""
        unread = {*self.without_effect}
        unread |= {issue.name for issue in self.issues if issue.code == "unknown_name"}
        self.issues = [
            replace(issue, level="warning")
            if issue.code == "placeholder" and issue.name in unread
            else issue
            for issue in self.issues
        ]

    def _say_without_effect(self) -> None:
        self._excuse()
        refused = {issue.name for issue in self.issues if issue.level == "error"}
        idle = [name for name in dict.fromkeys(self.without_effect) if name not in refused]
        for belongs in _FAMILIES:
            if any(map(belongs, refused)):
                idle = [name for name in idle if not belongs(name)]
        told = {found.name for found in PLACES} & {issue.name for issue in self.issues}
        unsaid = [name for name in idle if name not in told]
        if self.command not in ("sink", "restore", "config"):  # to these a run's file is given
            typed = {name for name, value in self.given.items() if value.origin.kind == "option"}
            unsaid = [name for name in unsaid if name in typed]
        restored = [name for name in unsaid if self.command == "config" and _is_restores(name)]
        others = [name for name in unsaid if name not in restored]
        for names, why in (
            (others, "accepted, but without effect here"),
            (restored, "for a restore alone, without effect in a sink"),
        ):
            if text := ", ".join(names):
                self.issues.append(ConfigIssue("warning", "no_effect", text, "", text, why))
        self.used = [name for name in self.used if name not in idle]

    def _settings(self, values: dict[str, Any], **more: Any) -> Settings:
        """Return the settings; each invalid value is replaced by its default and reported."""
        for found in OWN:
            if found.attribute in values:
                try:
                    found.read(values[found.attribute])
                except ValueError as problem:
                    del values[found.attribute]
                    why = str(problem)
                    self.issues.append(self.given.error("value", found.name, why, "correct it"))
        return Settings(**values, **more)


Command = Literal[
    "sink",
    "ddl",
    "reindex",
    "accept",
    "copy",
    "expire",
    "abort-uploads",
    "keys",
    "restore",
    "list",
    "cat",
    "query",
    "verify",
    "against",
    "status",
    "restore-status",
    "thaw",
    "configs",
    "groups",
    "access",
    "drill",
    "config",
    "doctor",
]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that was read and is valid.

    Attributes:
        origins: Where each came from, by property; a property that is not in it has its default.
        passed_on: Properties of Kafka's clients, converters and transforms, as they were given.
        narrowing: Variables that choose records, or their topics: one may have been left.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    warnings: tuple[ConfigIssue, ...]
    passed_on: Mapping[str, str] = field(repr=False)
    narrowing: tuple[str, ...] = ()

    @property
    def names_restore(self) -> bool:
        """Whether it tells one restore from others: a file does, and options for that do."""
        tells = {
            found.name
            for found in PROPERTIES
            if "restore-status" in found.commands and "status" not in found.commands
        }
        return any(origin.kind == "file" or name in tells for name, origin in self.origins.items())

    def shown(self, all: bool = False) -> list[tuple[str, str, str]]:  # noqa: A002
        """Return name, value and origin of what was given or derived, or of all properties.

        Values are the effective ones, as they would be written in a file; secrets are masked.
        """
        rows = []
        for found in PROPERTIES:
            effective = self.settings.value_of(found)
            if all or found.name in self.origins or effective != found.default:
                text = masked(found.name, shown_value(effective))
                rows.append((found.name, text, str(self.origins.get(found.name, DEFAULT))))
        return rows + [
            (name, masked(name, text), str(self.origins[name]))
            for name, text in sorted(self.passed_on.items())
        ]


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
        command: Decides which properties apply and which are required; "config" and "doctor"
            require none.
        options: By attribute or property name, as text or as click parsed it; None and () mean not
            given.

    Raises:
        ConfigurationError: It names every error with its origin; ``place["errors"]`` lists them.
    """
    validator = ConfigValidator(sources.merge(options, files, environ, extra), command)
    settings = validator.validate()
    errors = [issue for issue in validator.issues if issue.level == "error"]
    if errors:
        raise to_error(errors)
    return Loaded(
        settings,
        {name: validator.given[name].origin for name in validator.used},
        tuple(validator.issues),
        {name: validator.given[name].text for name in validator.used if name not in BY_NAME},
        tuple(validator.narrowing()),
    )


@dataclass(frozen=True, slots=True)
class CheckedConfig:
    """What there is to say of a configuration.

    Attributes:
        issues: All errors and warnings, errors first.
        settings: With defaults in the places of what is wrong.
        runs: What it is for, each with the names that keep it from one: a connector's file is for
            its own side, any other for both.
    """

    issues: list[ConfigIssue]
    settings: Settings
    runs: list[tuple[str, list[str]]]


def check(files: Sequence[Path], environ: Mapping[str, str]) -> CheckedConfig:
    """Judge a configuration, whose files and secrets are read once.

    The connector's class decides whether it is a sink's or a restore's.  A missing property that
    an option could supply, such as ``bootstrap.servers``, which no connector's file has, is a
    warning.
    """
    merged = sources.merge({}, files, environ, ())
    validator = ConfigValidator(merged, "config")
    settings, runs = validator.validate(), []
    for command in ("sink", "restore"):
        if validator.connector in (None, command):
            run = ConfigValidator(merged, command)
            run.validate()
            runs.append((command, [one.name for one in run.issues if one.level == "error"]))
    issues = sorted(validator.issues, key=lambda issue: issue.level != "error")
    return CheckedConfig(issues, settings, runs)
