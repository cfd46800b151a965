"""What a run is likely to take, judged by past ones."""

from typing import Any

import pytest

from kbackup.runs.history import Estimate, RunRecord, of_sink, of_stored
from kbackup.stores import StoreSettings, open_store
from kbackup.stores.memory import MemoryStore

MEMORY = MemoryStore(StoreSettings("memory://estimates"))
OPTIONS = {
    "s3.part.size": 25_000_000, "aws.access.key.id": "a", "aws.secret.access.key": "s",
}  # fmt: skip
S3 = open_store(StoreSettings("s3://bucket", options=OPTIONS))


def run(**said: Any) -> RunRecord:
    """A run that copied 1,000 records into 4 objects of 1,000,000 bytes in 10 of 12 seconds."""
    usual = {
        "exit_code": 0, "seconds": 12.0, "records": 1000, "objects": 4, "bytes_read": 2_000_000,
        "bytes_stored": 1_000_000, "timings": {"work_s": 10.0},
    }  # fmt: skip
    return RunRecord({**usual, **said})


def test_past_runs_tell_what_the_next_one_takes() -> None:
    """By records: bytes, objects with their rows in the ledger, and the time beside the start."""
    past = [run(), run(seconds=13.0)]

    assert Estimate(5_000_000, 40, 52.5) == of_sink(5000, past, S3)
    assert Estimate(5_000_000, None, 52.5) == of_sink(5000, past, MEMORY)


@pytest.mark.parametrize(
    ("url", "requests"),
    [
        ("s3://bucket", 4 + 3 + 1),
        ("az://account/container", 4 + 3 + 1),
        ("gs://bucket", 4 + 4 + 1),
        ("memory://m", None),
    ],
)
def test_large_objects_are_stored_in_parts(
    url: str, requests: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is a request, and so are their begin and end, and looks at what is there."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "any")
    past = [run(objects=1, bytes_stored=100_000_000)]

    found = of_sink(1000, past, open_store(StoreSettings(url, options=OPTIONS)))

    assert (100_000_000, requests) == (found.bytes, found.requests)


def test_a_restore_is_judged_by_the_bytes_it_reads() -> None:
    """Its objects are known; only the time is not."""
    past, size, counted = [run()], 20_000_000, "bytes_read"

    assert Estimate(size, 7, 102.0) == of_stored(size, 7, size, past, counted)
    assert Estimate(size, None, None) == of_stored(size, None, size, [], counted)


@pytest.mark.parametrize(
    "other", [{"exit_code": 5}, {"records": 0}, {"records": None}, {"follow": True}], ids=str
)
def test_what_tells_nothing_is_left_out(other: dict[str, Any]) -> None:
    """Runs that failed, copied nothing, or waited for records."""
    assert of_sink(10, [run()], S3) == of_sink(10, [run(**other), run()], S3)
    assert of_stored(10, 1, 10, [run()], "records") == (
        of_stored(10, 1, 10, [run(**other), run()], "records")
    )
    assert Estimate(None, None, None) == of_sink(10, [run(**other)], S3)


@pytest.mark.parametrize("other", [{"timings": None}, {"timings": {}}, {"seconds": None}], ids=str)
def test_a_run_without_spark_tells_no_time(other: dict[str, Any]) -> None:
    """It says how large records are, and how long only where another run does."""
    small = run(**other)

    assert Estimate(1_000_000, 8, None) == of_sink(1000, [small], S3)
    assert Estimate(1_000_000, 8, 12.0) == of_sink(1000, [small, run()], S3)


def test_the_newest_runs_count() -> None:
    """Five of them: what was so long ago may have been on another machine."""
    slow = [run(seconds=120.0, timings={"work_s": 100.0})] * 50

    assert of_sink(10, [run()] * 5, S3) == of_sink(10, [*[run()] * 5, *slow], S3)


@pytest.mark.parametrize(
    "other",
    [{"exit_code": 6}, {"sent_bytes": 0}, {"sent_bytes": None}, {"follow": True}, {"timings": {}},
     {"timings": {"work_s": "2"}}],
    ids=str,
)  # fmt: skip
def test_a_copy_is_judged_by_the_bytes_that_copies_sent(other: dict[str, Any]) -> None:
    """In 10 of 12 seconds; runs that failed, sent nothing, or waited, tell nothing."""
    good, bad = run(sent_bytes=1000), run(**{"sent_bytes": 1000, **other})

    def found(*runs: RunRecord) -> Estimate:
        return of_stored(5000, 7, 5000, runs, "sent_bytes")

    assert Estimate(5000, 7, 52.0) == found(good, bad) == found(bad, good)
    assert Estimate(5000, 7, None) == found(bad) == found()


@pytest.mark.parametrize("work_s", [-1.0, 1e300, "10"])
def test_a_time_that_no_run_took_tells_nothing(work_s: Any) -> None:
    """What came of it would be no time either."""
    odd = run(timings={"work_s": work_s})

    assert None is of_sink(5000, [odd], S3).seconds
    assert Estimate(9, 1, None) == of_stored(9, 1, 9, [odd], "records")
