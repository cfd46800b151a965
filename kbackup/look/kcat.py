"""``-f '%t[%p]@%o %k %s'``: records as kcat prints them.

Source: kcat 1.7, ``format.c``.
"""

import base64
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NotRequired, TypedDict

from kbackup.errors import ConfigurationError

Shown = str | dict[str, str] | None
"""Bytes as JSON: text where they are UTF-8, else ``{"$base64": ...}``; null is null."""


class Named(TypedDict):
    """The schema that a key or payload names, where the backup has it."""

    id: int
    subjects: list[str]


class Record(TypedDict):
    """A record as ``peek`` yields it: a JSON value under kcat's names."""

    topic: str
    partition: int
    offset: int
    tstype: str
    ts: int | None
    headers: list[list[Any]]  # pairs of a name and `Shown`
    key: Shown
    payload: Shown
    key_schema: NotRequired[Named]
    payload_schema: NotRequired[Named]


_TOKEN: Final = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{1,2}|0[0-7]{0,3}|.)|([^%\\]+|\\\Z)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t"}


def render(record: Record, template: str) -> bytes:
    r"""Return *record* as *template* says; nothing is appended to it.

    ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%k`` key, ``%s`` payload, ``%K`` and ``%S``
    their sizes in bytes (-1 for null), ``%R`` that of the payload as four bytes, ``%T`` timestamp
    in ms (-1 for none), ``%h`` headers, ``%%``; ``\n``, ``\r``, ``\t``, ``\x0a``.  A null key or
    payload prints nothing.

    Args:
        record: As ``peek`` yields it.
        template: A format in kcat's syntax.

    Raises:
        ConfigurationError: If the format has an unknown letter.
    """
    return b"".join(
        piece if isinstance(piece, bytes) else piece(record) for piece in _parse(template)
    )


@cache
def _parse(template: str) -> tuple[bytes | Callable[[Record], bytes], ...]:
    return tuple(_piece(match, template) for match in _TOKEN.finditer(template))


def _piece(match: re.Match[str], template: str) -> bytes | Callable[[Record], bytes]:
    letter, escape, text = match.groups()
    if text is not None:
        return text.encode()
    if escape is not None:
        if escape[0] in "x0" and escape != "x":
            return bytes([int(escape.lstrip("x"), 16 if escape[0] == "x" else 8) & 0xFF])
        return _ESCAPES.get(escape, escape.encode())
    if letter == "%":
        return b"%"
    if letter not in _LETTERS:
        raise ConfigurationError(
            f"%{letter} in the format {template!r} has no meaning",
            "" if letter else "it ends with a single %",
            f"use one of {' '.join('%' + known for known in (*_LETTERS, '%'))}",
        )
    return _LETTERS[letter]


def _stored(value: Shown) -> bytes | None:
    """Return the bytes that `shown_bytes` made JSON of."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else base64.b64decode(value["$base64"])


def _length(value: Shown) -> int:
    stored = _stored(value)
    return -1 if stored is None else len(stored)


def _printed(value: Shown, null: bytes = b"") -> bytes:
    stored = _stored(value)
    return null if stored is None else stored


def _headers(record: Record) -> bytes:
    pairs = [name.encode() + b"=" + _printed(value, b"NULL") for name, value in record["headers"]]
    return b",".join(pairs)


def _timestamp(record: Record) -> bytes:
    return str(-1 if record["ts"] is None else record["ts"]).encode()


_LETTERS: Final[Mapping[str, Callable[[Record], bytes]]] = {
    "t": lambda record: record["topic"].encode(),
    "p": lambda record: str(record["partition"]).encode(),
    "o": lambda record: str(record["offset"]).encode(),
    "k": lambda record: _printed(record["key"]),
    "s": lambda record: _printed(record["payload"]),
    "K": lambda record: str(_length(record["key"])).encode(),
    "S": lambda record: str(_length(record["payload"])).encode(),
    "R": lambda record: _length(record["payload"]).to_bytes(4, "big", signed=True),
    "T": _timestamp,
    "h": _headers,
}
