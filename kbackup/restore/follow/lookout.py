"""What a restore that follows sees in the bucket, each time it looks."""

import hashlib
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from kbackup.backup import catalog as listing
from kbackup.backup.catalog import Catalog
from kbackup.config import Settings
from kbackup.errors import Failure, ObjectKeyError
from kbackup.restore.follow.asides import BUCKET
from kbackup.restore.follow.remarks import Remarks
from kbackup.runs import wiring
from kbackup.runs.known import Known
from kbackup.runs.record import NO_TOPIC
from kbackup.runs.selection import select
from kbackup.stores import Store

FOREIGN_MOST: Final = 20
"""Foreign objects that are named; all are counted."""


class Lookout:
    """Lists the bucket, and reports what is odd about it.

    Args:
        settings: Which backup, and which of its topics.
        store: Where it is.
        remarks: Takes what is odd.
        passes_over: Takes each object that is not the backup's, once.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        remarks: Remarks,
        passes_over: Callable[[Failure], None],
    ) -> None:
        self._settings, self._store, self._remarks = settings, store, remarks
        self._passes_over = passes_over
        self._foreign: set[str] = set()  # what the last listing had

    def catalog(self, topics: Collection[str]) -> Catalog:
        """Return what is there of *topics*; all where there are none.

        Raises:
            StoreError: If the listing cannot be had whole.
        """
        settings = self._settings
        return listing.read(
            self._store,
            wiring.layout(settings),
            wiring.format_options(settings),
            topics=topics,
            only_format=wiring.only_format(settings),
        )

    def names(self, there: Collection[str]) -> list[str]:
        """Return the topics to restore of those that are there; report which have yet to come."""
        settings = self._settings
        wanted = select(there, settings.topics, settings.topics_regex)
        missing = [name for name in wanted if name not in there]
        if missing or not wanted:
            what = ", ".join(missing) or f"a topic that matches {settings.topics_regex or '.*'}"
            place = f"{settings.url}/{settings.topics_dir}"
            self._remarks.odd((BUCKET, NO_TOPIC), [(NO_TOPIC, f"waiting for {what} in {place}")])
        else:
            self._remarks.odd((BUCKET, NO_TOPIC), [])
        return [name for name in wanted if name in there]

    def foreign(self, found: Catalog) -> None:
        """Report objects that are not the backup's, and those of another format."""
        keys = {f"{key} is ignored: {why}": key for key, why in found.foreign[:FOREIGN_MOST]}
        said = [("foreign_object", text) for text in keys]
        self._remarks.count("foreign_objects", found.foreign_count)
        self._remarks.odd((BUCKET, "foreign_object"), said, keys)
        self._remarks.odd((BUCKET, "left_out"), found.left_out())
        for key, why in found.foreign:
            if key not in self._foreign:
                self._passes_over(skipped(key, why))
        self._foreign = {key for key, _ in found.foreign}


def skipped(key: str, why: str) -> Failure:
    """Return the entry of an object that is not the backup's in the list of what is skipped."""
    return replace(ObjectKeyError(key, why).failure(), place={"key": key})


def stamps(found: Catalog, said: Known) -> dict[str, str]:
    """Return, for each topic, a digest of its objects and of what is said of it."""
    digests = {name: hashlib.sha256() for name in {*found.topics(), *said.topics}}
    for name, entry in said.topics.items():
        digests[name].update(f"{entry.identity} {entry.partitions} {entry.config}".encode())
    for where in sorted(found.sets):
        for files in found.sets[where]:
            for file in files.files:
                text = f"{file.key} {file.size} {file.modified}\n"
                digests[where.topic].update(text.encode(errors="surrogatepass"))
    return {name: digest.hexdigest() for name, digest in digests.items()}
