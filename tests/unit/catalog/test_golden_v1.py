"""What version 1 has stored is restored for ever; ``tests/golden/make.py`` says how it was made."""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbackup.catalog import groups, identity
from kbackup.clock import SystemClock
from kbackup.kafka import Position
from kbackup.naming import Layout
from kbackup.records import Facts, Rotation, TopicIdentity, TopicPartition
from kbackup.runs import backup_state, history, wiring
from kbackup.runs.position import RestorePosition, SinkPosition
from kbackup.sink.plan import make_plan
from kbackup.stores import Store, StoreSettings, open_store
from tests.golden.make import (
    COPY,
    FOLDER,
    READ,
    TOPIC,
    copied,
    kept,
    restore,
    settings,
    sink,
    source,
)
from tests.support.target import MARKER, KeepingTarget


class Golden(NamedTuple):
    """A layout, a copy of its bucket, and what is said beside it."""

    name: str
    url: str
    said: dict[str, Any]

    @property
    def store(self) -> Store:
        """The bucket."""
        return open_store(StoreSettings(self.url))

    @property
    def layout(self) -> Layout:
        """How objects are named."""
        return wiring.layout(settings("sink", self.name, self.url))

    def names(self) -> set[str]:
        """The keys of objects; their names, where the directory is the day of the upload."""
        keys = (one.key for one in self.store.list("topics/"))
        return {key.rpartition("/")[2] if self.layout.is_dated else key for key in keys}

    def positions(self, of: str) -> dict[TopicPartition, Position]:
        """What a run has committed."""
        return {
            TopicPartition(topic, at): Position(offset, metadata)
            for topic, at, offset, metadata in self.said[of]
        }

    def records(self, start: dict[int, int], *, is_whole: bool = False) -> list[list[Any]]:
        """What a restore gives back from these offsets on, of what the dead run left out too."""
        return [
            kept(
                self.name,
                [
                    row
                    for at, row in enumerate(rows)
                    if at >= start.get(number, 0) and (is_whole or at not in left)
                ],
            )
            for number, (rows, left) in enumerate(
                zip(self.said["records"], self.said["left"], strict=True)
            )
        ]


@pytest.fixture(params=READ)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    """Each layout."""
    shutil.copytree(FOLDER / request.param / "store", tmp_path, dirs_exist_ok=True)
    said = json.loads((FOLDER / request.param / "said.json").read_text())
    return Golden(request.param, f"file://{tmp_path}", said)


def test_a_backup_of_version_1_is_restored(golden: Golden) -> None:
    """All that its three runs have stored, record by record, those of the one that died too."""
    target = KeepingTarget()

    done = restore(target, golden.name, golden.url)

    assert (0, golden.records({})) == (done["exit_code"], copied(target))


def test_a_restore_of_version_1_goes_on(golden: Golden) -> None:
    """From its position, wherever the bucket is now: each record comes once."""
    said, restored = golden.said, golden.positions("restored")
    target = KeepingTarget(groups={said["group"]: dict(restored)})
    target.create_topic(COPY, len(said["target_ends"]), 1, {})
    target.ids[COPY] = said["target_id"]
    for number, end in enumerate(said["target_ends"]):
        target.logs[TopicPartition(COPY, number)].rows = [MARKER] * end

    done = restore(target, golden.name, golden.url, group=said["group"])

    had = golden.positions("committed").items()  # the restore had all of it
    rest = golden.records({at.partition: one.offset for at, one in had})
    assert (0, rest) == (done["exit_code"], copied(target))
    (of,) = {json.loads(one.metadata)["backup"] for one in restored.values()}
    assert of == identity.read(golden.store, golden.layout, "elsewhere").id


def test_a_sink_goes_on_after_version_1(golden: Golden) -> None:
    """At its position: what was not committed is stored again, under its names; nothing is lost."""
    kafka, clock, target = source(golden.said["records"]), SystemClock(), KeepingTarget()
    kafka.positions_ = golden.positions("committed")
    asked = settings("sink", golden.name, golden.url)

    plan, names = make_plan(asked, kafka, golden.store, clock), golden.names()  # type: ignore[arg-type]
    stored = sink(kafka, golden.name, golden.url)
    restored = restore(target, golden.name, golden.url)

    starts = {at.where: (at.start.offset, at.start.expired) for at in plan.partitions if at.start}
    committed = golden.positions("committed")
    assert {at: (one.offset, ()) for at, one in committed.items()} == starts
    assert (0, 0) == (stored["exit_code"], restored["exit_code"])
    assert golden.records({}, is_whole=True) == copied(target)
    assert sum(map(bool, golden.said["left"])) == len(golden.names() - names)


def test_what_version_1_says_of_itself_is_read(golden: Golden) -> None:
    """Its ledger agrees with the metadata of its objects; texts beside offsets are read whole."""
    store, layout, clock = golden.store, golden.layout, SystemClock()
    committed, restored = golden.positions("committed"), golden.positions("restored")

    said = backup_state.read(store, layout, clock)
    runs = [*history.runs(store, layout)]
    sinks = {at: SinkPosition.beside(one) for at, one in committed.items()}
    restores = [RestorePosition.read(at, one) for at, one in restored.items()]

    topic = said.topics[TOPIC]
    assert (TopicIdentity("cluster-1", "id-of-orders"), len(golden.said["records"])) == (
        topic.identity, topic.partitions,
    )  # fmt: skip
    ledgers = {at: said.ledger(at) for at in committed}
    assert {at: one.offset for at, one in committed.items()} == {
        at: one.reached() for at, one in ledgers.items()
    }
    rows = [row for one in ledgers.values() for row in one.objects.values()]
    heads = [store.head(row.key or "") for row in rows]
    assert [(row.facts, row.bytes, row.cut and row.cut[:2]) for row in rows] == [
        (
            Facts.from_metadata(head.metadata),
            head.size,
            (cut.span.start_offset, cut.span.end_offset),
        )
        for head in heads
        if head is not None and (cut := Rotation.from_metadata(head.metadata)) is not None
    ]
    assert committed == {
        at: one.position(committed[at].offset) for at, one in sinks.items() if one is not None
    }
    assert [*restored.values()] == [one[0].position(one[1]) for one in restores if one is not None]
    captured = groups.read(store, layout, clock, None).newest.values()
    assert golden.said["groups"] == [
        [row.group, row.partition, row.offset, (row.metadata or b"").decode("latin-1")]
        for one in captured
        for row in one.offsets
    ]
    assert {True} == {run.is_good for run in runs}
