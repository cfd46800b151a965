"""Some blocks of a file, by the index beside it; where that does not help, the file is read whole.

An index is evidence that nothing depends on: one that is missing, damaged or of another state of
the file is not used.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kbackup.backup.file_sets import BackupFile, FileSet
from kbackup.backup.window import EVERY_OFFSET, Range
from kbackup.errors import CorruptObjectError, ObjectNotFoundError
from kbackup.formats.block_index import Block, BlockIndex
from kbackup.stores import Store
from kbackup.stores.ranges import Ranges

_log = logging.getLogger(__name__)

RUN_BYTES: Final = 16 * 2**20
"""Bytes of a file that one request asks for at most, unless one block has more."""


@dataclass(frozen=True, slots=True)
class Run:
    """Blocks that follow each other, and are fetched together.

    Attributes:
        first_offset: Offset of the first record.
        records: How many they hold.
        start: The first byte.
        length: How many bytes.
    """

    first_offset: int
    records: int
    start: int
    length: int


def index_of(store: Store, files: FileSet, main: BackupFile) -> BlockIndex | None:
    """Return the index of a set's value file; None where there is none that fits it.

    Raises:
        StoreError: If the store does not answer.
    """
    if files.index is None:
        return None
    try:
        with store.open(files.index) as body:
            index = BlockIndex.from_bytes(body.read(), files.start_offset)
    except ObjectNotFoundError:
        return None
    except CorruptObjectError as error:
        _log.warning("%s is not used: %s", files.index, error)
        return None
    if index.size == main.size:
        return index
    _log.warning("%s is not used: it is of %d bytes, not %d", files.index, index.size, main.size)
    return None


def runs(store: Store, files: FileSet, main: BackupFile, wanted: Range) -> list[Run] | None:
    """Return what to fetch for the records in *wanted*; None where the file is read whole.

    Raises:
        StoreError: If the store does not answer.
    """
    if wanted == EVERY_OFFSET or not isinstance(store, Ranges) or files.index is None:
        return None
    if wanted.low <= files.start_offset and wanted.high == EVERY_OFFSET.high:
        return None
    index = index_of(store, files, main)
    if index is None:
        return None
    chosen = [
        block
        for block in index.blocks
        if wanted.meets(block.first_record_offset, block.next_offset - 1)
    ]
    return None if len(chosen) == len(index.blocks) else list(_together(chosen))


def _together(blocks: Sequence[Block]) -> Iterator[Run]:
    """Yield the first block alone, as one record is often all that is wanted, and then more."""
    held: list[Block] = []
    for at, block in enumerate(blocks):
        if held and (at == 1 or sum(each.byte_length for each in held) >= RUN_BYTES):
            yield _run(held)
            held = []
        held.append(block)
    if held:
        yield _run(held)


def _run(blocks: Sequence[Block]) -> Run:
    return Run(
        blocks[0].first_record_offset,
        sum(block.num_records for block in blocks),
        blocks[0].byte_offset,
        sum(block.byte_length for block in blocks),
    )
