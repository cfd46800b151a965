"""What brokers of each release were asked is asked again, and understood as they answered it."""

import pytest

from kbackup.batches import native
from kbackup.errors import KafkaError
from kbackup.kafka import produce
from tests.support.recorded import FOLDER
from tests.support.recorded_broker import RECORDS, NoPositions, read, recorded, write

pytestmark = pytest.mark.skipif(native.library() is None, reason="the library was not built here")

ALL = sorted(path.stem.removeprefix("kafka-") for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("release", ALL)
def test_a_transaction_is_what_each_release_has_committed(
    release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first group and the first transaction of a cluster, whose coordinators come late."""
    monkeypatch.setattr(produce, "WRITERS", NoPositions())

    with recorded(release) as broker:
        write(broker.servers)


@pytest.mark.parametrize("release", ALL)
def test_records_are_read_as_each_release_has_sent_them(release: str) -> None:
    """Those before 2.3 do not say what is needed to read them in batches."""
    with recorded(release) as broker:
        if release == "2.1.1":
            with pytest.raises(KafkaError, match=r"none of the versions \(13, 11\) of FETCH"):
                read(broker.servers)
            return
        found = read(broker.servers)

    assert [(at, each.key, each.value, each.timestamp) for at, each in enumerate(RECORDS)] == [
        (row["offset"], row["key"], row["value"], row["timestamp"]) for row in found
    ]
