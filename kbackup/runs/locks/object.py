"""The half of the run lock that is in the store: a small JSON object, refreshed by its holder."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

import orjson

from kbackup import clock
from kbackup.errors import CorruptObjectError, ObjectNotFoundError, StoreError
from kbackup.naming import Layout
from kbackup.stores import Store, put_json

_log: Final = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Holder:
    """What a lock object says of its holder.

    Attributes:
        modified: Its last heartbeat, by the store's clock.
        body: ``run host pid started beat purpose topics_dir names``, the id of the lock ``file``
            its host holds, and a ``token`` of the holder's own; once they are known, the ``topics``
            that it works on, and whether it ``claims`` them still.  Empty where it cannot be read.
        key: The object.
    """

    modified: datetime
    body: Mapping[str, Any]
    key: str = ""

    @property
    def topics(self) -> frozenset[str]:
        """The topics that it works on, or claims."""
        found = self.body.get("topics")
        return frozenset(map(str, found)) if isinstance(found, list) else frozenset()

    def __str__(self) -> str:
        run, host, pid = (self.body.get(name, "?") for name in ("run", "host", "pid"))
        return f"run {run} on {host} (pid {pid})"


def prefix(layout: Layout) -> str:
    """Return the folder of lock objects."""
    return f"{layout.records_prefix()}locks/"


def holders(store: Store, layout: Layout, purpose: str) -> Iterator[Holder]:
    """Yield who holds locks for *purpose* in this ``topics.dir``, fresh or stale.

    Raises:
        StoreError: If the store does not answer.
    """
    for entry in store.list(prefix(layout)):
        if _NAME.fullmatch(entry.key.removeprefix(prefix(layout))) is None:
            continue
        found = read(store, entry.key)
        if found is not None and (
            found.body.get("purpose") == purpose
            and found.body.get("topics_dir") == layout.topics_dir
        ):
            yield found


def read(store: Store, key: str) -> Holder | None:
    """Return the lock object under *key*, None where there is none."""
    head = store.head(key)
    if head is None:
        return None
    try:
        with store.open(key) as file:
            body = orjson.loads(file.read())
    except ObjectNotFoundError:
        return None
    except (CorruptObjectError, ValueError):
        body = None
    return Holder(head.modified, body if isinstance(body, dict) else {}, key)


class LockObject:
    """One lock object, as one of those who want it sees it.

    Attributes:
        key: Its key.
        body: What to write, besides the times; may grow until the first write.
    """

    def __init__(
        self, store: Store, key: str, body: dict[str, Any], now: Callable[[], datetime]
    ) -> None:
        self._store, self.key, self._now = store, key, now
        self._token = uuid4().hex
        self.body = {**body, "started": clock.rfc3339(now()), "token": self._token}

    def create(self) -> bool:
        """Write it if it is not there; whether it is ours now."""
        return put_json(self._store, self.key, self._beat(), if_absent=True)

    def replace(self) -> None:
        """Write it, whatever is there."""
        put_json(self._store, self.key, self._beat())

    def read(self) -> Holder | None:
        """Return who holds it, None where nobody does."""
        return read(self._store, self.key)

    def is_ours(self, found: Holder) -> bool:
        """Whether *found* was written here."""
        return found.body.get("token") == self._token

    def give_back(self) -> None:
        """Delete it if it is ours.  A failure is only logged: left alone, it goes stale."""
        try:
            found = self.read()
            if found is not None and self.is_ours(found):
                self._store.delete(self.key)
        except StoreError as error:
            _log.warning("run lock %s could not be removed: %s", self.key, error)

    def store_clock(self) -> datetime:
        """Return the store's time: that of a probe, written and deleted again."""
        key = f"{self.key}.{self._token}"
        put_json(self._store, key, {})
        try:
            head = self._store.head(key)
        finally:
            self._store.delete(key)
        if head is None:
            raise StoreError(f"{key} is missing", "it was written just before", "run again")
        return head.modified

    def _beat(self) -> dict[str, Any]:
        return {**self.body, "beat": clock.rfc3339(self._now())}
