"""Reading ahead of the writer."""

import threading
from collections.abc import Iterator

import pytest

from kbackup.restore.ahead import Ahead


def test_every_source_comes_whole_and_in_order() -> None:
    """
    What is read ahead is what would have been read, source by source.
    """
    sources = [[1, 2, 3], [], [4], list(range(5, 50))]

    with Ahead(sources) as ahead:
        found = [list(ahead.source()) for _ in sources]

    assert sources == found


def test_an_error_comes_where_it_happened_and_the_next_source_after_it() -> None:
    """
    A damaged object fails behind its good records, and does not hide the next object.
    """

    def damaged() -> Iterator[int]:
        yield 1
        raise ValueError("damaged")

    found: list[int] = []
    with Ahead([damaged(), [2]]) as ahead:
        with pytest.raises(ValueError, match="damaged"):
            found.extend(ahead.source())
        found.extend(ahead.source())

    assert [1, 2] == found


def test_leaving_early_ends_the_reading() -> None:
    """
    A restore that stops in the middle leaves no thread behind, and no file open.
    """
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    with Ahead([endless()]) as ahead:
        next(ahead.source())

    assert closed.is_set()
    assert "read-ahead" not in {thread.name for thread in threading.enumerate()}


def test_no_more_is_read_than_may_wait() -> None:
    """
    What waits is bounded, however slow the writer is.
    """
    read: list[int] = []

    def counted() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            yield number

    with Ahead([counted()], depth=2) as ahead:
        source = ahead.source()
        taken = [next(source) for _ in range(3)]

        assert len(taken) + 2 + 1 >= len(read)
