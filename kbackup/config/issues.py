"""Where a value came from, what is wrong with it, and what is refused by name.

A row is a property, the values that would change what is written or read, and why not.  Those of
formats, converters and other plugins are not here: each plugin declares what it does not support,
see `kbackup.options`.

Source of names, defaults and effects: kafka-connect-storage-cloud 87eb7d39,
``S3SinkConnectorConfig``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

from kbackup import plugins
from kbackup.config.property import PREFIXES, READING, RUNS, SINK
from kbackup.config.settings import BY_NAME
from kbackup.errors import ConfigurationError
from kbackup.options import given, other_than

MASK: Final = "********"
SHOWN_MAX: Final = 200
"""Characters of a name or a value that a message quotes."""

_SECRET: Final = re.compile(
    r"password|passwd|secret|jaas|token|passphrase|credential|user\.?info|customer\.key"
    r"|access.?key|oauthbearer\.config|api\.key|private|ssl\.key\.pem|keystore\.key|license|(^|\.)auth\.",
    re.IGNORECASE,
)
_USER_INFO: Final = re.compile(r"://[^/@\s]*@")
_PAIR: Final = re.compile(r"([\w.-]+)=([^,\s]*)")
_NOT_SECRET: Final = re.compile(
    r"(location|class|url|urls|source|arn|region|role\.session\.name|role\.external\.id)$",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether the value of property *name*, kbackup's own or not, must never be shown."""
    return _SECRET.search(name) is not None and _NOT_SECRET.search(name) is None


def masked(name: str, text: str) -> str:
    """Return the *text* of property *name* with its secrets masked."""
    if not text:
        return text
    if is_secret(name):
        return MASK
    return _PAIR.sub(
        lambda pair: f"{pair[1]}={MASK}" if is_secret(pair[1]) else pair[0],
        _USER_INFO.sub(f"://{MASK}@", text),
    )


def short(text: str, length: int = SHOWN_MAX) -> str:
    """Return *text*, or its first *length* characters if it is too long for a message."""
    return text if len(text) <= length else f"{text[:length]}..."


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was given.

    Attributes:
        kind: "option", "env", "file" or "default".
        place: The variable, or file and line; empty for the others.
    """

    kind: Literal["option", "env", "file", "default"]
    place: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.place}" if self.place else self.kind


DEFAULT: Final = Origin("default")


@dataclass(frozen=True, slots=True)
class Value:
    """What was given for a property.

    Attributes:
        value: Text, or from the command line a bool, int or tuple of texts.
        origin: Where.
        folder: What a relative path in one of its placeholders is relative to; None if it must
            not contain any.
    """

    value: object = field(repr=False)
    origin: Origin
    folder: Path | None = None

    @property
    def text(self) -> str:
        """The value as text without surrounding blanks."""
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, list | tuple):
            return ",".join(map(str, self.value))
        return str(self.value).strip()

    def shown(self, name: str) -> str:
        """Return ``name=value (origin)``, with the value masked if it is secret."""
        return f"{short(name)}={short(masked(name, self.text))} ({self.origin})"


def is_true(given: Mapping[str, Value], name: str) -> bool:
    """Whether *name* was given as true."""
    return name in given and given[name].text.lower() == "true"


@dataclass(frozen=True, slots=True)
class ConfigIssue:
    """One error or warning about a configuration.

    Attributes:
        level: "error" stops a run (exit 2), "warning" does not.
        code: The kind of doubt, for scripts.
        name: The property, or several separated by commas; empty for the whole configuration.
        origin: Where its value came from; empty if it was not given.
        what: What it is about.
        why: What is wrong with it, or will happen.
        do: What the operator can do; may be empty.
    """

    level: Literal["error", "warning"]
    code: str
    name: str
    origin: str
    what: str
    why: str
    do: str = ""

    @property
    def text(self) -> str:
        """The doubt as a sentence."""
        return f"{self.what}: {self.why}" if self.why else self.what


def error(code: str, name: str, given: Value | None, why: str, do: str = "") -> ConfigIssue:
    """Return a doubt that stops a run."""
    return ConfigIssue("error", code, name, *_about(name, given), short(why, 600), do)


def warning(code: str, name: str, given: Value | None, why: str, do: str = "") -> ConfigIssue:
    """Return a doubt that does not stop a run."""
    return ConfigIssue("warning", code, name, *_about(name, given), short(why, 600), do)


def _about(name: str, given: Value | None) -> tuple[str, str]:
    """Return the origin and the subject of a doubt about *name*."""
    return ("", name) if given is None else (str(given.origin), given.shown(name))


def to_error(doubts: list[ConfigIssue]) -> ConfigurationError:
    """Return one error that combines *doubts*, all of which are errors.

    Its ``place["errors"]`` lists each with ``code``, ``name``, ``origin``, ``what``, ``why`` and
    ``do``.
    """
    keys = ("code", "name", "origin", "what", "why", "do")
    errors = [{key: getattr(doubt, key) for key in keys} for doubt in doubts]
    if len(doubts) == 1:
        return ConfigurationError(doubts[0].what, doubts[0].why, doubts[0].do, errors=errors)
    return ConfigurationError(
        f"{len(doubts)} errors in the configuration",
        "\n".join(f"{doubt.text}{f' -- {doubt.do}' if doubt.do else ''}" for doubt in doubts),
        "correct them; kbackup config check --config FILE lists them again",
        errors=errors,
    )


_BOTH: Final = SINK | READING


@dataclass(frozen=True, slots=True)
class RefusedProperty:
    """One row.

    Attributes:
        name: The property.
        applies: Whether a value, without surrounding blanks, asks for what cannot be done.
        why: The reason.
        do: What to do instead.
        commands: The commands that use the property.
        reads_others: Whether the other properties let it have its effect.
        is_built_in: Whether it comes with kbackup.
    """

    name: str
    applies: Callable[[str], bool]
    why: str
    do: str
    commands: frozenset[str] = _BOTH
    reads_others: Callable[[Mapping[str, str]], bool] = lambda _: True
    is_built_in: bool = True


_ROWS: Final = (
    RefusedProperty(
        "file.discovery.starting.timestamp",
        other_than("0", ""),
        "it would leave objects out by when they were stored, and this version restores all",
        "remove it, and choose records with --from-time or --from-offset",
        READING,
    ),
    RefusedProperty(
        "filename.regex",
        other_than(r"(.+)\+(\d+)\+.+$", ""),
        "names are parsed by directory.delim and file.delim",
        "set file.delim, and remove it",
        READING,
    ),
    RefusedProperty(
        "kafka.api.key",
        given,
        "only a managed connector has such a key",
        "set security.protocol=SASL_SSL, sasl.mechanism=PLAIN, sasl.username and sasl.password",
    ),
    RefusedProperty(
        "kafka.api.secret",
        given,
        "only a managed connector has such a secret",
        "set sasl.password",
    ),
)

_COMMANDS: Final = {"converters": RUNS}
"""The commands that refuse what a plugin does not support, by seam; the others: all."""

_CHOOSE: Final = {
    "formats": "format.class",
    "partitioners": "partitioner.class",
    "extractors": "timestamp.extractor",
    "stores": "store.url",
}
"""The property that names a seam's plugin; a converter's is the prefix of its own."""


def _of_plugins() -> Iterator[RefusedProperty]:
    """Yield a row for each property that an installed plugin declares as unsupported."""
    for found in plugins.refused():
        one = found.property
        both = _COMMANDS.get(found.seam, _BOTH)
        commands = {"sink": both & SINK, "restore": both - SINK, "both": both}[one.commands]
        for prefix in PREFIXES.get(found.seam, ("",)):
            chooses = _CHOOSE.get(found.seam, prefix.removesuffix("."))
            yield RefusedProperty(
                prefix + one.name,
                one.applies,
                one.why,
                one.do,
                commands,
                partial(_is_chosen, found, chooses),
                found.is_built_in,
            )


def _is_chosen(found: plugins.Refused, chooses: str, given: Mapping[str, str]) -> bool:
    """Whether the property has its effect: no other plugin is named."""
    named = given.get(chooses) or BY_NAME[chooses].default
    if not named or (found.seam == "formats" and found.property.commands == "restore"):
        return True  # a worker's converter; and the objects themselves say what reads them
    if found.seam == "stores":
        return named.partition("://")[0] in found.plugins
    try:
        return plugins.by_class_name(found.seam, named) in found.plugins
    except ConfigurationError:
        return False  # refused by its own name


def _stores_headers(given: Mapping[str, str]) -> bool:
    return given.get("store.kafka.headers", "").lower() == "true"


def _other_header_text(text: str) -> bool:
    return text.rpartition(".")[2] not in ("", "StringConverter")


_HEADERS: Final = RefusedProperty(
    "header.converter",
    _other_header_text,
    "files of headers hold the values' text as it is, as with StringConverter; "
    "SimpleHeaderConverter parses the text and writes it anew, 1.50 as 1.5 and 007 as 7, others "
    "write base64 or JSON",
    "set it to org.apache.kafka.connect.storage.StringConverter, or store.kafka.headers=false",
    SINK,
    _stores_headers,
)

REFUSALS: Final = (*_ROWS, _HEADERS, *_of_plugins())


def refusals_of(name: str) -> tuple[RefusedProperty, ...]:
    """Return the rows for property *name*, one for each reason."""
    return tuple(refusal for refusal in REFUSALS if refusal.name == name)
