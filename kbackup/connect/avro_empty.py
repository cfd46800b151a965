"""Items of Avro lists that take no bytes: a value of ten bytes may claim any number of them.

Such are empty records and fixed of size 0.  Whoever decodes would make each of them, and be at it
for ever; so values are looked through first, and those that claim more than `MOST` are refused.

Source: Apache Avro 1.12, "Binary Encoding".
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from kbackup.connect.avro_wire import shape_of

MOST: Final = 1000
"""The items without bytes in one value, in all its lists together."""
ROWS_MOST: Final = 2**20
"""The values without bytes in one block of a file."""

_VARINT_MAX: Final = 10
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}

_Walk: TypeAlias = Callable[[bytes, int, list[int]], int]
"""Takes data, a position, and how many more items may come; returns where the value ends."""


def takes_none(shape: Any) -> bool:
    """Whether values of a shape of `avro_wire.shape_of` take no bytes."""
    if isinstance(shape, str):
        return shape == "null"
    if shape[0] == "record":
        return all(map(takes_none, shape[1:]))
    return bool(shape == ("fixed", 0))


@lru_cache(100)
def walker(text: str) -> Callable[[bytes, int], int] | None:
    """Return what looks through a value of an Avro schema, None if no list needs it.

    It takes data and where a value begins, and returns where the value ends.  Its ``ValueError``
    says that the value has too many items without bytes, or is no value of the schema.
    """
    shape = shape_of(text)
    if not _has_empty_items(shape):
        return None
    walk = _walk(shape)

    def walked(data: bytes, at: int) -> int:
        try:
            end = walk(data, at, [MOST])
        except IndexError:
            end = len(data) + 1
        if end > len(data):
            raise ValueError("it ends too early")
        return end

    return walked


def check_block(data: bytes, count: int, text: str) -> None:
    """Check *count* consecutive values, which are to be decoded together.

    Raises:
        ValueError: If there are too many values, or items of lists, that take no bytes.
    """
    walk = walker(text)
    if walk is not None:
        at = 0
        for _ in range(count):
            at = walk(data, at)  # at least the end of a list: it moves on
    elif count > ROWS_MOST and takes_none(shape_of(text)):
        raise ValueError(f"a block claims {count} values that take no bytes, over {ROWS_MOST}")


def _has_empty_items(shape: Any) -> bool:
    if isinstance(shape, str) or shape[0] in ("enum", "fixed"):
        return False
    if shape[0] == "array" and takes_none(shape[1]):
        return True
    return any(map(_has_empty_items, shape[1:]))


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


def _long(data: bytes, at: int) -> tuple[int, int]:
    found = 0
    for step in range(_VARINT_MAX):
        byte = data[at + step]
        found |= (byte & 127) << 7 * step
        if byte < 128:
            return (found >> 1) ^ -(found & 1), at + step + 1
    raise ValueError("a number in it does not end")


def _number(data: bytes, at: int, left: list[int]) -> int:  # noqa: ARG001
    return _long(data, at)[1]


def _bytes(data: bytes, at: int, left: list[int]) -> int:  # noqa: ARG001
    size, at = _long(data, at)
    if size < 0:
        raise ValueError(f"it claims a text of {size} bytes")
    return at + size


def _sized(size: int) -> _Walk:
    return lambda _data, at, _left: at + size


_PLAIN: Final[dict[str, _Walk]] = {
    **{name: _sized(size) for name, size in _SIZES.items()},
    **dict.fromkeys(("int", "long"), _number),
    **dict.fromkeys(("string", "bytes"), _bytes),
}


def _choice(walks: list[_Walk]) -> _Walk:
    def choice(data: bytes, at: int, left: list[int]) -> int:
        index, at = _long(data, at)
        if not 0 <= index < len(walks):
            raise ValueError(f"it names branch or symbol {index} of {len(walks)}")
        return walks[index](data, at, left)

    return choice


def _items(item: _Walk, without_bytes: int) -> _Walk:
    """Pass over blocks of items; of those *without_bytes* only so many may come."""

    def items(data: bytes, at: int, left: list[int]) -> int:
        while True:
            count, at = _long(data, at)
            if count < 0:
                count, (_, at) = -count, _long(data, at)
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
