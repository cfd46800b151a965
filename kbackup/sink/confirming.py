"""Whether a committed position and the bucket agree: one listing, from the last object on."""

from dataclasses import dataclass, replace
from typing import Final

from kbackup.errors import ObjectKeyError
from kbackup.kafka import Position
from kbackup.naming import Layout, ObjectKey, View
from kbackup.records import Facts, TopicIdentity, TopicPartition
from kbackup.reports import LastObject
from kbackup.sink.beyond import from_on
from kbackup.stores import ObjectHead, Store

_ANY: Final = ".any"
"""An extension that no object has."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a committed position, and the object it names, say.

    Attributes:
        is_confirmed: The object is in the bucket, or the committer needed none.
        identities: Which topic they are of.
        is_behind: The group was set back, and has not come to the end of what was stored then.
        is_spread: The partition may have several directories, of which one was listed.
    """

    is_confirmed: bool = False
    identities: tuple[TopicIdentity, ...] = ()
    is_behind: bool = False
    is_spread: bool = False


UNCONFIRMED: Final = Confirmation()


def confirm(
    store: Store, layout: Layout, where: TopicPartition, position: Position
) -> Confirmation:
    """Return what a position says, and whether the bucket agrees and nothing follows.

    Raises:
        StoreError: If the store does not answer.
    """
    bookmark = LastObject.read(position.metadata)
    if bookmark is None:
        return UNCONFIRMED
    last = bookmark.of
    if bookmark.at != position.offset:  # moved since, or of a version that did not keep it
        return Confirmation(identities=(last.identity,))
    is_behind = last.again_to is not None
    found = _following(store, layout, where, position.offset, last.key)
    if found.has_more:  # another run has stored what follows
        return Confirmation(identities=(last.identity,))
    said = Confirmation(True, (last.identity,), is_behind, found.is_spread)
    if last.key is None or (found.size is not None and found.size == last.size):
        return said  # without a key, kbackup committed that it had nothing to store before it
    is_ours = last.key.startswith(layout.prefix(where.topic))
    head = _head(store, last.key) if is_ours else None
    if head is None or last.last_offset is None:  # an object of another tool, counted once
        return replace(said, is_confirmed=head is not None)
    facts = Facts.from_metadata(head.metadata)
    is_there = facts is not None and facts.last_offset >= last.last_offset
    identities = (last.identity, TopicIdentity.from_metadata(head.metadata))
    return replace(said, is_confirmed=is_there, identities=identities)


def _head(store: Store, key: str) -> ObjectHead | None:
    try:
        return store.head(key)
    except ObjectKeyError:
        return None  # a key that this store cannot have


@dataclass(frozen=True, slots=True)
class _Following:
    """What a listing shows from a partition's last object on.

    Attributes:
        size: Of that object, in bytes; None where the listing does not have it.
        has_more: Objects of the partition follow it.
        is_spread: The partition may have other directories too.
    """

    size: int | None = None
    has_more: bool = False
    is_spread: bool = False


def _following(
    store: Store, layout: Layout, where: TopicPartition, offset: int, key: str | None
) -> _Following:
    """List from the last object on, in its directory; nothing where that is another backup's."""
    if key is not None and not key.startswith(layout.prefix(where.topic)):
        return _Following()  # it is in another topics.dir, or was stored under another name
    whole = f"partition={where.partition}"
    size, has_more, is_first = None, False, key is None
    try:
        key = key or layout.key(
            ObjectKey(where.topic, where.partition, offset, whole, _ANY, View.VALUE)
        )
        for one, _ in from_on(store, layout, key):
            if one.key != key:
                has_more = True
                break
            size = one.size
        directory = layout.parse(key).encoded_partition
    except ObjectKeyError:
        return _Following()
    is_spread = not layout.is_dated and (is_first or directory != whole)
    return _Following(size, has_more, is_spread)
