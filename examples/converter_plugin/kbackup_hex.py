"""Bytes as hexadecimal text, ``00ff``: binary values become readable JSON strings."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from kbackup.converters import Traits
from kbackup.options import boolean
from kbackup.records import Column, Kind, all_bad, row_by_row

UPPER = boolean("upper", "Write hexadecimal digits in upper case: 00FF.", False)


class HexConverter:
    """``string``, two hexadecimal digits per byte."""

    traits: ClassVar = Traits(
        gives=frozenset({Kind.TEXT}), class_names=("HexConverter",), options=(UPPER,)
    )

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Read the option ``upper``: true means ``00FF``."""
        self._upper = UPPER.of(properties)

    def decode(self, column: pa.Array) -> Sequence[Column]:
        """Return the digits of each value."""
        texts = [None if value is None else value.hex() for value in column.to_pylist()]
        if self._upper:
            texts = [None if text is None else text.upper() for text in texts]
        return (Column(pa.array(texts, pa.string())),)

    def encode(self, column: pa.Array) -> Column:
        """Return the bytes that the digits encode, also from a JSON string."""
        texts = column.storage if isinstance(column.type, pa.JsonType) else column
        what = "a value is not hexadecimal"
        if not pa.types.is_string(texts.type):
            return all_bad(texts, what, f"it is {texts.type}")
        return row_by_row(texts.to_pylist(), _bytes, pa.binary(), what)


def _bytes(text: str) -> bytes | None:
    return None if text == "null" else bytes.fromhex(text.strip('"'))
