"""Records whose directory a local folder cannot have."""

from pathlib import Path

import pytest

from kbackup.stores import StoreSettings, open_store
from tests.support.bench import WHERE, Bench
from tests.support.fake_kafka import FakeKafka


@pytest.mark.parametrize("text", ["a/../../../../x", "a//b"])
def test_the_error_policy_decides_and_the_rest_is_stored(tmp_path: Path, text: str) -> None:
    """The record is counted and named; all runs exited 6 for ever, with nothing behind it."""
    bench = Bench(0)
    bench.settings = StoreSettings(f"file://{tmp_path}")
    bench.store = open_store(bench.settings)
    values = [b'{"n":0,"r":"eu"}', b'{"n":1,"r":"%s"}' % text.encode(), b'{"n":2,"r":"eu"}']
    bench.kafka = FakeKafka(values={(WHERE, at): value for at, value in enumerate(values)})
    bench.kafka.create("orders", len(values))

    summary = bench.sink(
        10, partitioner_class="field", partition_field_name="r", errors_tolerance="all"
    )

    assert (3, {"bad_records": 1}) == (summary["exit_code"], summary["skipped"])
    assert [[0, 2]] == [*bench.objects().values()]
    assert 3 == bench.position
