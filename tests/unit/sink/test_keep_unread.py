"""A sink whose host cannot read what earlier runs have stored: objects are told by digests."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from backup_samples import batch, sink_job, written

from kbackup.catalog import identity
from kbackup.catalog.keys import Encryption
from kbackup.catalog.recipients import KeyOptions, PrivateKey
from kbackup.clock import SystemClock
from kbackup.errors import RefusedError
from kbackup.naming import Layout
from kbackup.pipeline.write import ClosedFile
from kbackup.records import Facts, Span, TopicPartition
from kbackup.sink.keep import keep
from kbackup.stores import Store, StoreSettings, open_store
from tests.unit.catalog.test_keys import private_key

LAYOUT, CLOCK, WHERE = Layout(), SystemClock(), TopicPartition("orders", 0)


@pytest.fixture
def place(tmp_path: Path) -> StoreSettings:
    """A backup of one recipient, in a folder."""
    (tmp_path / "lake").mkdir()
    found = StoreSettings((tmp_path / "lake").as_uri())
    identity.ensure(open_store(found), LAYOUT, "here", CLOCK.now())
    private_key(tmp_path / "one")
    return found


def run(place: StoreSettings, tmp_path: Path) -> Store:
    """Begin a run."""
    names = (PrivateKey.read(tmp_path / "one").name,)
    options = KeyOptions(names, own_file=str(tmp_path / "own"))
    encryption, below = Encryption(options, LAYOUT, CLOCK), open_store(place)
    store = encryption.wrap(below)
    encryption.establish(store, "run")
    encryption.begin(store, "run")
    return store


def closed(place: StoreSettings, offsets: Sequence[int], text: str = "") -> ClosedFile:
    """Return a file of full records."""
    rows = batch(offsets, value=text.encode()) if text else batch(offsets)
    [file] = written(rows, WHERE, sink_job(store=place)).close(Span(offsets[0], offsets[-1] + 1))
    return file


def test_the_same_records_are_not_stored_again(place: StoreSettings, tmp_path: Path) -> None:
    """A repeated put leaves the object as it is, though its bytes would differ."""
    file = closed(place, range(5))
    keep(run(place, tmp_path), file, LAYOUT)
    before = open_store(place).head(file.key)

    facts = keep(run(place, tmp_path), closed(place, range(5)), LAYOUT)

    assert before == open_store(place).head(file.key)
    assert (0, 4, 5) == (facts.first_offset, facts.last_offset, facts.records)


def test_more_records_take_the_place_of_fewer(place: StoreSettings, tmp_path: Path) -> None:
    """The first of them are those that are there: their digest says so."""
    keep(run(place, tmp_path), closed(place, range(5)), LAYOUT)

    file = closed(place, range(9))
    store = run(place, tmp_path)
    keep(store, file, LAYOUT)

    head = store.head(file.key)
    assert head is not None
    facts = Facts.from_metadata(head.metadata)
    assert facts is not None
    assert 8 == facts.last_offset


@pytest.mark.parametrize(
    ("there", "mine", "text"),
    [
        pytest.param(range(5), range(5), "other", id="other records"),
        pytest.param(range(5), range(9), "other", id="other records, and more"),
        pytest.param(range(9), range(5), "", id="fewer records"),
        pytest.param([0, 1, 3, 4], range(9), "", id="a record that compaction has taken since"),
    ],
)
def test_what_cannot_be_told_is_left_alone(
    place: StoreSettings, tmp_path: Path, there: Sequence[int], mine: Sequence[int], text: str
) -> None:
    """Nothing is replaced on trust: a run with a private key compares the records."""
    file = closed(place, there)
    keep(run(place, tmp_path), file, LAYOUT)
    before = open_store(place).head(file.key)

    with pytest.raises(RefusedError, match="it is not known whether these records are in it"):
        keep(run(place, tmp_path), closed(place, mine, text), LAYOUT)
    assert before == open_store(place).head(file.key)
