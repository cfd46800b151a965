"""Bytes as hexadecimal text, ``00ff``: binary values become readable JSON strings."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from kbackup_hex_options import UPPER

from kbackup.columns import Bad, Column
from kbackup.errors import BadRecordError


class HexConverter:
    """``string``, two hexadecimal digits per byte."""

    class_names: ClassVar[tuple[str, ...]] = ("HexConverter",)
    defaults: ClassVar[Mapping[str, Any]] = {}

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Read the option ``upper``: true means ``00FF``."""
        self._upper = UPPER.of(properties)

    def decode(self, column: pa.Array) -> Sequence[Column]:
        """Return the digits of each value."""
        texts = [None if value is None else value.hex() for value in column.to_pylist()]
        if self._upper:
            texts = [None if text is None else text.upper() for text in texts]
        return (Column(pa.array(texts, pa.string())),)

    def encode(self, column: pa.Array) -> pa.Array:
        """Return the bytes that the digits encode, also from a JSON string."""
        storage = column.storage if isinstance(column.type, pa.JsonType) else column
        found = []
        for row, text in enumerate(storage.cast(pa.string()).to_pylist()):
            bare = None if text in (None, "null") else text.strip('"')
            try:
                found.append(None if bare is None else bytes.fromhex(bare))
            except ValueError as error:
                bad = Bad(row, "a value is not hexadecimal", str(error))
                raise BadRecordError(bad.what, bad.why, row=row) from error
        return pa.array(found, pa.binary())
