"""Find and load the C library that passes records by columns, and choose clients it knows.

Records pass between librdkafka and Arrow in a small library, without a Python object for each.  It
works on the clients that confluent-kafka makes, as a plugin of the librdkafka in confluent-kafka's
own wheel, so everything but the records stays with confluent-kafka: configuration, security, logs,
transactions, offsets.  ``native.h`` shows how its source files share the work.

A wheel that was built where nothing compiles C has no library.  Python's path serves then, unless
the operator has asked for this one.
"""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import confluent_kafka
from confluent_kafka import cimpl

from kbackup.errors import ConfigurationError, KafkaError
from kbackup.kafka import Way
from kbackup.native_build import KAFKA, UnavailableError, load

_OLDEST: Final = 0x01060000
"""The librdkafka whose declarations ``rdkafka.h`` repeats."""


class Drained(ctypes.Structure):
    """What one call of ``kb_reader_drain`` came to: ``struct drained`` of ``reader.c``."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("position", ctypes.c_int64),
        ("event_offset", ctypes.c_int64),
        ("event", ctypes.c_int32),
        ("failure", ctypes.c_int32),
        ("text", ctypes.c_char * 512),
    )


class ArrowArray(ctypes.Structure):
    """Room for a ``struct ArrowArray``: ten words, which only C looks into."""

    _fields_ = (("words", ctypes.c_int64 * 10),)


FINE, NO_MEMORY, CLOSED, BAD_HEADER_NAME, BAD_BATCH = range(5)
"""``enum failure`` of ``native.h``."""

_P, _I, _I32, _I64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int32, ctypes.c_int64
_S = ctypes.c_char_p
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "digest": (_S,),
    "bind": (_I, _S, _S, ctypes.c_size_t),
    "expect": (None, _I),
    "client_take": (_P,),
    "client_free": (None, _P),
    "client_leave": (None, _P),
    "client_deliveries": (None, _P, ctypes.POINTER(_I64)),
    "client_written": (None, _P, _I32, ctypes.POINTER(_I64)),
    "reader_new": (_P, _P, _S, _I32, _I64, _I64, _I64, _I64),
    "reader_free": (None, _P),
    "reader_drain": (None, _P, _I, ctypes.POINTER(Drained), ctypes.POINTER(ArrowArray)),
    "array_release": (None, ctypes.POINTER(ArrowArray)),
    "writer_open": (_I, _P, _S),
    "writer_close": (None, _P),
    "writer_write": (_I64, _P, _P, _I32, _I64, _I, ctypes.POINTER(_I32), ctypes.POINTER(_I32)),
}
"""Result and arguments of each ``KB_API`` function, by its name without ``kb_``."""


@dataclass(frozen=True, slots=True)
class Library:
    """The functions, which run without Python's lock, and the file for ``plugin.library.paths``."""

    functions: Any
    path: str


def _load() -> Library:
    functions, path = load(KAFKA, _FUNCTIONS)
    if ";" in str(path):  # librdkafka's separator
        raise UnavailableError(f"librdkafka loads no plugin whose path has a semicolon: {path}")
    why = ctypes.create_string_buffer(256)
    version: int = functions.bind(os.fsencode(cimpl.__file__), why, len(why))
    if version < 0:
        raise UnavailableError(why.value.decode(errors="replace"))
    if version < _OLDEST:
        raise UnavailableError(f"librdkafka {confluent_kafka.libversion()[0]} is too old")
    return Library(functions, str(path))


@cache
def _found() -> Library | UnavailableError:
    try:
        return _load()
    except UnavailableError as why:
        return why


def library() -> Library:
    """Return the library, loaded once in a process; `UnavailableError` if none works here."""
    found = _found()
    if isinstance(found, UnavailableError):
        raise found
    return found


def choose(wanted: str) -> Way:
    """Return the way for *wanted*; `ConfigurationError` if ``native`` is, and cannot be had."""
    if wanted == "python":
        return Way("python")
    try:
        library()
    except UnavailableError as why:
        if wanted == "native":
            raise ConfigurationError(
                "kafka.client=native: there is no native library",
                str(why),
                "install kbackup where there is a C compiler (cc), or set kafka.client=auto",
            ) from why
        return Way("python", str(why))
    return Way("native")


class NativeClient:
    """A client, None once it was let go, and the library's functions that take its handle."""

    def __init__(
        self, make: Any, properties: Mapping[str, Any], *, is_producer: bool, logger: Any
    ) -> None:
        """Make the client, a ``Consumer`` or ``Producer``, with the library as one more plugin.

        Raises:
            KafkaException: What making the client raises.
            KafkaError: If librdkafka did not load the plugin.
        """
        loaded = library()
        self.functions = loaded.functions
        theirs = properties.get("plugin.library.paths")
        plugins = loaded.path if not theirs else f"{theirs};{loaded.path}"
        self.functions.expect(is_producer)
        self.client = make({**properties, "plugin.library.paths": plugins}, logger=logger)
        self._handle = self.functions.client_take()
        if self._handle is None:
            raise KafkaError("making a client", "librdkafka did not load kbackup's plugin")

    @property
    def is_open(self) -> bool:
        """Whether it has not been let go."""
        return self._handle is not None

    @property
    def handle(self) -> int:
        """What the functions take for the client.

        Raises:
            KafkaError: If it was let go, by another thread, say.
        """
        if self._handle is None:
            raise KafkaError("calling Kafka", "the client was closed")
        return int(self._handle)

    def leave(self) -> None:
        """Ask a thread that is inside the library for this client to come back at once."""
        if self._handle is not None:
            self.functions.client_leave(self._handle)

    def let_go(self) -> None:
        """Drop client and handle, when no thread is inside the library; may be repeated."""
        self.client = None
        handle, self._handle = self._handle, None
        if handle is not None:
            self.functions.client_free(handle)
