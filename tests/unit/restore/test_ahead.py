"""Reading ahead of the writer."""

import threading
from collections.abc import Iterator

import pytest

from kbackup.records import Prefetch


@pytest.mark.parametrize("count", [0, 1, 50])
def test_everything_comes_in_order(count: int) -> None:
    """What is read ahead is what would have been read."""
    with Prefetch(range(count)) as ahead:
        assert list(range(count)) == list(ahead)


def test_an_error_comes_where_it_happened() -> None:
    """What was read before a failure arrives before it."""

    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("gone")

    found: list[int] = []
    with Prefetch(failing()) as ahead, pytest.raises(ValueError, match="gone"):
        found.extend(ahead)

    assert [1] == found


def test_leaving_early_ends_the_reading() -> None:
    """A restore that stops in the middle leaves no thread behind, and no file open."""
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    with Prefetch(endless()) as ahead:
        next(iter(ahead))

    assert closed.is_set()
    assert "read-ahead" not in {thread.name for thread in threading.enumerate()}


def test_a_source_of_one_item_needs_no_thread() -> None:
    """A small partition is read by who works on it, and what it was read from is closed."""
    readers, closed = set[threading.Thread](), threading.Event()

    def one() -> Iterator[int]:
        try:
            readers.add(threading.current_thread())
            yield 1
            pytest.fail("nothing is to be read behind the last item")
        finally:
            closed.set()

    with Prefetch(one(), is_last=lambda item: item == 1) as ahead:
        found = list(ahead)

    assert [1] == found
    assert {threading.current_thread()} == readers
    assert closed.is_set()


def test_without_depth_nothing_is_read_ahead() -> None:
    """Who restores many small partitions side by side reads each of them alone."""
    readers = set[threading.Thread]()

    def three() -> Iterator[int]:
        for number in range(3):
            readers.add(threading.current_thread())
            yield number

    with Prefetch(three(), depth=0) as ahead:
        found = list(ahead)

    assert [0, 1, 2] == found
    assert {threading.current_thread()} == readers


def test_no_more_is_read_than_may_wait() -> None:
    """What waits is bounded, however slow the writer is."""
    read: list[int] = []

    def counted() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            yield number

    with Prefetch(counted(), depth=2) as ahead:
        source = iter(ahead)
        taken = [next(source) for _ in range(3)]

        assert len(taken) + 2 + 1 >= len(read)
