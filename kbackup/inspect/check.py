"""What a run needs, checked before it is needed.

`examination.examine` yields one `Check` after the other.  Nothing is changed, except for probe
objects, which are written only on request and removed.  This module is light: what connects to a
cluster or a bucket is imported with `examination`.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from kbackup.config import ConfigIssue
from kbackup.errors import ConfigurationError, Issue, KbackupError
from kbackup.events import INLINE, NOT_SHOWN, NULL_IF_EMPTY

Area = Literal["configuration", "disk", "store", "kafka", "registry", "spark"]
Level = Literal["ok", "warn", "fail"]

EXIT_CODES: Final[dict[Area, int]] = {
    "configuration": 2,
    "disk": 2,
    "store": 6,
    "kafka": 5,
    "registry": 5,
    "spark": 9,
}
"""The exit code of a failed check, by area."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked.

    Attributes:
        area: The area that it belongs to.
        name: What was checked.
        level: ``ok``, ``warn`` (a run would continue) or ``fail``.
        text: What was found; what cannot be checked is reported as such, never as ``ok``.
        do: What the operator can do; may be empty.
        code: The code of the error that made it fail.
        place: Further fields, as plain JSON values.
        is_made: Whether it was checked at all, as it was asked for.
    """

    HEAD: ClassVar = {"type": "check"}

    area: Area
    name: str
    level: Level
    text: str
    do: str = field(default="", metadata=NULL_IF_EMPTY)
    code: str = field(default="check", metadata=NOT_SHOWN)
    place: dict[str, Any] = field(default_factory=dict, metadata=INLINE)
    is_made: bool = field(default=True, metadata=NOT_SHOWN)

    def issue(self) -> Issue:
        """Return a failed check as one of a summary's errors."""
        place = {**self.place, "area": self.area, "name": self.name}
        what = f"{self.area} {self.name}"
        return Issue(self.code, what, self.text, self.do, place, exit_code=EXIT_CODES[self.area])


def not_made(area: Area, name: str, why: str, do: str = "") -> Check:
    """Return the check that could not be made."""
    return Check(area, name, "warn", f"not checked: {why}", do, is_made=False)


def failed(area: Area, name: str, error: KbackupError) -> Check:
    """Return the check that *error* makes fail."""
    return Check(area, name, "fail", str(error), error.do, error.code)


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
    """Return the doubts that `kbackup.config.loading.load` combined into one error."""
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
