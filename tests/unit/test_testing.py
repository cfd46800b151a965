from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from kbackup_toys import FixedFormat

from kbackup.errors import CorruptObjectError, ObjectNotFoundError, StoreError
from kbackup.formats import FormatOptions
from kbackup.naming import View
from kbackup.stores import StoreSettings
from kbackup.stores.memory import MemoryStore
from kbackup.testing import FaultyStore, FormatContract, open_bytes, put_bytes
from kbackup.testing.files import Files, columns

WORK: dict[str, Callable[[FaultyStore], Any]] = {
    "put": lambda store: put_bytes(store, "a", b"new"),
    "open": lambda store: open_bytes(store, "a"),
    "list": lambda store: [one.key for one in store.list("")],
    "head": lambda store: store.head("a"),
    "delete": lambda store: store.delete("a"),
}


@pytest.fixture
def inner() -> MemoryStore:
    store = MemoryStore(StoreSettings(f"memory://{uuid4()}"))
    for key in ("a", "b"):
        put_bytes(store, key, b"old")
    return store


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize(
    ("word", "error"),
    [
        pytest.param("503", StoreError, id="refused"),
        pytest.param("corrupt", CorruptObjectError, id="corrupt"),
        pytest.param("missing", ObjectNotFoundError, id="missing"),
    ],
)
def test_a_refused_call_changes_nothing(
    inner: MemoryStore, work: str, word: str, error: type[Exception]
) -> None:
    """The second of three calls fails as the script says, and leaves all as it was."""
    store = FaultyStore(f"ok {word}", inner)
    store.head("b")

    with pytest.raises(error, match=f"scripted {word}"):
        WORK[work](store)

    assert (["a", "b"], b"old") == (WORK["list"](store), open_bytes(store, "a"))


@pytest.mark.parametrize(
    ("work", "left"),
    [pytest.param("put", b"new", id="put"), pytest.param("delete", None, id="delete")],
)
def test_a_lost_call_is_carried_out(inner: MemoryStore, work: str, left: bytes | None) -> None:
    """The caller sees an error, the store what was asked for."""
    store = FaultyStore("lost", inner)

    with pytest.raises(StoreError):
        WORK[work](store)

    assert left == (open_bytes(inner, "a") if inner.head("a") else None)


def test_half_a_listing_ends_in_an_error(inner: MemoryStore) -> None:
    """Some objects come, then it is said that there are more."""
    found = FaultyStore("half", inner).list("")
    first = next(found)

    assert "a" == first.key
    with pytest.raises(StoreError):
        next(found)


def test_only_chosen_methods_take_a_word(inner: MemoryStore) -> None:
    """A script for puts is not used up by looking."""
    store = FaultyStore("ok 503", inner, methods=frozenset({"put"}))
    for work in ("head", "list", "put", "open"):
        WORK[work](store)

    with pytest.raises(StoreError):
        WORK["put"](store)

    assert [] == store.script


def test_every_faulty_store_starts_empty() -> None:
    """Without a store of its own, each has a new one in memory."""
    put_bytes(FaultyStore(""), "a", b"x")

    assert [] == [*FaultyStore("").list("")]


class Broken(FixedFormat):
    """A format whose reader gives each value backwards."""

    def _read(self, *what: Any) -> Iterator[pa.RecordBatch]:
        for batch in super()._read(*what):
            rows = [value[::-1] for value in batch["value"].to_pylist()]
            yield pa.record_batch([pa.array(rows, pa.binary())], ["value"])


WIDTH = FormatOptions({"fixed.width": 4})


def test_a_broken_reader_of_a_format_is_found() -> None:
    """The suite reads the author's values by the author's options."""
    values = [pa.array([b"four", b"words"], pa.binary())]
    good, bad = (Files(form, View.VALUE, WIDTH, values) for form in (FixedFormat(), Broken()))

    suite = FormatContract()
    suite.test_what_is_written_is_read(good)
    with pytest.raises(AssertionError):
        suite.test_what_is_written_is_read(bad)


@pytest.mark.parametrize(
    ("options", "values", "why"),
    [
        pytest.param(FormatOptions(), None, "fixed.width is not set", id="its options lack"),
        pytest.param(WIDTH, [pa.array([b"word5"])], "does not have 4 bytes", id="all are refused"),
        pytest.param(WIDTH, [], "no installed converter goes with it", id="there are none"),
    ],
)
def test_a_suite_that_would_write_nothing_fails(
    options: FormatOptions, values: list[pa.Array] | None, why: str
) -> None:
    """A format of which no value can be tried passes no test, and is told what to give."""
    form = FixedFormat()
    given = [*columns(form)] if values is None else values

    with pytest.raises(pytest.fail.Exception) as failed:
        Files(form, View.VALUE, options, given).samples()

    told = str(failed.value)
    assert (True, True, True) == (why in told, "`values`" in told, "`options`" in told)
