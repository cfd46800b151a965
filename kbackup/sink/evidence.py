"""What group, bucket and log say of each partition, gathered with as few requests as will do."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kbackup.errors import ObjectKeyError
from kbackup.kafka import Position
from kbackup.naming import Layout, View
from kbackup.records import Facts, Span, TopicPartition
from kbackup.sink.start import Evidence, LastObject
from kbackup.stores import Store

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
        confirmed = dict(
            zip(
                committed,
                pool.map(lambda at: _is_confirmed(store, at), committed.values()),
                strict=True,
            )
        )
        doubtful = [where for where in logs if not confirmed.get(where, False)]
        last_keys = _last_objects(store, layout, doubtful)
        heads = pool.map(store.head, last_keys.values())
        facts = {
            where: None if head is None else Facts.from_metadata(head.metadata)
            for where, head in zip(last_keys, heads, strict=True)
        }
    found = {}
    for where, log in logs.items():
        known = facts.get(where)
        found[where] = Evidence(
            log,
            committed.get(where),
            confirmed.get(where, False),
            None if known is None else known.last_offset + 1,
            where in last_keys,
        )
    return found


def _is_confirmed(store: Store, position: Position) -> bool:
    last = LastObject.from_metadata(position.metadata)
    if last is None:
        return False
    if last.key is None:
        return True  # kbackup's own word that it had nothing to store before this offset
    try:
        head = store.head(last.key)
    except ObjectKeyError:
        return False  # a key that this store cannot have
    facts = None if head is None else Facts.from_metadata(head.metadata)
    return (
        facts is not None
        and last.last_offset is not None
        and (facts.last_offset >= last.last_offset)
    )


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
