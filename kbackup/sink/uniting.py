"""Unite two files that each hold records the other lacks.

A compacted topic loses records between two runs.  Where the first run stored a file and died
before it committed, the second reads fewer records of the same offsets, so its file ends later:
neither file contains the other, and both belong to one topic.  Both are then stored as one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbackup.alignment import rest_of
from kbackup.backup.merging import ConflictError, woven
from kbackup.flow.write import NO_RECORDS, ClosedFile, grown, inner_metadata
from kbackup.spool import Spool

_SPOOL_BYTES: Final = 32 * 2**20


def united(
    file: ClosedFile, ours: Iterable[pa.RecordBatch], theirs: Iterable[pa.RecordBatch]
) -> ClosedFile | None:
    """Return a file with the records of both, each once; None where one offset has two records.

    Memory: one batch of each, and 32 MiB of the file.

    Args:
        file: Whole records; it stays as it is.
        ours: Its records, ``records.SCHEMA``.
        theirs: Those of the object under its key.

    Returns:
        What to store; its body is the caller's to close.
    """
    body, facts = Spool(_SPOOL_BYTES), NO_RECORDS
    writer = file.spec.open_format().writer(body, file.spec.view, file.spec.options)
    try:
        for batch in _merged(iter(ours), iter(theirs)):
            writer.write(batch)
            facts = grown(facts, batch)
    except ConflictError:
        writer.close({})
        body.close()
        return None
    writer.close(inner_metadata(facts, file.where, file.identity))
    return replace(file, body=body, facts=replace(facts, sha256=body.sha256))


def _merged(
    left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of both by offset, each once.

    Raises:
        ConflictError: If one offset has two records.
    """
    mine, other = rest_of(None, left), rest_of(None, right)
    while mine is not None and other is not None:
        limit = min(rows["offset"][len(rows) - 1].as_py() for rows in (mine, other))
        counts = [pc.sum(pc.less_equal(rows["offset"], limit)).as_py() for rows in (mine, other)]
        yield woven([mine.slice(0, counts[0]), other.slice(0, counts[1])])[0]
        mine = rest_of(mine.slice(counts[0]), left)
        other = rest_of(other.slice(counts[1]), right)
    for rest, stream in ((mine, left), (other, right)):
        if rest is not None:
            yield rest
            yield from stream
