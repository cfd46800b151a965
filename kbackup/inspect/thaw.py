"""``restore thaw``: ask for archived objects, so that they can be read for some days."""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from kbackup import clock
from kbackup.catalog import listing
from kbackup.catalog.listing import Listed, frozen, not_in_backup, nothing_there
from kbackup.errors import ConfigurationError
from kbackup.events import Event
from kbackup.formats import FormatOptions
from kbackup.naming import Layout
from kbackup.runs.selection import select
from kbackup.stores import Store
from kbackup.stores.abilities import Archive, Tier

_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class Thawed:
    """What became of the archived objects of a topic.

    Attributes:
        topic: The topic; None for what the backup says about itself.
        asked: Objects asked for now, or that would be.
        thawing: Objects asked for before and not readable yet.
        ready: Objects that can be read.
        bytes: Of the objects asked for.
        until: When the first of those that are ready cannot be read any more; None without any.
    """

    topic: str | None
    asked: int
    thawing: int
    ready: int
    bytes: int
    until: datetime | None

    def to_dict(self) -> Event:
        """Return it as a line of ``--json``."""
        until = None if self.until is None else clock.rfc3339(self.until)
        return {"type": "thaw", **asdict(self), "until": until}


def thaw(
    store: Store,
    layout: Layout,
    options: FormatOptions,
    *,
    days: int,
    tier: Tier,
    names: Collection[str] = (),
    pattern: str | None = None,
    partitions: Collection[int] | None = None,
    only_format: str | None = None,
    is_dry: bool = False,
) -> Iterator[Thawed]:
    """Ask for the archived objects of topics, and of what the backup says about itself.

    Args:
        store: Where the backup is.
        layout: How objects are named.
        options: How objects are read.
        days: How long they stay readable.
        tier: How fast to retrieve them.
        names: Topics; all where there are none.
        pattern: A Java regular expression for topics, where there are no *names*.
        partitions: Only these of each topic; None for all.
        only_format: Only objects of this format, and their siblings; None for all.
        is_dry: Ask for nothing, only count.

    Yields:
        What became of each topic, by name; the objects of the ledger come first.

    Raises:
        IncompleteBackupError: If a topic of *names* is not in the backup.
        ConfigurationError: If the store has no archived objects.
        StoreError: If the store refuses.
    """
    if not isinstance(store, Archive):
        raise ConfigurationError(
            "this store has no archived objects", do="only objects in S3 can be archived"
        )
    found = listing.list_backup(store, layout, options, topics=names, only_format=only_format)
    chosen = select(found.topics(), names, pattern)
    if not chosen:
        raise nothing_there(layout.topics_dir or "the bucket")
    missing = next((topic for topic in chosen if topic not in found.topics()), None)
    if missing is not None:
        raise not_in_backup(missing, found)

    def files_of(topic: str) -> list[Listed]:
        return [
            file
            for where in found.partitions(topic)
            if partitions is None or where.partition in partitions
            for one in found.sets[where]
            for file in one.files
        ]

    own: list[Listed] = [*store.list(layout.records_prefix())]
    for topic, files in (("", own), *((topic, files_of(topic)) for topic in chosen)):
        cold = frozen(store, files)
        asked = cold.of("frozen")
        if not is_dry:
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(lambda file: store.thaw(file.key, days, tier), asked))
        if topic or cold.thaws:
            yield Thawed(
                topic or None,
                len(asked),
                len(cold.of("thawing")),
                len(cold.of("ready")),
                sum(file.size for file in asked),
                cold.until,
            )
