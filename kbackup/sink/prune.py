"""``sink prune``: abort the unfinished uploads that killed runs left."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from kbackup import clock
from kbackup.errors import ConfigurationError, ObjectKeyError
from kbackup.events import Event
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.runs.selection import select
from kbackup.runs.summary import Summary
from kbackup.stores import Store
from kbackup.stores.abilities import UnfinishedUpload, Uploads


@dataclass(frozen=True, slots=True)
class Pruned:
    """An upload that is aborted, or would be.

    Attributes:
        upload: The upload.
        where: The partition of the object that it would have become.
    """

    upload: UnfinishedUpload
    where: TopicPartition

    def to_dict(self) -> Event:
        """Return it as a line of ``--json``."""
        return {
            "type": "upload", "key": self.upload.key, "topic": self.where.topic,
            "partition": self.where.partition, "begun": clock.rfc3339(self.upload.begun),
        }  # fmt: skip


def prune(
    store: Store,
    layout: Layout,
    summary: Summary,
    *,
    now: datetime,
    older_than_s: float,
    names: Collection[str] = (),
    pattern: str | None = None,
    partitions: Collection[int] | None = None,
    is_dry: bool = False,
) -> Iterator[Pruned]:
    """Abort the unfinished uploads of a backup's objects.

    Those of other keys below ``topics.dir`` are left alone, and so are younger ones: a run may be
    at work on them.

    Args:
        store: Where the backup is.
        layout: How objects are named.
        summary: Gets the counts.
        now: The time.
        older_than_s: How long ago an upload must have been begun.
        names: Only those of these topics; all where there are none.
        pattern: A Java regular expression for topics, where there are no *names*.
        partitions: Only these of each topic; None for all.
        is_dry: Abort nothing.

    Yields:
        Each upload that is aborted, or would be.

    Raises:
        ConfigurationError: If the store has no such uploads.
        StoreError: If the store refuses.
    """
    if not isinstance(store, Uploads):
        raise ConfigurationError(
            "this store has no uploads in parts",
            do="only S3 has any; others clean up by themselves",
        )
    limit = now - timedelta(seconds=older_than_s)
    found = {
        one: where
        for one in store.unfinished(layout.prefix())
        if (where := _where(layout, one)) is not None
    }
    chosen = set(select({where.topic for where in found.values()}, names, pattern))
    aborted = younger = 0
    for one, where in found.items():
        if where.topic not in chosen or not (partitions is None or where.partition in partitions):
            continue
        if one.begun >= limit:
            younger += 1
            continue
        if not is_dry:
            store.abort(one)
        aborted += 1
        yield Pruned(one, where)
    summary.facts |= {"aborted": 0 if is_dry else aborted, "found": aborted, "younger": younger}


def _where(layout: Layout, upload: UnfinishedUpload) -> TopicPartition | None:
    """Return the partition of the object that it would have become; None for others."""
    try:
        key = layout.parse(upload.key)
    except ObjectKeyError:
        return None
    return TopicPartition(key.topic, key.partition)
