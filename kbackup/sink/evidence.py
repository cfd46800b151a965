"""What group, bucket and log say of each partition, gathered with as few requests as will do."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from kbackup.errors import ObjectKeyError
from kbackup.kafka import Position
from kbackup.naming import Layout, View
from kbackup.records import Facts, Span, TopicIdentity, TopicPartition
from kbackup.reports import Bookmark
from kbackup.sink.start import Evidence
from kbackup.stores import ObjectHead, Store

_THREADS: Final = 16
"""One HEAD a partition decides how long a run with nothing to do takes."""


def gather(
    store: Store,
    layout: Layout,
    logs: Mapping[TopicPartition, Span],
    committed: Mapping[TopicPartition, Position],
) -> dict[TopicPartition, Evidence]:
    """Return what is known of each partition of *logs*.

    A partition whose committed offset names the object before it costs one HEAD.  The others
    cost a listing of their topic, and a HEAD of their last object.

    Raises:
        StoreError: If the bucket cannot be asked.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        answers = pool.map(lambda at: _confirm(store, at), committed.values())
        confirmed = dict(zip(committed, answers, strict=True))
        doubtful = [where for where in logs if not confirmed.get(where, _UNKNOWN).is_confirmed]
        last_keys = _last_objects(store, layout, doubtful)
        heads = dict(zip(last_keys, pool.map(store.head, last_keys.values()), strict=True))
    found = {}
    for where, log in logs.items():
        said = confirmed.get(where, _UNKNOWN)
        metadata = {} if (head := heads.get(where)) is None else head.metadata
        known = Facts.from_metadata(metadata)
        found[where] = Evidence(
            log,
            committed.get(where),
            said.is_confirmed,
            None if known is None else known.last_offset + 1,
            where in last_keys,
            (*said.identities, TopicIdentity.from_metadata(metadata)),
        )
    return found


@dataclass(frozen=True, slots=True)
class _Confirmation:
    """What a committed position, and the object it names, say.

    Attributes:
        is_confirmed: The object is in the bucket, or the committer needed none.
        identities: Which topic they are of.
    """

    is_confirmed: bool = False
    identities: tuple[TopicIdentity, ...] = ()


_UNKNOWN: Final = _Confirmation()


def _confirm(store: Store, position: Position) -> _Confirmation:
    last = Bookmark.from_metadata(position.metadata)
    if last is None:
        return _UNKNOWN
    if last.key is None:  # kbackup's own word that it had nothing to store before this offset
        return _Confirmation(True, (last.identity,))
    head = _head(store, last.key)
    if head is None:
        return _Confirmation(False, (last.identity,))
    facts = Facts.from_metadata(head.metadata)
    is_there = last.last_offset is not None and (
        facts is not None and facts.last_offset >= last.last_offset
    )
    return _Confirmation(is_there, (last.identity, TopicIdentity.from_metadata(head.metadata)))


def _head(store: Store, key: str) -> ObjectHead | None:
    try:
        return store.head(key)
    except ObjectKeyError:
        return None  # a key that this store cannot have


def _last_objects(
    store: Store, layout: Layout, wheres: Sequence[TopicPartition]
) -> dict[TopicPartition, str]:
    """Return the key of each partition's object with the highest start offset."""
    wanted = set(wheres)
    best: dict[TopicPartition, tuple[int, str]] = {}
    for topic in sorted({where.topic for where in wheres}):
        for entry in store.list(layout.prefix(topic)):
            try:
                parts = layout.parse(entry.key)
            except ObjectKeyError:
                continue
            where = TopicPartition(parts.topic, parts.partition)
            if where not in wanted or parts.view not in (View.RECORD, View.VALUE):
                continue
            if where not in best or best[where][0] < parts.start_offset:
                best[where] = (parts.start_offset, entry.key)
    return {where: key for where, (_, key) in best.items()}
