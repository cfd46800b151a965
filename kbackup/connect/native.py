"""Avro's datums to columns in C, loaded with ctypes; without it, `avro_columns` serves.

`avro_columns` and `avro_walk` call it, and `kbackup.doctor.host` says whether it is there.
"""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

from kbackup.native_build import AVRO

_OTHER: Final = "_KBACKUP_NATIVE_AVRO"
"""The variable that names another build of the library, such as one with sanitizers."""


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


class UnavailableError(Exception):
    """There is no library here that works; the text says why."""


def _load() -> Any:
    path = Path(os.environ.get(_OTHER, AVRO.library))
    if not path.exists():
        raise UnavailableError("no C compiler was found during installation to build it")
    if sys.byteorder != "little":
        raise UnavailableError("it is for little-endian machines only")
    try:
        found = ctypes.CDLL(str(path))
        found.kb_digest.restype = ctypes.c_char_p
        found.kb_avro_read.argtypes = (_P, _P, _I64, ctypes.POINTER(Leaf), _I32)
        found.kb_avro_copy.argtypes = (_P, ctypes.POINTER(Leaf), _I64, _P)
        found.kb_avro_walk.argtypes = (_P, _P, _I64, ctypes.POINTER(Node), _I32, _I64, _P)
        found.kb_avro_walk.restype = None
    except (OSError, AttributeError) as error:
        raise UnavailableError(str(error)) from error
    if AVRO.digest() not in (None, found.kb_digest().decode()):
        raise UnavailableError("it is older than its sources: install the checkout again")
    return found


@cache
def _found() -> tuple[Any, str]:
    try:
        return _load(), ""
    except UnavailableError as why:
        return None, str(why)


def library() -> Any:
    """Return the library, which is loaded once in a process; None if none works here."""
    return _found()[0]


def why_not() -> str:
    """Return why `library` is None; empty if it is not."""
    return _found()[1]
