"""Avro's datums to columns in C, loaded with ctypes; without it, `avro_columns` serves.

`avro_columns` and `avro_walk` call it, and `kbackup.inspect.host` says whether it is there.
"""

import ctypes
import sys
from functools import cache
from typing import Any, Final

from kbackup.native_build import AVRO, UnavailableError, load


class Leaf(ctypes.Structure):
    """A plain value of a schema: ``struct leaf`` of ``avro.c``."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("some", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("nulls", ctypes.c_int32),
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

INT8, INT16, INT32, INT64, FLOAT, DOUBLE, BOOLEAN, BYTES, FIXED, ENUM = range(10)
"""``enum kind`` of ``avro.c``."""

_P, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "digest": (ctypes.c_char_p,),
    "avro_read": (_I32, _P, _P, _I64, ctypes.POINTER(Leaf), _I32),
    "avro_copy": (_I32, _P, ctypes.POINTER(Leaf), _I64, _P),
    "avro_walk": (None, _P, _P, _I64, ctypes.POINTER(Node), _I32, _I64, _P),
}
"""Result and arguments of each ``KB_API`` function, by its name without ``kb_``."""


@cache
def _found() -> tuple[Any, str]:
    if sys.byteorder != "little":
        return None, "it is for little-endian machines only"
    try:
        return load(AVRO, _FUNCTIONS)[0], ""
    except UnavailableError as why:
        return None, str(why)


def library() -> Any:
    """Return the functions of the library, loaded once in a process; None if none works here."""
    return _found()[0]


def why_not() -> str:
    """Return why `library` is None; empty if it is not."""
    return _found()[1]
