"""What a task holds of a span before its turn."""

import pytest
from backup_samples import RECORD

from kbackup.files import Spool
from kbackup.pipeline.write import NO_RECORDS, ClosedFile, CutFacts
from kbackup.records import Span, TopicPartition
from kbackup.sink.rejects import LeftOut
from kbackup.sink.spans.lease import BYTES_MOST, FILES_MOST, FREE_LEAST, ClosedCut, ReadAhead


def cut(files: int, *, size: int = 1) -> ClosedCut:
    """A cut whose files have so many bytes each, as far as anyone can see."""
    found = []
    for at in range(files):
        body = Spool(100)
        body.write(b"x")
        body.size = size
        where = TopicPartition("orders", 0)
        found.append(
            ClosedFile(f"{at}", RECORD[0], body, NO_RECORDS, CutFacts(Span(0, 1), files), where)
        )
    return ClosedCut(tuple(found), 1, size, LeftOut())


@pytest.mark.parametrize(
    ("cuts", "free", "is_full"),
    [
        ([], 0, False),
        ([cut(0)], 0, False),
        ([cut(1)], FREE_LEAST, False),
        ([cut(1)], FREE_LEAST - 1, True),
        ([cut(1), cut(FILES_MOST - 2)], FREE_LEAST, False),
        ([cut(1), cut(FILES_MOST - 1)], FREE_LEAST, True),
        ([cut(2, size=BYTES_MOST // 2)], FREE_LEAST, True),
    ],
    ids=["nothing", "a gap", "room", "a small disk", "files", "many files", "large files"],
)
def test_a_task_holds_no_more_than_there_is_room_for(
    cuts: list[ClosedCut], free: int, is_full: bool
) -> None:
    """
    Files and bytes are limited, and where the disk is nearly full one cut is all that is held: the
    task whose turn it is needs room too.
    """
    ahead = ReadAhead(lambda: free)
    for each in cuts:
        ahead.add(each)

    assert is_full == ahead.is_full
    assert not any(file.body.in_memory for each in cuts for file in each.files)
    ahead.drop()
