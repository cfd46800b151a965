"""Runs of the real S3 sink connector (10.5.15) by field, by time and over gaps, played again.

The records of a scenario go through convert, route, cut and write under the scenario's own
configuration.  JSON objects are the connector's byte for byte; of Avro objects, whose sync markers
are random, the rows are.  Where the connector wrote Parquet, the same values are written as JSON
here: what is compared is keys and counts.
"""

import io
import json
from pathlib import Path
from typing import Any, Final

import fastavro
import pytest
import scenario_files
from record_samples import batch_of

from tests.conformance.product import (
    ClosedFile,
    ConfigurationError,
    Conversion,
    Cut,
    OpenFiles,
    Span,
    TopicPartition,
    config,
    convert,
    cut,
    extractors,
    loading,
    partitioners,
    route,
    wiring,
)

SCENARIOS: Final = scenario_files.COPIES
NAMES: Final = [
    "daily-record",
    "evolve-backward",
    "evolve-none",
    "field-region",
    "offset-gaps",
    "time-bad-timezone",
    "time-locale-fr",
    "time-recordfield-long",
    "time-rotate-interval",
    "tombstones-write",
]
EXTENSIONS: Final = (".snappy.parquet", ".avro", ".json")
JSON: Final = "io.confluent.connect.s3.format.json.JsonFormat"


def scenario(name: str) -> dict[str, Any]:
    """Return what is known of a run."""
    found: dict[str, Any] = json.loads((SCENARIOS / name / "scenario.json").read_bytes())
    return found


def settings(name: str, folder: Path) -> config.Settings:
    """Return what kbackup makes of the connector's configuration, in JSON whatever it wrote."""
    given = scenario(name)["config"] | {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": str(is_avro(name)).lower(),
    }  # fmt: skip
    if not is_avro(name):
        given["format.class"] = JSON
    given["key.converter"] = "org.apache.kafka.connect.storage.StringConverter"
    given.pop("parquet.codec", None)
    given.pop("store.url", None)
    path = folder / "connector.json"
    path.write_text(json.dumps(given))
    options = {"bootstrap_servers": "h:1", "topics": ("t",)}
    return loading.load("sink", options=options, files=[path], environ={}).settings


def is_avro(name: str) -> bool:
    """Whether the connector wrote Avro."""
    return str(scenario(name)["config"]["format.class"]).endswith("AvroFormat")


def rows(name: str) -> list[dict[str, Any]]:
    """Return the records of a run as they were put."""
    text = (SCENARIOS / name / "input_records.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def value(given: dict[str, Any] | None, *, with_schema: bool) -> bytes | None:
    """Return the bytes in Kafka of what the connector was given by its converter."""
    if given is None:
        return None
    return json.dumps(given if with_schema else given["payload"], ensure_ascii=False).encode()


def played(name: str, folder: Path) -> list[ClosedFile]:
    """Return the files of a run's cuts."""
    given, chosen = rows(name), settings(name, folder)
    where = TopicPartition(given[0]["topic"], given[0]["partition"])
    batch = batch_of(
        [
            {
                "offset": row["offset"],
                "timestamp": row["timestamp"],
                "key": None if row["key"] is None else row["key"]["payload"].encode(),
                "value": value(row["value"], with_schema=is_avro(name)),
            }
            for row in given
        ]
    )
    views = [Conversion.of(spec) for spec in wiring.views(chosen)]
    options = wiring.partitioner_options(chosen)
    partitioner = partitioners.by_name(chosen.partitioner_class, options)
    extractor = extractors.by_name(chosen.timestamp_extractor, options)
    rule = wiring.rule(chosen)
    nulls, tombstones = wiring.nulls(chosen), rule.tombstones
    converted = convert(batch, views, compatibility=rule.compatibility, nulls=nulls)
    stream = (
        route(each, where, partitioner, extractor, 0, tombstones=tombstones) for each in converted
    )
    files = OpenFiles(where, views, wiring.layout(chosen), 2**20, tombstones=tombstones)
    closed = []
    for step in cut(stream, rule):
        if isinstance(step, Cut):
            closed += files.close(Span(0, step.next_offset))
        else:
            files.write(step.rows)
    files.drop()
    return closed


def bare(key: str) -> str:
    """Return a key without its extension."""
    for extension in EXTENSIONS:
        key = key.removesuffix(extension)
    return key


@pytest.mark.parametrize("name", [name for name in NAMES if scenario(name)["result"] == "ok"])
def test_a_run_makes_the_connectors_objects(name: str, tmp_path: Path) -> None:
    """The same records under the same configuration: the same keys, counts, and bytes of JSON."""
    objects = json.loads((SCENARIOS / name / "objects.json").read_bytes())

    files = played(name, tmp_path)

    assert {bare(one["key"]): one["records"] for one in objects} == {
        bare(file.key): file.facts.records for file in files
    }
    for one in objects:
        if one["key"].endswith(".parquet"):
            continue
        (file,) = (file for file in files if file.key == one["key"])
        file.body.seek(0)
        theirs, ours = (SCENARIOS / name / one["file"]).read_bytes(), file.body.read()
        if one["key"].endswith(".avro"):
            assert [*fastavro.reader(io.BytesIO(theirs))] == [*fastavro.reader(io.BytesIO(ours))]
        else:
            assert theirs == ours
    for file in files:
        file.body.close()


@pytest.mark.parametrize("name", [name for name in NAMES if scenario(name)["result"] != "ok"])
def test_what_the_connector_refuses_is_refused(name: str, tmp_path: Path) -> None:
    """A setting that the connector refuses is refused at startup, by the property's name."""
    with pytest.raises(ConfigurationError, match="timezone"):
        settings(name, tmp_path)
