"""What killed runs have left of their uploads."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from kbackup.cli.screens import pruned
from kbackup.errors import ConfigurationError, StoreError
from kbackup.events import to_json
from kbackup.naming import Layout
from kbackup.naming.renaming import TopicFilter
from kbackup.runs.report import Summary
from kbackup.sink.maintenance import prune
from kbackup.stores import StoreSettings, UnfinishedUpload
from kbackup.stores.memory import MemoryStore
from tests.support.ended import ended
from tests.support.json_lines import LINES

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def key(topic: str, partition: int) -> str:
    """The key of a full-record object."""
    return f"topics/{topic}/partition={partition}/{topic}+{partition}+0000000000.record.parquet"


class Uploading(MemoryStore):
    """A store with unfinished uploads: key to how many hours ago each was begun."""

    def __init__(self, uploads: dict[str, float]) -> None:
        super().__init__(StoreSettings(f"memory://{uuid4()}"))
        self.uploads = [
            UnfinishedUpload(key, f"id of {key}", NOW - timedelta(hours=hours))
            for key, hours in uploads.items()
        ]
        self.aborted: list[str] = []
        self.fault: StoreError | None = None

    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Those of the keys that begin so."""
        return (one for one in self.uploads if one.key.startswith(prefix))

    def stored_bytes(self, _upload: UnfinishedUpload) -> int:
        """The same of each, if that may be known."""
        if self.fault is not None:
            raise self.fault
        return 5_000_000

    def abort(self, upload: UnfinishedUpload) -> None:
        """Note it."""
        self.aborted.append(upload.key)


@pytest.fixture
def store() -> Uploading:
    """Old and new ones, and others' ones."""
    hours: dict[str, float] = {
        key("orders", 0): 30, key("orders", 1): 25, key("payments", 0): 99, key("orders", 2): 1,
        "topics/orders/partition=0/movie.mp4": 99, "elsewhere/x": 99,
    }  # fmt: skip
    return Uploading(hours)


def work(store: Any, **options: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What is told, and the summary."""
    summary = Summary("r", "sink abort-uploads")
    options = {"older_than_s": 86_400.0} | options
    events = [to_json(one) for one in prune(store, Layout(), summary, now=NOW, **options)]
    for event in events:
        LINES.validate(event)
    return events, to_json(summary.finish())


def test_only_old_uploads_of_the_backup_are_aborted(store: Uploading) -> None:
    """Only old unfinished uploads of ours are aborted: a run may be working on a young one."""
    events, summary = work(store)

    assert [key("orders", 0), key("orders", 1), key("payments", 0)] == store.aborted
    assert store.aborted == [event["key"] for event in events]
    assert (3, 1) == (summary["aborted"], summary["younger"])
    assert "3 unfinished uploads aborted, 1 left alone: too recent" == pruned(ended(**summary))


def test_a_dry_run_aborts_nothing(store: Uploading) -> None:
    """A dry run says what it would abort, and aborts nothing."""
    _, summary = work(store, is_dry=True, older_than_s=0.0)

    assert [] == store.aborted
    assert "4 unfinished uploads would be aborted" == pruned(ended(**summary))
    assert {"bytes": 20_000_000, "requests": 4, "seconds": None} == summary["estimate"]
    assert "estimate" not in work(store)[1]


def test_what_may_not_be_asked_is_unknown(store: Uploading) -> None:
    """Its permission is one that no other command needs."""
    store.fault = StoreError("s3:ListMultipartUploadParts", "AccessDenied (403)")

    _, summary = work(store, is_dry=True)

    assert {"bytes": None, "requests": 3, "seconds": None} == summary["estimate"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(TopicFilter(["payments"]), [key("payments", 0)], id="by name"),
        pytest.param(TopicFilter(pattern="pay.*"), [key("payments", 0)], id="by pattern"),
        pytest.param(TopicFilter(["orders"], partitions={1}), [key("orders", 1)], id="partition"),
        pytest.param(TopicFilter(["nothing"]), [], id="a topic without any"),
    ],
)
def test_topics_and_partitions_can_be_chosen(
    store: Uploading, asked: TopicFilter, expected: list[str]
) -> None:
    """Topics and partitions can be chosen, as for every command."""
    work(store, asked=asked)

    assert expected == store.aborted


def test_a_store_without_uploads_says_so() -> None:
    """Pruning a store without multipart uploads, such as a folder, is refused with that reason."""
    with pytest.raises(ConfigurationError, match="this store cannot list unfinished uploads"):
        work(MemoryStore(StoreSettings(f"memory://{uuid4()}")))
