"""One value to another type, as Java's boxed types do it.

Source: Apache Kafka 4.1, ``org.apache.kafka.connect.transforms.Cast``; ``java.lang.Number``,
``Long.parseLong`` and ``Double.parseDouble`` of Java 17.
"""

import math
import re
import struct
from decimal import Decimal
from typing import Any, Final

from kbackup.connect.schema import Type

_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(
    r"\s*(?P<number>[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))"
    r"[fFdD]?\s*",
    re.ASCII,
)


def to_type(value: Any, target: Type) -> Any:
    """Return *value* as *target*: integers truncated to their bits, fractions cut off.

    Args:
        value: A bool, int, float, Decimal or text.
        target: A number, boolean or text.

    Raises:
        ValueError: If it is text without such a value.
    """
    if target in _BITS:
        return _integer(value, _BITS[target])
    if target is Type.BOOLEAN:
        return value.lower() == "true" if isinstance(value, str) else bool(_integer(value, 64))
    number = _double(value)
    return number if target is Type.FLOAT64 else _single(number)


def _integer(value: Any, bits: int) -> int:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is None or not least <= int(value) <= most:
            raise ValueError(f"{value[:40]!r} is not an int{bits}")
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        wide = max(bits, 32)  # Java's narrower types truncate an int
        low, high = -(2 ** (wide - 1)), 2 ** (wide - 1) - 1
        value = (high if value > 0 else low) if math.isinf(value) else int(value)
        value = min(max(value, low), high)
    found: int = (int(value) - least) % 2**bits + least
    return found


def _double(value: Any) -> float:
    if not isinstance(value, str):
        return float(value)
    match = _DOUBLE.fullmatch(value)
    if match is None:
        raise ValueError(f"{value[:40]!r} is not a number")
    return float(match["number"])


def _single(number: float) -> float:
    """Return the nearest 32-bit number."""
    try:
        found: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return found


def is_castable(value: Any) -> bool:
    """Whether `to_type` accepts *value*."""
    return isinstance(value, (bool, int, float, str, Decimal))
