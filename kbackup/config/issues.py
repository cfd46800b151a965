"""Say where a value came from, and what is wrong with it."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from kbackup.errors import ConfigurationError

MASK: Final = "********"
SHOWN_MAX: Final = 200
"""Characters of a name or a value that a message quotes."""

_SECRET: Final = re.compile(
    r"password|passwd|secret|jaas|token|passphrase|credential|user\.?info|customer\.key"
    r"|access.?key|oauthbearer\.config|api\.key|private|ssl\.key\.pem|keystore\.key|license|(^|\.)auth\.",
    re.IGNORECASE,
)
_USER_INFO: Final = re.compile(r"://[^/@\s]*@")
_PAIR: Final = re.compile(r"(?<![\w.-])([\w.-]++)=([^,\s]*)")
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
    """Where a value was given: *place* is the variable, or file and line; empty for the others."""

    kind: Literal["option", "env", "file", "default"]
    place: str = ""

    @property
    def file(self) -> str:
        """The path of the file; empty if it was given elsewhere."""
        return self.place.rpartition(":")[0] if self.kind == "file" else ""

    def __str__(self) -> str:
        return f"{self.kind} {self.place}" if self.place else self.kind


DEFAULT: Final = Origin("default")


@dataclass(frozen=True, slots=True)
class Value:
    """What was given for a property.

    Attributes:
        value: Text, or from the command line a bool, int or tuple of texts.
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


@dataclass(frozen=True, slots=True)
class ConfigIssue:
    """One error or warning about a configuration.

    Attributes:
        level: "error" stops a run (exit 2), "warning" does not.
        name: The property, or several separated by commas; empty for the whole configuration.
        origin: Where its value came from; empty if it was not given.
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
        """The issue as a sentence."""
        return f"{self.what}: {self.why}" if self.why else self.what


def error(code: str, name: str, given: Value | None, why: str, do: str = "") -> ConfigIssue:
    """Return a issue that stops a run."""
    return ConfigIssue("error", code, name, *_about(name, given), short(why, 600), do)


def warning(code: str, name: str, given: Value | None, why: str, do: str = "") -> ConfigIssue:
    """Return a issue that does not stop a run."""
    return ConfigIssue("warning", code, name, *_about(name, given), short(why, 600), do)


def _about(name: str, given: Value | None) -> tuple[str, str]:
    """Return the origin and the subject of a issue about *name*."""
    return ("", name) if given is None else (str(given.origin), given.shown(name))


class Given(dict[str, Value]):
    """What was given, by property."""

    def text(self, name: str) -> str:
        """Return what was given for *name*; empty where nothing was."""
        return self[name].text if name in self else ""

    def is_true(self, name: str) -> bool:
        """Whether *name* was given as true."""
        return self.text(name).lower() == "true"

    def error(self, code: str, name: str, why: str, do: str = "") -> ConfigIssue:
        """Return an issue about *name* that stops a run."""
        return error(code, name, self.get(name), why, do)

    def warning(self, code: str, name: str, why: str, do: str = "") -> ConfigIssue:
        """Return an issue about *name* that does not stop a run."""
        return warning(code, name, self.get(name), why, do)


def to_error(issues: list[ConfigIssue]) -> ConfigurationError:
    """Return one error that combines *issues*, all of which are errors.

    Its ``place["errors"]`` lists each with ``code``, ``name``, ``origin``, ``what``, ``why`` and
    ``do``.
    """
    keys = ("code", "name", "origin", "what", "why", "do")
    errors = [{key: getattr(issue, key) for key in keys} for issue in issues]
    if len(issues) == 1:
        return ConfigurationError(issues[0].what, issues[0].why, issues[0].do, errors=errors)
    return ConfigurationError(
        f"{len(issues)} errors in the configuration",
        "\n".join(f"{issue.text}{f' -- {issue.do}' if issue.do else ''}" for issue in issues),
        "correct them; kbackup config check --config FILE lists them again",
        errors=errors,
    )
