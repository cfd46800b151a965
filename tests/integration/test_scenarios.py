"""Every run of the real S3 sink connector again, in a real Kafka, and what it wrote restored.

The scenarios are those of ``tests/conformance/scenarios``, or of the folder that
``KBACKUP_OBJECTS`` names.  Kafka, the bucket, the configuration and the runs are the real ones;
only Spark is not: each task runs in this process, because starting Spark for every scenario would
take minutes.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import scenario_files
from object_content import content, stored
from scenario_files import Scenario

from tests.integration.product import ConfigurationError, LocalS3, Store
from tests.support.cluster import TestCluster
from tests.support.scenario_runs import Bench, Same

pytestmark = pytest.mark.integration


@pytest.fixture
def bench(
    scenario: Scenario, cluster: TestCluster, s3: LocalS3, bucket: str, tmp_path: Path
) -> Bench:
    """Where the scenario of the test is run."""
    return Bench(scenario, cluster, s3, bucket, tmp_path)


@pytest.mark.parametrize("scenario", scenario_files.scenarios(ended_well=True))
def test_a_run_writes_what_the_connector_wrote(bench: Bench, store: Store) -> None:
    """The connector's configuration and records give its keys, its content and its offsets."""
    scenario = bench.scenario

    with bench.topics_written():
        summary = bench.sink()
        committed = bench.committed()

    found = stored(store)
    assert (0, []) == (summary["exit_code"], summary["errors"])
    if bench.closes_earlier:
        compare_rows({one.key: one.body for one in scenario.objects}, found)
        return
    assert scenario.committed == {where: committed[where] for where in scenario.committed}
    assert sorted(one.key for one in scenario.objects) == sorted(found)
    for one in scenario.objects:
        ours = content(one.key, found[one.key])
        assert content(one.key, one.body) == ours
        assert one.records in (None, len(ours.rows))


@pytest.mark.parametrize("scenario", scenario_files.scenarios(ended_well=True))
def test_what_the_connector_wrote_is_restored(bench: Bench, store: Store) -> None:
    """Each record below the connector's committed offset is back once, in place and in order."""
    scenario = bench.scenario
    scenario.put_into(store)

    summary = bench.restore()

    assert (0, []) == (summary["exit_code"], summary["errors"])
    compare(bench, scenario.committed, {one.key: one.body for one in scenario.objects})


@pytest.mark.parametrize("scenario", scenario_files.scenarios(ended_well=False))
def test_where_the_connector_failed_nothing_is_partial(bench: Bench, store: Store) -> None:
    """A property is refused by name, or a record by offset; what is committed can be restored."""
    scenario = bench.scenario

    with bench.topics_written():
        code, errors = ended(bench)
        committed = bench.committed()

    found = stored(store)
    assert scenario_files.ENDS.get(scenario.name, code) == code
    if code == 2:
        assert {one["name"] for one in errors} <= scenario.config.keys()
        assert {} == found
        return
    ends = {(one.topic, one.partition): one.offset + 1 for one in scenario.given}
    bad = {(one["topic"], one["partition"]): one["offset"] for one in errors}
    assert bad.keys() <= ends.keys()
    assert bool(bad) == (code != 0)
    assert all(committed[where] <= offset for where, offset in bad.items())
    assert any(committed.values()) == bool(found)
    if found:
        assert 0 == bench.restore()["exit_code"]
        compare(bench, committed, found)


def ended(bench: Bench) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and the errors of a sink."""
    try:
        summary = bench.sink()
    except ConfigurationError as error:
        return error.exit_code, error.place["errors"]
    return summary["exit_code"], summary["errors"]


def compare(bench: Bench, committed: dict[tuple[str, int], int], objects: dict[str, bytes]) -> None:
    """Compare what a restore of *objects* wrote with what was given below the committed offsets.

    What the connectors' layout loses is left out: timestamps, the end of a value that contains the
    separator, and the order of records in different directories.
    """
    filled = {where for where, end in committed.items() if end}
    assert filled == bench.filled_targets()
    for topic, partition in filled:
        wanted = bench.expected(topic, partition, committed[topic, partition])
        found = bench.restored(topic, partition)
        if bench.is_projected:
            found = [one.within(given) for one, given in zip(found, wanted, strict=True)]
        if bench.is_split and any(b"\n" in (one.value or b"") for one in wanted):
            wanted, found = joined(wanted), joined(found)
        directories = bench.directories(topic, partition, objects)
        tombstones = [one for one in wanted if one.value is None]
        if len(directories) == 1 and not tombstones:
            assert wanted == found
            continue
        assert Counter(wanted) == Counter(found)
        assert tombstones == [one for one in found if one.value is None]
        for rows in directories.values():
            values = [one.value for one in found]
            assert [one for one in values if one in rows] == [one for one in rows if one in values]


def compare_rows(theirs: dict[str, bytes], ours: dict[str, bytes]) -> None:
    """Compare what directories hold, however their objects are cut and as far as both go."""
    rows = [rows_of(theirs), rows_of(ours)]
    assert rows[0].keys() == rows[1].keys()
    for where, found in rows[0].items():
        both = min(len(found), len(rows[1][where]))
        assert both
        assert found[:both] == rows[1][where][:both]


def rows_of(objects: dict[str, bytes]) -> dict[tuple[str, ...], list[Any]]:
    """Return the rows of each directory and view, in the order of the objects."""
    found: dict[tuple[str, ...], list[Any]] = {}
    for key in sorted(objects):
        directory, _, name = key.rpartition("/")
        where = (directory, *(view for view in (".keys.", ".headers.") if view in name))
        found.setdefault(where, []).extend(content(key, objects[key]).rows)
    return found


def joined(records: list[Same]) -> list[Same]:
    """Return one record of all values, each with the separator after it."""
    return [Same(None, b"".join((one.value or b"") + b"\n" for one in records), ())]
