"""What version 1 has stored is restored for ever; ``tests/golden/make.py`` says how it was made."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from backup_samples import Backup

from kbackup.catalog import identity
from kbackup.clock import SystemClock
from kbackup.kafka import Position
from kbackup.records import Span
from kbackup.sink.plan import make_plan
from tests.golden.make import COPY, FOLDER, LAYOUTS, WHERE, reading, restoring, settings, text
from tests.support.fake_kafka import FakeKafka
from tests.support.target import Restoring


@pytest.fixture(params=LAYOUTS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Backup, dict[str, Any]]:
    """A layout, a copy of its bucket, and what is said beside it."""
    shutil.copytree(FOLDER / request.param / "store", tmp_path, dirs_exist_ok=True)
    said = json.loads((FOLDER / request.param / "said.json").read_text())
    return request.param, Backup.in_folder(tmp_path), said


def rows(restored: Restoring) -> list[list[str | None]]:
    """The records of the copy."""
    return [
        [text(row["key"]), text(row["value"])] for row in restored.cluster.logs[COPY].rows if row
    ]


def test_a_backup_of_version_1_is_restored(golden: tuple[str, Backup, dict[str, Any]]) -> None:
    """All that its three runs have stored, those of the one that died too."""
    name, backup, said = golden
    found = restoring(name, backup)

    found.restore(reading=reading(name))

    assert said["records"] == rows(found)


def test_a_restore_of_version_1_goes_on(golden: tuple[str, Backup, dict[str, Any]]) -> None:
    """From its position, wherever the bucket is now: each record comes once."""
    name, backup, said = golden
    found = restoring(name, backup)
    found.cluster.create_topic(COPY.topic, 1, 1, {})
    found.cluster.ids[COPY.topic] = said["target_id"]
    found.cluster.logs[COPY].rows = [{}] * said["target_rows"]
    ((_, _, offset, metadata),) = said["restored"]
    found.cluster.groups[said["group"]] = {COPY: Position(offset, metadata)}

    found.restore(reading=reading(name), group=said["group"])

    assert said["records"][offset:] == rows(found)
    assert found.identity is not None
    assert identity.read(backup.store, backup.layout, "elsewhere").id == found.identity.id


def test_a_sink_goes_on_after_version_1(golden: tuple[str, Backup, dict[str, Any]]) -> None:
    """At its position, with what was stored and not committed stored again."""
    name, backup, said = golden
    ((_, _, offset, metadata),) = said["committed"]
    cluster = FakeKafka(
        {"orders": "id-of-orders"}, {WHERE: Span(0, len(said["records"]))},
        positions_={WHERE: Position(offset, metadata)},
    )  # fmt: skip
    asked = settings(name, backup.settings.url)

    (at,) = make_plan(asked, cluster, backup.store, SystemClock()).partitions  # type: ignore[arg-type]

    assert at.start is not None
    assert (offset, ()) == (at.start.offset, at.start.expired)
