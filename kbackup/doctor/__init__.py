"""What a run needs, checked before it is needed.

`examination.examine` yields one `Check` after the other; nothing is changed anywhere, but for the
probe objects that are asked for, and removed.  This module is light: what talks to a cluster or a
bucket is imported with `examination`.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kbackup.errors import KbackupError
from kbackup.events import Event

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
"""What a failed check of an area makes of the exit code."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        area: What it is part of.
        name: What was looked at.
        level: ``ok``, ``warn`` (a run would continue) or ``fail``.
        text: What was found; what cannot be checked is called so, and is never ``ok``.
        do: What the operator can do; may be empty.
        code: Of the error that a failure stands for.
        place: Further fields, as plain JSON values.
    """

    area: Area
    name: str
    level: Level
    text: str
    do: str = ""
    code: str = "check"
    place: dict[str, Any] = field(default_factory=dict)

    def event(self) -> Event:
        """Return the check as it is told."""
        return {
            "type": "check",
            "area": self.area,
            "name": self.name,
            "level": self.level,
            "text": self.text,
            "do": self.do or None,
            **self.place,
        }

    def failure(self) -> Event:
        """Return a failed check as an entry of a summary's errors."""
        return {
            **self.place,
            "code": self.code,
            "exit_code": EXIT_CODES[self.area],
            "what": f"{self.area} {self.name}",
            "why": self.text,
            "do": self.do,
            "area": self.area,
            "name": self.name,
        }


def failed(area: Area, name: str, error: KbackupError) -> Check:
    """Return the check that *error* makes fail."""
    return Check(area, name, "fail", str(error), error.do, error.code)
