"""Turns what was given into `Settings`, errors and warnings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kbackup.config import sources
from kbackup.config.doubts import DEFAULT, Doubt, Origin, masked, to_error
from kbackup.config.judgement import Judgement
from kbackup.config.settings import BY_NAME, PROPERTIES, Settings, shown_value

Command = Literal[
    "sink",
    "ddl",
    "restore",
    "topics",
    "verify",
    "peek",
    "query",
    "thaw",
    "status",
    "settle",
    "prune",
    "config",
    "doctor",
]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that was read and is valid.

    Attributes:
        settings: The values.
        origins: Where each came from, by property; a property that is not in it has its default.
        warnings: Warnings about it.
        passed_on: Properties of Kafka's clients, converters and transforms, as they were given.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    warnings: tuple[Doubt, ...]
    passed_on: Mapping[str, str] = field(repr=False)

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
        files: ``--config``; later files take precedence.
        environ: All variables; those that begin with ``KBACKUP_`` are ours.
        extra: ``-X name=value``.

    Raises:
        ConfigurationError: It names every error with its origin; ``place["errors"]`` lists them.
    """
    judged = Judgement(sources.merge(options, files, environ, extra), command)
    settings = judged.judge()
    errors = [doubt for doubt in judged.doubts if doubt.level == "error"]
    if errors:
        raise to_error(errors)
    return Loaded(
        settings,
        {name: judged.given[name].origin for name in judged.used},
        tuple(judged.doubts),
        {name: judged.given[name].text for name in judged.used if name not in BY_NAME},
    )


def check(files: Sequence[Path], environ: Mapping[str, str]) -> list[Doubt]:
    """Return all errors and warnings about a configuration, errors first.

    The connector's class decides whether it is a sink's or a restore's.  A missing property that
    an option could supply, such as ``bootstrap.servers``, which no connector's file has, is a
    warning.
    """
    judged = Judgement(sources.merge({}, files, environ, ()), "config")
    judged.judge()
    return sorted(judged.doubts, key=lambda doubt: doubt.level != "error")
