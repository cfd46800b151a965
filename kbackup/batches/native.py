"""Record batches in C, loaded with ctypes; without it, `kbackup.batches.plain` serves."""

import ctypes
import struct
import sys
from ctypes import pythonapi
from functools import cache
from typing import Any, Final

import pyarrow as pa

from kbackup.batches.plain import HEADERS
from kbackup.native_build import BATCHES, UnavailableError, load
from kbackup.records import SCHEMA

_P, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64

_pointer_of: Final = pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = _P, (ctypes.py_object, ctypes.c_char_p)


def lent(rows: pa.RecordBatch) -> tuple[object, int]:
    """Return rows as C takes them: what keeps the array while it is used, and its address.

    Raises:
        TypeError: If they are not of ``records.SCHEMA``.
        pyarrow.ArrowInvalid: If a column ends beyond its bytes, which C cannot see.
    """
    if not rows.schema.equals(SCHEMA):
        raise TypeError(f"not the columns of a record: {rows.schema}")
    rows.validate()
    _, capsule = rows.__arrow_c_array__()
    return capsule, _pointer_of(capsule, b"arrow_array")


PIECE: Final = struct.Struct("=8q4i")
"""``struct piece`` of ``batches.c``, which begins with..."""

DATA: Final = struct.Struct("=2q")
"""...where its bytes are, and how many."""


class Headers(ctypes.Structure):
    """``struct headers`` of ``batches.c``."""

    _fields_ = tuple((field.name, _P) for field in HEADERS)


class Measured(ctypes.Structure):
    """``struct measured`` of ``batches.c``."""

    _fields_ = tuple(
        (name, _I64)
        for name in (
            "rows", "key", "value", "headers", "name", "header_value", "null_keys", "null_values",
            "null_header_values", "min_timestamp", "max_timestamp", "bad_piece", "wanted",
            "other_names",
        )
    )  # fmt: skip


class Columns(ctypes.Structure):
    """``struct columns`` of ``batches.c``."""

    _fields_ = tuple(
        (name, _P)
        for name in (
            "offset", "timestamp", "timestamp_type", "key_end", "value_end", "headers_end",
            "name_end", "header_value_end", "key", "value", "name", "header_value", "key_valid",
            "value_valid", "header_value_valid",
        )
    )  # fmt: skip


class Packed(ctypes.Structure):
    """``struct packed`` of ``batches.c``."""

    _fields_ = tuple((name, _I64) for name in ("rows", "bytes", "base_timestamp", "max_timestamp"))


_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "digest": (ctypes.c_char_p,),
    "crc32c": (ctypes.c_uint32, _P, _I64),
    "crc32c_joined": (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, _I64),
    "batches_walk": (_I64, _P, _I64, _I64, _P, ctypes.POINTER(_I64), ctypes.POINTER(_I32)),
    "batches_pieces": (None, _P, ctypes.POINTER(Headers), _I64, _P),
    "records_split": (_I64, _P, _I64, _P, _I64, _P),
    "records_measure": (_I32, _P, _I64, _I64, _I64, _I64, ctypes.POINTER(Measured)),
    "records_copy": (None, _P, _I64, _I64, _I64, ctypes.POINTER(Columns)),
    "records_pack": (None, _P, _I64, _I64, _I64, _I32, _P, ctypes.POINTER(Packed)),
}
"""Result and arguments of each ``KB_API`` function, by its name without ``kb_``."""


@cache
def library() -> Any:
    """Return the functions of the library, loaded once in a process; None if none works here.

    It is built where those are that `kbackup doctor` looks for.
    """
    if sys.byteorder != "little":
        return None
    try:
        return load(BATCHES, _FUNCTIONS)[0]
    except UnavailableError:
        return None
