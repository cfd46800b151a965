"""The channel between the driver and its tasks: news one way, orders and "stop" the other.

Spark hands results over only when a task has ended.  A backup wants to show what is safe now, and
to stop tasks without killing them, so each task keeps one TCP connection to the driver, opened
with a secret that travels with the task.  JSON lines, nothing that could run code.  A task that
cannot reach the driver works without: its report comes back through Spark all the same.  A task
whose driver has died reads the end of the stream, and stops.
"""

import hmac
import itertools
import json
import logging
import secrets
import socket
import socketserver
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Final,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from kbackup.errors import Issue
from kbackup.events import Event, Plain, to_json

_log = logging.getLogger(__name__)

_STOP: Final = b"stop\n"
_LINE_MAX: Final = 1 << 20
_CONNECT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where the driver listens; crosses processes, so its `repr` hides the secret."""

    host: str
    port: int
    secret: str

    def __repr__(self) -> str:
        return f"Address({self.host}:{self.port})"


class ChannelServer:
    """The driver's end.  *hear* is called with each event, one at a time, from another thread.

    Attributes:
        met_at: When the first task called, by the clock of ``time.monotonic``; None until then.
    """

    def __init__(self, host: str, hear: Callable[[Event], None]) -> None:
        self._secret = secrets.token_hex(16)
        self._hear = hear
        self._lock = threading.Lock()
        self._lines: set[socket.socket] = set()
        self._orders: list[bytes] = []
        self._is_stopping = False
        self._is_closed = False
        self.met_at: float | None = None
        hub = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                hub._serve(self.rfile, self.connection)

        self._server = socketserver.ThreadingTCPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.address = Address(host, self._server.server_address[1], self._secret)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask all tasks, running and to come, to stop at their next safe point."""
        with self._lock:
            self._is_stopping = True
            for line in self._lines:
                _send(line, _STOP)

    def order(self, order: Plain) -> None:
        """Send *order* to all tasks; a task that calls later gets all orders in their turn.

        So a task that Spark runs again knows what the one before it knew.  Each task decides by
        itself whether an order concerns it.
        """
        text = json.dumps(to_json(order)).encode() + b"\n"
        with self._lock:
            self._orders.append(text)
            for line in self._lines:
                _send(line, text)

    def close(self) -> None:
        """Hang up."""
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            self._is_closed = True  # for a task that has called, and has not said its secret yet
            for line in self._lines:
                with suppress(OSError):  # the task is gone
                    line.shutdown(socket.SHUT_RDWR)
            self._lines.clear()

    def _serve(self, lines: Any, connection: socket.socket) -> None:
        if not hmac.compare_digest(lines.readline(128).strip(), self._secret.encode()):
            return
        with self._lock:
            if self._is_closed:
                if self._is_stopping:
                    _send(connection, _STOP)
                return  # which hangs up: the task must not wait for a driver that has left
            self.met_at = self.met_at or time.monotonic()
            self._lines.add(connection)
            for order in self._orders:
                _send(connection, order)
            if self._is_stopping:
                _send(connection, _STOP)
        _keep_alive(connection)
        try:
            while line := lines.readline(_LINE_MAX):
                with self._lock:
                    self._tell(json.loads(line))
        except (OSError, ValueError):
            pass  # the task is gone, maybe within a line; Spark knows what became of it
        finally:
            with self._lock:
                self._lines.discard(connection)

    def _tell(self, event: Event) -> None:
        """Pass *event* on; a display that fails must not look like a driver that has died."""
        try:
            self._hear(event)
        except Exception:  # noqa: BLE001  (whatever it is)
            _log.exception("showing %s", event.get("type"))


class TaskChannel:
    """A task's end.  Also a context manager."""

    def __init__(self, address: Address | None) -> None:
        self._stopped = threading.Event()
        self._orders: deque[Event] = deque()
        self._is_lost = False
        self._sending = threading.Lock()
        self._socket: socket.socket | None = None
        if address is None:
            return
        try:
            self._socket = socket.create_connection((address.host, address.port), _CONNECT_S)
            self._socket.settimeout(None)
            _keep_alive(self._socket)
            self._socket.sendall(address.secret.encode() + b"\n")
        except OSError as error:
            _log.warning("no connection to the driver at %s: %s", address, error)
            self._socket, self._is_lost = None, True
            return
        threading.Thread(target=self._listen, args=(self._socket,), daemon=True).start()

    def __enter__(self) -> "TaskChannel":
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            with suppress(OSError):  # the driver is gone
                self._socket.shutdown(socket.SHUT_RDWR)  # ends the thread that listens
            self._socket.close()

    def tell(self, event: Plain) -> None:
        """Send *event*, from any thread; lost without harm when the driver is out of reach."""
        if self._socket is None:
            return
        try:
            with self._sending:  # two threads would mix their lines
                self._socket.sendall(json.dumps(to_json(event)).encode() + b"\n")
        except OSError:
            self._lose()

    def orders(self) -> Iterator[Event]:
        """Yield what the driver has ordered since the last call."""
        while self._orders:
            yield self._orders.popleft()

    def is_stopped(self) -> bool:
        """Whether the task should end at its next safe point."""
        return self._stopped.is_set()

    def is_lost(self) -> bool:
        """Whether the driver is out of reach, without having asked the task to stop."""
        return self._is_lost

    def wait(self, seconds: float) -> bool:
        """Sleep; return at once, with True, when asked to stop."""
        return self._stopped.wait(seconds)

    def _listen(self, line: socket.socket) -> None:
        with suppress(OSError, ValueError), line.makefile("rb") as lines:
            for text in lines:
                if text == _STOP:
                    self._stopped.set()
                else:
                    self._orders.append(json.loads(text))
        self._lose()  # at the end of the stream: the driver is gone

    def _lose(self) -> None:
        if not self._stopped.is_set():
            self._is_lost = True
            self._stopped.set()


class LocalChannel(TaskChannel):
    """The end of a task that works in the driver's own process, which hears nothing of it."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__(None)
        self._stopped = stop


def _keep_alive(connection: socket.socket) -> None:
    """Find out within two minutes that the other machine is gone, which hangs up for nobody."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _send(line: socket.socket, text: bytes) -> None:
    with suppress(OSError):  # the task is gone
        line.sendall(text)


def unpacked(kind: Any, data: Any) -> Any:
    """Return the value of type *kind* of which `dataclasses.asdict`, and then JSON, made *data*."""
    of: Any = get_origin(kind) or kind
    given = get_args(kind)
    if of in (Union, UnionType):  # of one type and None
        of = next(one for one in given if one is not NoneType)
        return None if data is None else unpacked(of, data)
    if of is tuple:
        kinds = itertools.repeat(given[0]) if given[-1] is Ellipsis else given
        return tuple(map(unpacked, kinds, data))
    if not hasattr(of, "__dataclass_fields__"):
        return data
    own = dict(zip(getattr(of, "__parameters__", ()), given, strict=False))
    hints = {name: own.get(hint, hint) for name, hint in _hints(of).items() if name in data}
    return of(**{name: unpacked(hint, data[name]) for name, hint in hints.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


_TYPE: Final = "log"

_REMEMBERED: Final = 256
"""Lines that are not repeated, whichever task says them again."""


@contextmanager
def sent(channel: TaskChannel) -> Iterator[None]:
    """Send what this process warns of to the driver meanwhile."""
    logger, sender = logging.getLogger("kbackup"), _Sender(channel)
    logger.addHandler(sender)
    try:
        yield
    finally:
        logger.removeHandler(sender)


def logged(hear: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return *hear* for all events but log lines, which go to this process's log, each once."""
    said: deque[str] = deque(maxlen=_REMEMBERED)

    def heard(event: Event) -> None:
        if event["type"] != _TYPE:
            hear(event)
        elif event["text"] not in said:
            said.append(event["text"])
            # not by the logger it came from, whose filters have seen it in the task
            _log.log(event["level"], "%s", event["text"])

    return heard


@dataclass(frozen=True, slots=True)
class _LogLine:
    """What a task warns of, its level as `logging` numbers it."""

    HEAD: ClassVar = {"type": _TYPE}

    level: int
    text: str


class _Sender(logging.Handler):
    def __init__(self, channel: TaskChannel) -> None:
        super().__init__(logging.WARNING)
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.tell(_LogLine(record.levelno, record.getMessage()))


@dataclass(slots=True)
class Timings:
    """Where the time of a run with Spark went, summed over its jobs, in hundredths of a second.

    Attributes:
        spark_start_s: Seconds until Spark took work.
        worker_start_s: Seconds from then until the first task ran in a Python worker.
        work_s: Seconds from there to the last report.
    """

    spark_start_s: float = 0.0
    worker_start_s: float = 0.0
    work_s: float = 0.0

    def add(self, spark_start_s: float, worker_start_s: float, work_s: float) -> None:
        """Add what one job took."""
        self.spark_start_s = round(self.spark_start_s + spark_start_s, 2)
        self.worker_start_s = round(self.worker_start_s + worker_start_s, 2)
        self.work_s = round(self.work_s + work_s, 2)


class Report(Protocol):
    """What became of one unit: a frozen dataclass of plain values, which Spark pickles."""

    @property
    def failure(self) -> Issue | None:
        """What stopped the work on the unit; None if nothing has."""
        ...


@dataclass(frozen=True, slots=True)
class NotBegun:
    """The report of a task that could not begin, whatever its units."""

    failure: Issue


R = TypeVar("R", bound=Report)

Task = Callable[[Sequence[Any], TaskChannel], Iterator[R]]
"""A module's function, from units and the channel to the driver to a report for each unit."""
