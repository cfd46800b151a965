"""Check that bytes are a value of an Avro schema, and that two schemas encode alike.

fastavro takes some that are not: it counts a branch of -1 from the end, and a byte of 2 as true.
A file that has such a value would be damaged for others.  And items of lists that take no bytes
(empty records, fixed of size 0) may be claimed in any number by a value of ten bytes: whoever
decodes would make each of them, and be at it for ever.  So values are passed over first, in C if
the library was built, and those that claim more than `MOST` are refused.  `avro_columns` decodes
with the same `library`; without it, Python serves.

Source: Apache Avro 1.12, "Binary Encoding".
"""

import ctypes
import json
import sys
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kbackup import native_build
from kbackup.errors import counted, form

AVRO: Final = "avro"
"""``Schema.encoding`` of datums with an Avro schema."""


class SchemaPart(ctypes.Structure):
    """A part of a schema that is read: ``struct part`` of ``avro.c``."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("some", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("room", ctypes.c_int32),
        ("values", ctypes.c_void_p),
        ("valid", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
    )


class Node(ctypes.Structure):
    """A part of a schema that is passed over: ``struct node`` of ``walk.c``."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("child", ctypes.c_int32),
        ("next", ctypes.c_int32),
    )


SKIP, INT, LONG, SIZED, FLAG, SYMBOL, BRANCH, EACH, ITEMS, NEXT = range(10)
"""``enum step`` of ``walk.c``."""

INT8, INT16, INT32, INT64, FLOAT, DOUBLE, BOOLEAN = range(7)
BYTES, FIXED, ENUM, RECORD, ARRAY, MAP = range(7, 13)
"""``enum kind`` of ``avro.c``."""

_P, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "digest": (ctypes.c_char_p,),
    "avro_read": (_I64, _P, _P, _I64, _I64, ctypes.POINTER(SchemaPart), _I32),
    "avro_copy": (_I32, _P, ctypes.POINTER(SchemaPart), _I64, _P),
    "avro_walk": (None, _P, _P, _I64, ctypes.POINTER(Node), _I32, _I64, _P),
}
"""Result and arguments of each ``KB_API`` function, by its name without ``kb_``."""


@cache
def _found() -> tuple[Any, str]:
    if sys.byteorder != "little":
        return None, "it is for little-endian machines only"
    try:
        return native_build.load(native_build.AVRO, _FUNCTIONS)[0], ""
    except native_build.UnavailableError as why:
        return None, str(why)


def library() -> Any:
    """Return the functions of the library, loaded once in a process; None if none works here."""
    return _found()[0]


def why_not() -> str:
    """Return why `library` is None; empty if it is not."""
    return _found()[1]


@lru_cache(1000)
def is_same_on_the_wire(one: str, other: str) -> bool:
    """Whether two Avro schemas in JSON encode values alike, whatever the values mean.

    Names, documentation, defaults and logical types do not matter; the order of fields, symbols and
    branches does.  An ``int`` is not a ``long`` here, because its reader may refuse longer values.
    """
    try:
        return bool(shape_of(one) == shape_of(other))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def shape_of(text: str) -> Any:
    """Return what of an Avro schema in JSON decides how values are encoded, names resolved.

    A plain type is its name.  The others are tuples: ``("union", *branches)``, ``("array", item)``,
    ``("record", *fields)``, ``("enum", *symbols)`` and ``("fixed", size)``; a map is an array.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: If it is not a schema.
    """
    return _Shape().of(json.loads(text), "")


class _Shape:
    """The shape of one schema's datums."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def of(self, found: Any, namespace: str) -> Any:
        if isinstance(found, list):
            return ("union", *(self.of(branch, namespace) for branch in found))
        if isinstance(found, str):
            shapes = map(self._named.get, full_names(found, namespace))
            return next(filter(None, shapes), found)
        kind = found["type"]
        if kind not in (*NAMED, "array", "map"):
            return self.of(kind, namespace)
        if kind == "array":
            return (kind, self.of(found["items"], namespace))
        if kind == "map":
            # an entry of a map is encoded like an entry of an array of key and value
            return ("array", ("record", "string", self.of(found["values"], namespace)))
        full = full_name(found, namespace)
        inner = full.rpartition(".")[0]
        if kind == "record":
            shape: Any = (kind, *(self.of(each["type"], inner) for each in found["fields"]))
        else:
            shape = (kind, *found["symbols"]) if kind == "enum" else (kind, found["size"])
        self._named[full] = shape
        return shape


NAMED: Final = ("record", "enum", "fixed")
"""The types that have names."""


def full_name(found: Mapping[str, Any], namespace: str) -> str:
    """Return the full name of a named type that is defined within *namespace*."""
    name: str = found["name"]
    space = found.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


def full_names(name: str, namespace: str) -> tuple[str, ...]:
    """Return the full names that *name* may mean within *namespace*, first what comes first."""
    return (f"{namespace}.{name}", name) if namespace and "." not in name else (name,)


MOST: Final = 1000
"""The items without bytes in one value, in all its lists together."""

_VARINT_MAX: Final = 10
_INT_VARINT_MAX: Final = 5
_INT32_MAX: Final = 2**31 - 1
_SIZES: Final = {"null": 0, "float": 4, "double": 8}

_Walk: TypeAlias = Callable[[bytes, int, list[int]], int]
"""Takes data, a position, and how many more items may come; returns where the value ends."""


def takes_none(shape: Any) -> bool:
    """Whether values of a shape of `shape_of` take no bytes."""
    if isinstance(shape, str):
        return shape == "null"
    if shape[0] == "record":
        return all(map(takes_none, shape[1:]))
    return bool(shape == ("fixed", 0))


def wrong(datums: pa.BinaryArray, text: str) -> dict[int, str]:
    """Return the rows of *datums*, one datum or null, that are not values of a schema, and why."""
    return wrong_by_python(datums, text, _suspects(datums, text))


def wrong_by_python(
    datums: pa.BinaryArray, text: str, rows: pa.Int64Array | None = None
) -> dict[int, str]:
    """Return what `wrong` does, of all rows or of *rows*, without the C library."""
    walk, found = walker(text), {}
    numbers = range(len(datums)) if rows is None else rows.to_pylist()
    bodies = datums.to_pylist() if rows is None else datums.take(rows).to_pylist()
    for row, body in zip(numbers, bodies, strict=True):
        if body is not None:
            try:
                left = len(body) - walk(body, 0)
                if left:
                    found[row] = f"{counted(left, 'byte')} {form(left, 'is', 'are')} left after it"
            except ValueError as why:
                found[row] = str(why)
    return found


def _suspects(datums: pa.BinaryArray, text: str) -> pa.Int64Array | None:
    """Return the rows that C does not find to be values; None where C cannot be asked."""
    compiled = library()
    if compiled is None or not len(datums) or datums.buffers()[2] is None:
        return None
    nodes, root = _program(text)
    flags = pa.allocate_buffer(len(datums))
    _, offsets, data = datums.buffers()
    compiled.avro_walk(
        data.address, offsets.address + 4 * datums.offset, len(datums), nodes, root, MOST,
        flags.address,
    )  # fmt: skip
    is_wrong = pa.Array.from_buffers(pa.uint8(), len(datums), [None, flags])
    return pc.indices_nonzero(is_wrong)


@lru_cache(100)
def _program(text: str) -> tuple[Any, int]:
    """Return the nodes of a schema, and the number of its first one; children precede parents."""
    found: list[Node] = []
    root = _compiled(shape_of(text), found)
    return (Node * len(found))(*found), root


def _compiled(shape: Any, found: list[Node]) -> int:
    if isinstance(shape, str):
        kind, size = _STEPS[shape]
        found.append(Node(kind, size, -1, -1))
        return len(found) - 1
    name, *parts = shape
    if name in ("enum", "fixed"):
        size = len(parts) if name == "enum" else min(parts[0], _INT32_MAX)
        found.append(Node(_STEP_OF[name], size, -1, -1))
        return len(found) - 1
    first = -1
    for part in reversed(parts):  # each child names its next sibling, so it has a node of its own
        child = _compiled(part, found)
        found.append(Node(NEXT, 0, child, first))
        first = len(found) - 1
    size = int(takes_none(parts[0])) if name == "array" else len(parts)
    found.append(Node(_STEP_OF[name], size, first, -1))
    return len(found) - 1


_STEPS: Final = {
    **{name: (SKIP, size) for name, size in _SIZES.items()},
    "int": (INT, 0),
    "long": (LONG, 0),
    **dict.fromkeys(("string", "bytes"), (SIZED, 0)),
    "boolean": (FLAG, 0),
}
_STEP_OF: Final = {
    "enum": SYMBOL, "fixed": SKIP, "union": BRANCH, "record": EACH,
    "array": ITEMS,
}  # fmt: skip


def empty_items(text: str) -> bool:
    """Whether a schema has lists of items that take no bytes."""
    return _has(shape_of(text), lambda shape: shape[0] == "array" and takes_none(shape[1]))


@lru_cache(100)
def has_lists(text: str) -> bool:
    """Whether values of a schema have lists, or maps."""
    return _has(shape_of(text), lambda shape: shape[0] == "array")


@lru_cache(100)
def walker(text: str) -> Callable[..., int]:
    """Return what passes over a value of an Avro schema.

    It takes data and where a value begins, and returns where the value ends.  Its ``ValueError``
    says why it is no value of the schema, or that it has too many items without bytes; a list as
    third argument is given how many it has.
    """
    walk = _walk(shape_of(text))

    def walked(data: bytes, at: int, items: list[int] | None = None) -> int:
        left = [MOST]
        try:
            end = walk(data, at, left)
        except IndexError:
            end = len(data) + 1
        if end > len(data):
            raise ValueError("it ends too early")
        if items is not None:
            items[0] += MOST - left[0]
        return end

    return walked


@lru_cache(100)
def empty_parts(text: str) -> int:
    """Return how many parts that take no bytes may come with one byte of a schema's values."""
    return _empty_parts(shape_of(text))


def _empty_parts(shape: Any) -> int:
    if isinstance(shape, str) or shape[0] in ("enum", "fixed"):
        return int(takes_none(shape))
    parts = map(_empty_parts, shape[1:])
    return sum(parts) if shape[0] == "record" else max(parts, default=0)


def check_block(data: bytes, count: int, text: str) -> int:
    """Return how many items of lists take no bytes in *count* consecutive values.

    They are to be decoded together: one with more than `MOST` of them is a ``ValueError``.
    """
    if not empty_items(text):
        return 0
    walk, at, items = walker(text), 0, [0]
    for _ in range(count):
        at = walk(data, at, items)  # at least the end of a list: it moves on
    return items[0]


def _has(shape: Any, is_one: Callable[[Any], bool]) -> bool:
    """Whether a part of a shape that is no plain type is one of those asked for."""
    if isinstance(shape, str) or shape[0] in ("enum", "fixed"):
        return False
    return is_one(shape) or any(_has(part, is_one) for part in shape[1:])


def _walk(shape: Any) -> _Walk:
    """Return how a value of *shape* is passed over."""
    if isinstance(shape, str):
        return _PLAIN[shape]
    kind, *parts = shape
    if kind == "fixed":
        return _sized(parts[0])
    if kind == "enum":
        return _choice([_sized(0)] * len(parts))
    walks = [_walk(part) for part in parts]
    if kind == "union":
        return _choice(walks)
    if kind == "array":
        return _items(walks[0], 1 if takes_none(parts[0]) else 0)

    def record(data: bytes, at: int, left: list[int]) -> int:
        for walk in walks:
            at = walk(data, at, left)
        return at

    return record


def number_at(data: bytes, at: int, most: int = _VARINT_MAX) -> tuple[int, int]:
    """Return the number of at most *most* bytes at *at*, and where it ends."""
    found = 0
    for step in range(most):
        byte = data[at + step]
        found |= (byte & 127) << 7 * step
        if byte < 128:
            if found >= 2**64:
                raise ValueError("a number in it has more than 64 bits")
            return (found >> 1) ^ -(found & 1), at + step + 1
    raise ValueError(f"a number in it does not end after {most} bytes")


def _int(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of 32 bits; Java's reader takes none of more than five bytes."""
    found, at = number_at(data, at, _INT_VARINT_MAX)
    if not -_INT32_MAX - 1 <= found <= _INT32_MAX:
        raise ValueError(f"it has an int of {found}")
    return found, at


def _pass_int(data: bytes, at: int, left: list[int]) -> int:  # noqa: ARG001
    return _int(data, at)[1]


def _pass_long(data: bytes, at: int, left: list[int]) -> int:  # noqa: ARG001
    return number_at(data, at)[1]


def _bytes(data: bytes, at: int, left: list[int]) -> int:  # noqa: ARG001
    size, at = number_at(data, at)
    if size < 0:
        raise ValueError(f"it claims a text of {counted(size, 'byte')}")
    return at + size


def _boolean(data: bytes, at: int, left: list[int]) -> int:  # noqa: ARG001
    if data[at] > 1:
        raise ValueError(f"it has a boolean of {data[at]}")
    return at + 1


def _sized(size: int) -> _Walk:
    return lambda _data, at, _left: at + size


_PLAIN: Final[dict[str, _Walk]] = {
    **{name: _sized(size) for name, size in _SIZES.items()},
    "int": _pass_int,
    "long": _pass_long,
    **dict.fromkeys(("string", "bytes"), _bytes),
    "boolean": _boolean,
}


def _choice(walks: list[_Walk]) -> _Walk:
    def choice(data: bytes, at: int, left: list[int]) -> int:
        index, at = _int(data, at)
        if not 0 <= index < len(walks):
            raise ValueError(f"it names branch or symbol {index} of {len(walks)}")
        return walks[index](data, at, left)

    return choice


def _items(item: _Walk, without_bytes: int) -> _Walk:
    """Pass over blocks of items; of those *without_bytes* only so many may come."""

    def items(data: bytes, at: int, left: list[int]) -> int:
        while True:
            count, at = number_at(data, at)
            if count < 0:
                count, (_, at) = -count, number_at(data, at)
            if not count:
                return at
            left[0] -= count * without_bytes
            if left[0] < 0:
                raise ValueError(f"its lists claim more than {MOST} items that take no bytes")
            if without_bytes:
                continue
            for _ in range(count):
                at = item(data, at, left)
                if at > len(data):
                    raise IndexError

    return items
