"""The index beside a block-gzip file: where its blocks are, and which records they hold.

Offsets are counted from the file's first one, like its rows: in a topic with gaps, records have
higher offsets than the index says.

Source: the published objects of the block-gzip sink for Kafka Connect.
"""

from dataclasses import asdict, dataclass
from typing import Any, Self

import orjson

from kbackup.errors import CorruptObjectError

_MOST: int = 2**63 - 1


@dataclass(frozen=True, slots=True)
class IndexedBlock:
    """One block; its fields are in the order of the original's index.

    Where it begins in its file, how long it is there and as lines with their line feeds, how many
    lines it has, and the offset of its first record.
    """

    byte_length_uncompressed: int
    num_records: int
    byte_length: int
    byte_offset: int
    first_record_offset: int

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.first_record_offset + self.num_records


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """The consecutive blocks of a file, without a gap."""

    blocks: tuple[IndexedBlock, ...]

    @property
    def size(self) -> int:
        """Bytes of its file."""
        return sum(block.byte_length for block in self.blocks)

    @property
    def records(self) -> int:
        """Records in the file."""
        return sum(block.num_records for block in self.blocks)

    def at(self, offset: int) -> IndexedBlock:
        """Return the block that holds *offset*, or else the first or the last."""
        found = [block for block in self.blocks if block.first_record_offset <= offset]
        return found[-1] if found else self.blocks[0]

    def to_bytes(self) -> bytes:
        """Return the index in the form that the original writes."""
        return orjson.dumps({"chunks": [asdict(block) for block in self.blocks]})

    @classmethod
    def from_bytes(cls, data: bytes, first_offset: int) -> Self:
        """Read what `to_bytes` returns, in any order and with any blanks.

        Raises:
            CorruptObjectError: If it is not an index, or its blocks do not follow each other from
                *first_offset*, that of the file.
        """
        try:
            chunks = orjson.loads(data)["chunks"]
            blocks = tuple(
                IndexedBlock(**{name: _number(each[name]) for name in IndexedBlock.__slots__})
                for each in chunks
            )
        except (ValueError, KeyError, TypeError) as error:
            raise _corrupt(f"it is not an index: {error}") from None
        start, offset = 0, first_offset
        for block in blocks:
            if (block.byte_offset, block.first_record_offset) != (start, offset):
                raise _corrupt("its blocks do not follow each other")
            start, offset = start + block.byte_length, offset + block.num_records
        if not blocks:
            raise _corrupt("it names no block")
        return cls(blocks)


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise ValueError(f"{value!r} is not a number of bytes, records or offsets")
    return value


def _corrupt(why: str) -> CorruptObjectError:
    return CorruptObjectError("the index of a block-gzip file is damaged", why)
