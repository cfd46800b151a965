"""Runs of the real S3 sink connector (10.5.15), played again, and what it wrote, read.

Each folder of ``scenarios`` is one run.  Its records, as producers would have sent them, go through
convert, route, cut and write under its own configuration, without a server.
"""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scenario_files
from object_content import content
from record_samples import batch_of
from scenario_files import Given, Listed, Scenario

from tests.conformance.product import (
    COLUMNS,
    ConfigurationError,
    Conversion,
    Cut,
    FormatOptions,
    OpenFiles,
    Span,
    TopicPartition,
    View,
    config,
    convert,
    converters,
    cut,
    encoded,
    extractors,
    formats,
    loading,
    partitioners,
    route,
    schema_of,
    wiring,
)
from tests.support.scenario_runs import header, sent

ALL: Final = {path.name: Scenario.read(path) for path in sorted(scenario_files.COPIES.iterdir())}
ENDED_WELL: Final = [name for name, one in ALL.items() if one.result == "ok"]
READ: Final = [
    name
    for name in ENDED_WELL
    if "partitioner.class" not in ALL[name].config
    or ALL[name].config["partitioner.class"].endswith(".DefaultPartitioner")
    if ALL[name].config.get("schema.compatibility", "NONE") == "NONE"
]
"""The runs of which an object holds records that follow each other, as they were given."""


@dataclass
class Made:
    """What a run stores, the offset that it commits, and the records that it refuses."""

    objects: dict[str, bytes]
    next_offset: int
    bad: list[Any]


def settings(scenario: Scenario, folder: Path) -> config.Settings:
    """Return what kbackup makes of the connector's configuration."""
    path = folder / "connector.json"
    more = {"store.url": "http://127.0.0.1:1", "topics": "t"}
    path.write_text(json.dumps(scenario.config | scenario.converters | more))
    options = {"bootstrap_servers": "h:1"}
    return loading.load("sink", options=options, files=[path], environ={}).settings


def row(scenario: Scenario, given: Given) -> dict[str, Any]:
    """Return a record as it was in Kafka."""
    converter = scenario.config | scenario.converters
    return {
        "offset": given.offset,
        "timestamp": given.timestamp,
        "key": sent(given.key, converter, "key.converter"),
        "value": sent(given.value, converter, "value.converter"),
        "headers": [{"key": each["key"], "value": header(each["value"])} for each in given.headers],
    }


def made(scenario: Scenario, folder: Path, size: int = 100) -> Made:
    """Send a scenario through the flow, *size* records in a batch."""
    chosen = settings(scenario, folder)
    views = [Conversion.of(spec) for spec in wiring.views(chosen)]
    options = wiring.partitioner_options(chosen)
    partitioner = partitioners.by_name(chosen.partitioner_class, options)
    extractor = extractors.by_name(chosen.timestamp_extractor, options)
    rule, nulls = wiring.rule(chosen), wiring.nulls(chosen)
    rows = batch_of([row(scenario, one) for one in scenario.given])
    where = TopicPartition(scenario.given[0].topic, scenario.given[0].partition)
    stream = [
        route(each, where, partitioner, extractor, 0, tombstones=rule.tombstones)
        for start in range(0, len(rows), size)
        for each in convert(
            rows.slice(start, size), views, compatibility=rule.compatibility, nulls=nulls
        )
    ]
    files = OpenFiles(where, views, wiring.layout(chosen), 2**20, tombstones=rule.tombstones)
    found, start = {}, scenario.given[0].offset
    for step in cut(stream, rule):
        if not isinstance(step, Cut):
            files.write(step.rows)
            continue
        for closed in files.close(Span(start, step.next_offset)):
            closed.body.seek(0)
            found[closed.key] = closed.body.read()
            closed.body.close()
        start = step.next_offset
    files.drop()
    return Made(found, start, [bad for each in stream for bad in each.bad])


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("name", ENDED_WELL)
def test_a_run_makes_the_connectors_objects(name: str, size: int, tmp_path: Path) -> None:
    """The same records under the same configuration: the same keys, contents and offset."""
    scenario = ALL[name]

    found = made(scenario, tmp_path, size)

    assert {one.key: content(one.key, one.body) for one in scenario.objects} == {
        key: content(key, data) for key, data in found.objects.items()
    }
    assert ([], [found.next_offset]) == (found.bad, [*scenario.committed.values()])


def test_what_the_connector_refuses_is_refused(tmp_path: Path) -> None:
    """A setting that the connector refuses is refused at startup, by the property's name."""
    with pytest.raises(ConfigurationError, match="timezone"):
        settings(ALL["time-bad-timezone"], tmp_path)


@pytest.mark.parametrize(
    ("name", "offset", "reason"),
    [
        ("keys-null-key", 1, "a record has no key"),
        ("keys-headers-null-json", 2, "it is 'nul', and the connectors' header files"),
        ("bytes-null-fail", 1, "null"),
        ("tombstones-fail", 1, "null"),
    ],
)
def test_where_the_connector_failed_the_record_is_named(
    name: str, offset: int, reason: str, tmp_path: Path
) -> None:
    """What the layout cannot hold is refused before anything of it is written, and named."""
    found = made(ALL[name], tmp_path)

    assert [(offset, True)] == [(bad.offset, reason in str(bad)) for bad in found.bad]


def column_types(data: bytes) -> dict[str, tuple[str, str]]:
    """Return the physical and the logical type of each column of a Parquet file."""
    schema = pq.ParquetFile(io.BytesIO(data)).schema
    columns = [schema.column(at) for at in range(len(schema.names))]
    return {each.path: (each.physical_type, str(each.logical_type)) for each in columns}


def test_columns_of_parquet_have_the_connectors_types(tmp_path: Path) -> None:
    """But for decimals, which Arrow writes in a fixed length."""
    scenario = ALL["parquet-all-types"]
    [theirs_] = scenario.objects
    theirs = column_types(theirs_.body)

    ours = column_types(made(scenario, tmp_path).objects[theirs_.key])

    decimal = "Decimal(precision=64, scale=4)"
    assert ("BYTE_ARRAY", decimal) == theirs.pop("dec")
    assert ("FIXED_LEN_BYTE_ARRAY", decimal) == ours.pop("dec")
    assert theirs == ours


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        pytest.param(name, one, id=one.key.replace("topics/", f"{name} "))
        for name in READ
        if name != "bytes-embedded-newlines"  # which are more rows than records
        for one in ALL[name].objects
    ],
)
def test_the_connectors_objects_are_read(name: str, listed: Listed, tmp_path: Path) -> None:
    """What the connector was given comes back from its object, in JSON as producers sent it."""
    scenario, options = ALL[name], FormatOptions()
    chosen = settings(scenario, tmp_path)
    key = wiring.layout(chosen).parse(listed.key)
    named = formats.by_extension(key.extension, options) or ""
    form = formats.by_name(named)
    batches = [*form.read(io.BytesIO(listed.body), key.view, key.extension, options)]
    count, column = sum(map(len, batches)), COLUMNS[key.view]
    given = [one for one in scenario.given if one.offset >= key.start_offset][:count]

    assert listed.records in (None, count)
    if key.view is View.HEADERS:
        pairs = [
            [{"key": each["key"], "value": header_text(each["value"])} for each in one.headers]
            for one in given
        ]
        assert pairs == [row for each in batches for row in each[column].to_pylist()]
        return
    parts = [one.key if key.view is View.KEY else one.value for one in given]
    if named == "json":
        texts = [text for each in batches for text in each[column].to_pylist()]
        assert [payload(each) for each in parts] == [json.loads(text) for text in texts]
        return
    (spec,) = (spec for spec in wiring.views(chosen) if spec.view is key.view)
    converter = converters.by_name(spec.converter or "", spec.properties)
    texts = []
    for each in batches:
        schema = schema_of(each.schema.field(column))
        texts += encoded(converter, each[column], schema).to_pylist()
    rows = [row(scenario, one)[column] for one in given]
    (again,), (wanted,) = (converter.decode(pa.array(each, pa.binary())) for each in (texts, rows))
    assert wanted.values.equals(again.values)
    if "no-connect-meta" not in name:
        assert wanted.schema == again.schema


def header_text(value: Any) -> str | None:
    if value is None:
        return None
    return value["$bytes"] if "$bytes" in value else str(value["payload"])


def payload(part: Any) -> Any:
    return part["payload"] if "payload" in part else part["$schemaless"]
