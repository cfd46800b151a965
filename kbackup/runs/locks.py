"""Lock runs: one of a kind at a time for each backup, on one host and between hosts.

Two things are held, taken in this order::

    FOLDER/<hash>.lock           a file, held with flock: it is free when its holder is dead
    _kbackup/locks/<hash>        an object, created only if absent and refreshed every minute

The file's hash names the backup: by its id, or as this host knows its address where it has none.
The object's does not, since it lies in the backup.

**Whose clock.**  A lock object is stale when nobody refreshed it for `STALE_S`.  Only the store's
clock counts: the object's time is compared with that of a probe, written just before.  How wrong
the clock of any host is, or whether it jumps, does not matter.

**A dead holder on this host** is known at once.  The lock file keeps an id of its own, and the
object names it.  A process that holds the flock of the very file that the object names, under the
same host name, knows that the writer of the object is gone.  Another lock folder, host or container
has another id, and waits until the object is stale.

**Topics.**  The lock is named after what a run was asked for: two sinks that are asked for the same
topics in other words hold two.  So a sink lists the topics it works on in its lock object, then
reads all others there are.  Topics that are in another live one are left to that run.  Each writes
before it reads, so of two that claim one topic at once at least one sees the other; if both do, the
one whose object has the lower key waits until the other has made up its mind.

**What it does not promise.**  Not every store can replace an object only if it is unchanged, so a
takeover is: judge, replace, wait `SETTLE_S`, read back.  Of several that take over at once the
last writer has it.  A holder that was stopped for minutes and wakes up learns with its next
heartbeat that it lost (`RunLock.is_lost`).  Until then two may run; no record is at risk, since
safety does not rest on the lock.
"""

import fcntl
import hashlib
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

import orjson

from kbackup import clock
from kbackup.catalog.identity import BackupIdentity
from kbackup.config import Settings
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    KbackupError,
    LockedError,
    ObjectNotFoundError,
    StoppedError,
    StoreError,
    TopicsLockedError,
    some,
)
from kbackup.files import user_cache
from kbackup.naming import Layout
from kbackup.stores import Store, put_json

_log: Final = logging.getLogger(__name__)

BEAT_S: Final = 60.0
"""Seconds between two heartbeats."""

STALE_S: Final = 300.0
"""Seconds without a heartbeat after which a lock object may be taken over."""

SETTLE_S: Final = 0.5
"""Seconds between replacing a lock object and reading it back."""

_POLL_S: Final = 2.0


CLAIM_S: Final = 30.0
"""Seconds to wait for another run that claims the same topics; one that died meanwhile has them."""

_ID: Final = re.compile(r"[0-9a-f]{32}")
"""What a lock object is called, and what its lock file holds first."""


class LockFile:
    """The half of the lock that is on this host: a file held with flock.

    It holds an id of 32 hexadecimal digits, given to it once, and a line that says who holds it.
    Nothing of the lock survives the process: the kernel gives it back.  The file is never removed:
    another process may have opened it and wait for it.

    Attributes:
        id: The file's own, once it is held; a file made anew has another one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self.id = ""

    def take(self, who: str) -> bool:
        """Hold the file if nobody does, and note *who* in it; whether that was done."""
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.id = _identified(self._file)
            os.ftruncate(self._file, len(self.id))
            os.pwrite(self._file, f"\n{who}\n".encode(), len(self.id))
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConfigurationError(
                f"the lock file {self._path} cannot be used",
                error.strerror or str(error),
                "set KBACKUP_LOCK_DIR to a folder on this host that can be written to",
            ) from error
        return True

    def is_free(self, known: str) -> bool:
        """Whether this is the file with the id *known*, and nobody holds it; changes nothing."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            if os.pread(file, 32, 0).decode(errors="replace") != known:
                return False
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(file)
        return True

    def holder(self) -> str:
        """Return who noted themselves in the file, empty where that cannot be told."""
        if self._file is None:
            return ""
        return os.pread(self._file, 300, 0)[32:].decode(errors="replace").strip()

    def release(self) -> None:
        """Let the file go, held or not."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _identified(file: int) -> str:
    """Return the id in a file that is held, after giving it one if it has none."""
    found = os.pread(file, 32, 0)
    if _ID.fullmatch(found.decode(errors="replace")) is None:
        found = uuid4().hex.encode()
        os.pwrite(file, found, 0)
    return found.decode()


@dataclass(frozen=True, slots=True)
class Holder:
    """What a lock object says of its holder.

    Attributes:
        modified: Its last heartbeat, by the store's clock.
        body: ``run host pid started beat purpose topics_dir names``, what the run calls the
            ``backup``, the id of the lock ``file`` its host holds, and a ``token`` of the holder's
            own; once they are known, the ``topics`` that it works on, and whether it ``claims``
            them still.  What cannot be read is not in it.
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
    """Yield who holds locks for *purpose* in this ``topics.dir``, fresh or stale."""
    for entry in store.list(prefix(layout)):
        if _ID.fullmatch(entry.key.removeprefix(prefix(layout))) is None:
            continue
        found = _read(store, entry.key)
        if found is not None and (
            found.body.get("purpose") == purpose
            and found.body.get("topics_dir") == layout.topics_dir
        ):
            yield found


def _read(store: Store, key: str) -> Holder | None:
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
    found = body if isinstance(body, dict) else {}  # anybody may have written it
    said: dict[str, Any] = {
        name: one for name, one in found.items() if type(one) is _KINDS.get(name, str)
    }
    said["names"] = [*map(str, said.get("names", ()))]
    return Holder(head.modified, said, key)


_KINDS: Final = {"pid": int, "names": list, "topics": list, "claims": bool}
"""What a lock object has besides texts."""


def store_clock(store: Store, key: str) -> datetime:
    """Return the store's time: that of a probe, which is written as *key* and deleted again."""
    put_json(store, key, {})
    try:
        head = store.head(key)
    finally:
        store.delete(key)
    if head is None:
        raise StoreError(f"{key} is missing", "it was written just before", "run the command again")
    return head.modified


class LockObject:
    """The half of the lock that is in the store, as one of those who want it sees it.

    Attributes:
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
        return _read(self._store, self.key)

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
        """Return the store's time."""
        return store_clock(self._store, f"{self.key}.{self._token}")

    def _beat(self) -> dict[str, Any]:
        return {**self.body, "beat": clock.rfc3339(self._now())}


class RunLock:
    """Held from ``with`` to its end, once; it may be asked from any thread.

    Attributes:
        is_lost: The last heartbeat found that someone else has taken the lock over.
    """

    def __init__(
        self,
        store: Store,
        layout: Layout,
        purpose: str,
        names: Collection[str],
        *,
        identity: str,
        folder: Path | None,
        timeout_s: float,
        run: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Describe the lock; nothing is taken yet.

        Args:
            layout: Its ``topics_dir`` is part of what is locked.
            names: What it works on: topics, a pattern, a target; in any order.
            identity: Which backup it is: its id, or its place as this host knows it.
            now: For the times in the object, which only people read.
            sleep: Waits that many seconds; returns True where the run was asked to stop.
            monotonic: Seconds by a clock that never jumps.
        """
        text = _text(layout, purpose, names)
        body: dict[str, Any] = {
            "run": run, "host": socket.gethostname(), "pid": os.getpid(), "purpose": purpose,
            "topics_dir": layout.topics_dir, "names": sorted(names), "backup": identity,
        }  # fmt: skip
        self._folder = folder or _cache_folder()
        self._file = LockFile(self._file_of(identity, text))
        self._writing = threading.Lock()  # a heartbeat never puts back what it read before a claim
        self._store, self._layout = store, layout
        self._object = LockObject(store, f"{prefix(layout)}{_hash(text)}", body, now)
        self._timeout_s, self._sleep, self._monotonic = timeout_s, sleep, monotonic
        self._ended = threading.Event()
        self.is_lost = False
        self._topics: set[str] = set()
        self._beaten = monotonic()

    @classmethod
    def for_settings(
        cls,
        settings: Settings,
        backup: BackupIdentity,
        store: Store,
        layout: Layout,
        purpose: str,
        names: Collection[str],
        run: str,
        sleep: Callable[[float], object] = time.sleep,
    ) -> "Self | nullcontext[None]":
        """Return the lock that *settings* ask for; with ``--no-lock`` one that holds nothing."""
        if settings.no_lock:
            return nullcontext()
        return cls(
            store,
            layout,
            purpose,
            names,
            identity=backup.name,
            folder=None if settings.lock_dir is None else Path(settings.lock_dir),
            timeout_s=settings.lock_timeout,
            run=run,
            sleep=sleep,
        )

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            LockedError: If another run holds it, and goes on holding it for *timeout_s*.
            ConfigurationError: If the lock file cannot be used.
        """
        deadline = self._monotonic() + self._timeout_s
        with ExitStack() as stack:
            stack.callback(self._file.release)
            self._take_file(deadline)
            self._take_object(deadline)
            stack.callback(self._object.give_back)
            thread = threading.Thread(target=self._keep, name="run lock", daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(self._ended.set)
            self._held = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._held.close()

    def claim_some(self, topics: Collection[str]) -> dict[str, Holder]:
        """Do as `claim`; wait for *timeout_s* where other runs work on all of *topics*."""
        deadline = self._monotonic() + self._timeout_s
        while True:
            left = self.claim(topics)
            if not topics or len(left) < len({*topics}):
                return left
            if self._monotonic() >= deadline:
                raise all_locked(left)
            self._pause(_POLL_S)

    def claim(self, topics: Collection[str]) -> dict[str, Holder]:
        """Take *topics* beside those that are held, as far as no other run works on them.

        Costs two writes, a listing and the reads of other locks, whatever the number of topics.

        Returns:
            The topics that other runs of this kind work on, each with that run.
        """
        wanted, left = {*topics}, dict[str, Holder]()
        self._write(wanted, claims=True)
        patience = self._monotonic() + CLAIM_S
        while True:
            waits = False
            for other in self._others(wanted - left.keys()):
                shared = (wanted & other.topics) - left.keys()
                is_undecided = other.body.get("claims") and self._object.key < other.key
                if is_undecided and self._monotonic() < patience:
                    waits = True
                else:
                    left |= dict.fromkeys(shared, other)
            mine = wanted - left.keys()
            self._write(mine, claims=waits)
            if not waits:
                self._topics |= mine
                return left
            self._pause(_POLL_S / 4)

    def check_no_restore(self) -> None:
        """Check that no restore is at work in this ``topics.dir``."""
        found = [*holders(self._store, self._layout, "restore")]
        if not found:
            return
        clock = self._object.store_clock()
        if live := [one for one in found if not self._is_dead(one, clock)]:
            raise LockedError(
                "a restore is reading this backup",
                f"{live[0]} has the lock {live[0].key}",
                "wait until it ends, or run beside it with --no-lock",
            )

    def _write(self, topics: Collection[str], *, claims: bool) -> None:
        with self._writing:
            self._object.body |= {"topics": sorted({*self._topics, *topics}), "claims": claims}
            self._object.replace()
            self._beaten = self._monotonic()

    def _others(self, topics: Collection[str]) -> list[Holder]:
        """Return the live locks of this purpose that others hold and that name any of *topics*."""
        found = [
            other
            for other in holders(self._store, self._layout, self._object.body["purpose"])
            if other.key != self._object.key and not other.topics.isdisjoint(topics)
        ]
        if not found:
            return []
        clock = self._object.store_clock()
        return [one for one in found if not self._is_dead(one, clock)]

    def _is_dead(self, other: Holder, clock: datetime) -> bool:
        """Whether another lock's run is gone: silent, or its file on this host is free."""
        return (clock - other.modified).total_seconds() >= STALE_S or self._is_gone(other)

    def _is_gone(self, other: Holder) -> bool:
        """Whether another lock's file on this host is free, by the name that its run gave it."""
        said, ours = other.body, self._object.body
        if said.get("host") != ours["host"] or not said.get("file"):
            return False
        text = _text(self._layout, said.get("purpose", ""), said["names"])
        file = self._file_of(said.get("backup", ours["backup"]), text)
        return LockFile(file).is_free(said["file"])

    def _file_of(self, identity: str, text: str) -> Path:
        return self._folder / f"{_hash(chr(0).join((identity, text)))}.lock"

    def beat(self) -> None:
        """Refresh the lock object, unless someone else has it by now."""
        with self._writing:
            self._beat()

    def _beat(self) -> None:
        slept = self._monotonic() - self._beaten >= STALE_S
        self._beaten = self._monotonic()
        if slept and self._topics and (others := self._others(self._topics)):
            self.is_lost = True  # whoever came meanwhile took this run for dead
            _log.warning("topics of run lock %s were taken by %s", self._object.key, others[0])
            return
        found = self._object.read()
        if found is None:  # removed by hand, or by a rule of the bucket
            self.is_lost = not self._object.create()
        elif self._object.is_ours(found):
            self._object.replace()
        else:
            self.is_lost = True
        if self.is_lost:
            _log.warning("run lock %s was taken over by %s", self._object.key, found)

    def _take_file(self, deadline: float) -> None:
        while not self._file.take(f"run {self._object.body['run']} (pid {os.getpid()})"):
            who = self._file.holder() or "another process"
            self._wait(deadline, f"{who} on this host holds it")
        self._object.body["file"] = self._file.id

    def _take_object(self, deadline: float) -> None:
        try:
            while not self._object.create():
                clock = self._object.store_clock()
                found = self._object.read()
                if found is None:
                    self._wait(deadline, "it was released just now")
                    continue
                age = (clock - found.modified).total_seconds()
                if not self._may_take_over(found, age):
                    text = f"{found} holds it; its last heartbeat was {max(0, age):.0f} s ago"
                    self._wait(deadline, text)
                elif self._take_over():
                    return
        except StoreError as error:
            do = "; ".join(filter(None, (error.do, self._without())))
            what = f"the run lock cannot be taken: {error.what}"
            raise StoreError(what, error.why, do, **error.place) from error

    def _without(self) -> str:
        """Return how to do without the lock, if the run might: it writes nothing to the store."""
        if self._object.body["purpose"] == "sink":
            return ""
        try:
            next(iter(self._store.list(self._layout.prefix())), None)
        except StoreError:
            return ""
        return "or run with --no-lock, if this principal may only read"

    def _wait(self, deadline: float, why: str) -> None:
        """Sleep a little, or give up."""
        left = deadline - self._monotonic()
        if left <= 0:
            do = "wait until it ends; --lock-timeout 10m does so"
            raise LockedError(f"another run has the lock {self._object.key}", why, do)
        self._pause(min(_POLL_S, left))

    def _pause(self, seconds: float) -> None:
        if self._sleep(seconds) is True:
            raise StoppedError(f"stopped before it had the lock {self._object.key}")

    def _may_take_over(self, found: Holder, age: float) -> bool:
        ours = self._object.body
        is_same = all(ours[name] == found.body.get(name) for name in ("host", "file"))
        if is_same or self._is_gone(found):
            _log.warning("taking over run lock %s: %s is gone", self._object.key, found)
            return True
        if age >= STALE_S:
            text = "taking over run lock %s: no heartbeat from %s for %.0f s"
            _log.warning(text, self._object.key, found, age)
            return True
        return False

    def _take_over(self) -> bool:
        """Replace the lock object; whether it is ours after all that try have done so."""
        self._object.replace()
        self._pause(SETTLE_S)
        found = self._object.read()
        return found is not None and self._object.is_ours(found)

    def _keep(self) -> None:
        while not self.is_lost and not self._ended.wait(BEAT_S):
            try:
                self.beat()
            except KbackupError as error:
                _log.warning("run lock %s was not refreshed: %s", self._object.key, error)


def _cache_folder() -> Path:
    cache = user_cache()
    if cache is None:
        raise ConfigurationError(
            "there is no folder for lock files",
            "HOME is not set, and this user has no home",
            "set KBACKUP_LOCK_DIR to a folder on this host that can be written to",
        )
    return cache / "locks"


def _text(layout: Layout, purpose: str, names: Collection[str]) -> str:
    """Return what stands for the work that a lock is for."""
    return "\0".join((layout.topics_dir, purpose, *sorted(names)))


def all_locked(left: Mapping[str, Holder]) -> TopicsLockedError:
    """Return the error of a run whose topics others work on."""
    others = ", ".join(sorted({str(holder) for holder in left.values()}))
    return TopicsLockedError(
        "other runs back up all topics that this one was asked for",
        f"{others}: {some(sorted(left))}",
        "name each topic in one configuration only; or wait until they end: --lock-timeout 10m",
    )


def left_to_others(left: Mapping[str, Holder]) -> str:
    """Return a sentence about topics that other runs work on."""
    others = ", ".join(sorted({str(holder) for holder in left.values()}))
    return f"{some(sorted(left))}: left to {others}, at work on the same topics.dir"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def lost_lock() -> KbackupError:
    """Return the error of a run whose lock someone else took over while it went on."""
    return KbackupError(
        "another run took the lock over",
        "this one had sent no heartbeat for five minutes",
        "no record is lost; find out why this host stalled",
    )
