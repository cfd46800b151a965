"""How far the work on a partition is: one report and one bookmark for both runs.

A task keeps a `PartitionReport` of each partition and replaces it as the work continues; the
driver keeps a `Row` of it, which the screens and the run record show.  What a task commits beside
an offset is a `Bookmark`; whoever continues there reads it.

Each of them has what both directions share, and of the other type what one direction alone knows:
``PartitionReport[OfSink]``, ``Bookmark[Mark]``.  They cross processes as plain data, whose names
`PartitionReport.to_dict` and `Bookmark.to_metadata` fix.
"""

from kbackup.reports.bookmark import Bookmark, LastObject
from kbackup.reports.done import NOTHING, Done
from kbackup.reports.held_up import HeldUp
from kbackup.reports.mark import Mark, Place, Source, digest
from kbackup.reports.partition import (
    GAPS_MOST,
    SPANS_MOST,
    OfRestore,
    OfSink,
    PartitionReport,
    WrittenTo,
)
from kbackup.reports.row import Row

__all__ = [
    "GAPS_MOST",
    "NOTHING",
    "SPANS_MOST",
    "Bookmark",
    "Done",
    "HeldUp",
    "LastObject",
    "Mark",
    "OfRestore",
    "OfSink",
    "PartitionReport",
    "Place",
    "Row",
    "Source",
    "WrittenTo",
    "digest",
]
