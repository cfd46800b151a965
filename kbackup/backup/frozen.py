"""Which objects of a backup are archived, and when they can be read."""

from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kbackup import moments
from kbackup.backup.file_sets import BackupFile
from kbackup.errors import KbackupError, RefusedError
from kbackup.plurals import counted, form
from kbackup.stores import Store, StoredObject
from kbackup.stores.archive import ARCHIVED, Archive, Thaw

_THREADS: Final = 16

Listed = BackupFile | StoredObject
"""An object, whatever is known of its name."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """The archived objects among some.

    Attributes:
        thaws: How far each has come.
    """

    thaws: Mapping[Listed, Thaw]

    def of(self, state: str) -> list[Listed]:
        """Return those that have come so far: `Thaw.state`."""
        return [file for file, thaw in self.thaws.items() if thaw.state == state]

    @property
    def until(self) -> datetime | None:
        """When the first of those that can be read now cannot be read any more."""
        ends = (one.until for one in self.thaws.values() if one.until is not None)
        return min(ends, default=None)

    @property
    def is_readable(self) -> bool:
        """Whether all of them can be read now."""
        return all(one.state == "ready" for one in self.thaws.values())

    def refusals(self, topic: str, target: str) -> list[KbackupError]:
        """Refuse to restore *topic* while an object of it cannot be read."""
        waiting = [*self.of("frozen"), *self.of("thawing")]
        if not waiting:
            return []
        classes = Counter(file.storage_class for file in waiting)
        kinds = " and ".join(f"{number} in {name}" for name, number in sorted(classes.items()))
        thawing = len(self.of("thawing"))
        have = form(thawing, "has been requested and is", "have been requested and are")
        asked = f"; {thawing} of them {have} on the way" if thawing else ""
        return [
            RefusedError(
                f"{counted(len(waiting), 'object')} of {topic} cannot be read now",
                f"they are archived: {kinds}{asked}",
                f"request them: kbackup restore thaw -t {topic}; restore when all can be read",
                topic=target,
            )
        ]

    def warnings(self, topic: str) -> list[tuple[str, str]]:
        """Return until when archived objects can be read, with a code."""
        if self.until is None or not self.is_readable:
            return []
        ready, until = len(self.of("ready")), moments.text(self.until)
        objects = counted(ready, "archived object")
        return [("archived", f"{topic}: {objects} can be read until {until}")]


def frozen(store: Store, files: Iterable[Listed]) -> Frozen:
    """Return what is archived of *files*: a request for each such object, none for others.

    Raises:
        StoreError: If the store does not answer.
    """
    archived = [file for file in files if file.storage_class in ARCHIVED]
    if not archived or not isinstance(store, Archive):
        return Frozen({})
    with ThreadPoolExecutor(_THREADS) as pool:
        thaws = pool.map(lambda file: store.thawed(file.key), archived)
        return Frozen(dict(zip(archived, thaws, strict=True)))
