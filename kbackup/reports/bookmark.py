"""What is committed beside an offset, and what a sink's offset rests on."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from kbackup.kafka import Position
from kbackup.records import UNKNOWN, TopicIdentity
from kbackup.reports.done import NOTHING, Done

_JSON: Final = json.JSONDecoder()


class Ground(Protocol):
    """What must still be there for a committed offset to mean anything."""

    def to_dict(self) -> Mapping[str, Any]:
        """Return it as plain data."""
        ...


Of = TypeVar("Of", bound=Ground)


@dataclass(frozen=True, slots=True)
class Bookmark(Generic[Of]):
    """What is kept beside a committed offset: what it rests on, and who committed it.

    It lets the next run see that group, bucket and target agree.  It carries the offset itself:
    what moves an offset may keep the metadata.

    Attributes:
        of: What the offset rests on: of a sink the `LastObject`, of a restore the `Mark`.
        run: Id of the run that committed; empty where it was not kept.
        done: What that run had done in this partition by then: where a task dies, the one that
            takes over continues from here, and no count is lost.
        at: The offset that it was committed with; None where it was not kept, or not committed yet.
    """

    of: Of
    run: str = ""
    done: Done = NOTHING
    at: int | None = None

    def position(self, offset: int) -> Position:
        """Return *offset* with this beside it, to commit."""
        return Position(offset, replace(self, at=offset).to_metadata())

    def to_metadata(self) -> str:
        """Return the text to commit with the offset; a broker takes 4,096 bytes."""
        at = {} if self.at is None else {"at": self.at}
        data = {**self.of.to_dict(), **at, "run": self.run, "done": self.done.to_dict()}
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def read(cls, text: str, of: "Callable[[Mapping[str, Any]], Of]") -> "Bookmark[Of] | None":
        """Read what `to_metadata` wrote; None where it is anyone else's.

        Args:
            text: What was committed, by whomever; what follows it is left out, as a client may
                read on behind it (`kbackup.kafka.positions.position_of`).
            of: Reads what the offset rests on.  Whatever it raises for data that is not ours, of
                the errors that reading plain data raises, makes it anyone else's.
        """
        try:
            data, _ = _JSON.raw_decode(text)
            run, done, at = data.get("run", ""), data.get("done") or {}, data.get("at")
            if not (isinstance(run, str) and isinstance(done, dict) and isinstance(at, int | None)):
                return None
            return cls(of(data), run, Done.from_dict(done), at)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class LastObject:
    """What a sink's offset rests on: the object that ends there.

    Attributes:
        key: The object's key; None: nothing had been stored before this offset.
        last_offset: Offset of its last record; None where another tool wrote it, which says only
            how many records it holds.
        identity: Which topic the offset is of; not known where an earlier version committed it.
        again_to: The offset up to which values are stored a second time, because the group was set
            back; None where the offset is not before that.
        size: Of the object, in bytes; None where it was not kept.
    """

    key: str | None = None
    last_offset: int | None = None
    identity: TopicIdentity = UNKNOWN
    again_to: int | None = None
    size: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        again = {} if self.again_to is None else {"again": self.again_to}
        size = {} if self.size is None else {"size": self.size}
        return {
            "key": self.key, "last": self.last_offset, **size, **self.identity.to_metadata(),
            **again,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned.

        Raises:
            KeyError: If it is anything else.
            TypeError: Likewise.
            UnicodeError: If the key is none.
        """
        identity = TopicIdentity.from_metadata(data)
        found = cls(data["key"], data["last"], identity, data.get("again"), data.get("size"))
        (found.key or "").encode()  # half of a surrogate pair is no key
        is_sound = (
            isinstance(found.key, str | None)
            and isinstance(found.last_offset, int | None)
            and isinstance(found.again_to, int | None)
            and isinstance(found.size, int | None)
            and isinstance(identity.cluster_id, str)
            and isinstance(identity.topic_id, str)
        )
        if not is_sound:
            raise TypeError("not what a sink commits")
        return found

    @classmethod
    def read(cls, text: str) -> "Bookmark[LastObject] | None":
        """Read what a sink committed; None where it is anyone else's."""
        return Bookmark.read(text, cls.from_dict)

    @classmethod
    def beside(cls, position: Position | None) -> "Bookmark[LastObject] | None":
        """Read what a sink committed with that offset; None where somebody has moved it since.

        Where an earlier version committed it, which offset that was is not known.
        """
        if position is None:
            return None
        found = cls.read(position.metadata)
        return found if found is not None and found.at in (None, position.offset) else None
