"""The backup that a command looks at: opened, with what is asked for of it and the summary."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self, TypedDict

from kbackup.cli.running import Session
from kbackup.clock import Clock, SystemClock
from kbackup.events import Plain
from kbackup.runs.summary import Summary

if TYPE_CHECKING:
    from kbackup.flow.views import ReadOptions
    from kbackup.naming import Layout
    from kbackup.runs.known import Known
    from kbackup.stores import Store, StoreSettings

# What reads a backup is imported where it is used: --help needs none of it.


class Asked(TypedDict):
    """Which partitions a command is about, as whatever looks takes it."""

    names: tuple[str, ...]
    pattern: str | None
    partitions: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class OpenedBackup:
    """What a command that only looks works on.

    Attributes:
        session: The command's.
        place: Where the backup is.
        store: The same, opened.
        layout: How its objects are named.
        summary: Gets what the command finds.
        clock: The time.
    """

    session: Session
    place: "StoreSettings"
    store: "Store"
    layout: "Layout"
    summary: Summary
    clock: Clock

    @classmethod
    def of(cls, session: Session, words: str) -> Self:
        """Open the backup that *session* is about, for the command *words*."""
        from kbackup.runs import wiring  # noqa: PLC0415
        from kbackup.runs.history import new_run_id  # noqa: PLC0415
        from kbackup.stores import open_store  # noqa: PLC0415

        place = wiring.store_settings(session.settings)
        summary = Summary(new_run_id(datetime.now(UTC)), words)
        layout = wiring.layout(session.settings)
        return cls(session, place, open_store(place), layout, summary, SystemClock())

    @property
    def asked(self) -> Asked:
        """Which partitions the command is about."""
        settings = self.session.settings
        return {
            "names": settings.topics,
            "pattern": settings.topics_regex,
            "partitions": settings.partitions,
        }

    @property
    def only_format(self) -> str | None:
        """The format to which reading is narrowed; None for all there is."""
        from kbackup.runs import wiring  # noqa: PLC0415

        return wiring.only_format(self.session.settings)

    def reading(self) -> "ReadOptions":
        """Return how objects are read."""
        from kbackup.runs import wiring  # noqa: PLC0415

        return wiring.reading(self.session.settings)

    def known(self, *, if_allowed: bool = False, topics: tuple[str, ...] = ()) -> "Known":
        """Return what the backup says about itself.

        Args:
            if_allowed: Do without where this principal may not read it; else that is an error.
            topics: Of these topics; none for those that the command is about.
        """
        from kbackup.runs import known  # noqa: PLC0415

        settings = self.session.settings
        read = known.read_if_allowed if if_allowed else known.read
        names = topics or settings.topics
        return read(self.store, self.layout, self.clock, names, settings.topics_regex)

    def tell(self, events: Iterable[Plain]) -> None:
        """Report all *events*."""
        for event in events:
            self.session.tell(event.to_dict())
