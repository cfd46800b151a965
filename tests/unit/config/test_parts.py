"""Partitioners, extractors and rotation as properties: their defaults, checks and refusals."""

import pytest

from kbackup.config import loading
from kbackup.errors import ConfigurationError
from kbackup.runs import wiring
from tests.support.configurations import SINK, Write, load

DAILY = "partitioner.class=io.confluent.connect.storage.partitioner.DailyPartitioner\n"
ZONE = "timezone=UTC\nlocale=en\n"


def test_a_connectors_partitioner_goes_by_its_clock(write: Write) -> None:
    """The connector's defaults apply where its file is silent, and a surprising one is reported."""
    loaded = load(
        "sink", write(SINK + DAILY + ZONE + "rotate.interval.ms=60000"), bootstrap_servers="h:1"
    )
    rule = wiring.rule(loaded.settings)

    assert ("daily", "wallclock") == (
        loaded.settings.partitioner_class,
        loaded.settings.timestamp_extractor,
    )
    assert (True, 60_000) == (rule.on_directory_change, rule.span_ms)
    assert "timestamp.extractor" in {
        issue.name for issue in loaded.warnings if issue.code == "assumed"
    }


def test_full_records_go_by_their_own_time() -> None:
    """Directories by time say when a record was made, and late ones close no files."""
    options = {
        "bootstrap_servers": "h:1", "topics": ("t",), "s3_bucket_name": "b",
        "partitioner_class": "daily", "timezone": "UTC", "locale": "en",
    }  # fmt: skip
    settings = loading.load("sink", options=options, files=[], environ={}).settings

    assert "record" == settings.timestamp_extractor
    assert not wiring.rule(settings).on_directory_change


def test_a_zone_that_there_is_not_is_one_error(write: Write) -> None:
    """A value that a partitioner refuses too is reported once, with where it was given."""
    path = write(SINK + DAILY + "locale=en\ntimezone=PST")

    with pytest.raises(ConfigurationError) as caught:
        load("sink", path, bootstrap_servers="h:1")

    [found] = caught.value.place["errors"]
    assert ("timezone", f"file {path}") == (found["name"], found["origin"].rpartition(":")[0])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param(DAILY + "locale=en", "timezone", id="no zone"),
        pytest.param(DAILY + "timezone=UTC", "locale", id="no language"),
        pytest.param(DAILY + "locale=en\ntimezone=PST", "timezone", id="no such zone"),
        pytest.param("timezone=utc", "timezone", id="a zone by another case"),
        pytest.param(
            DAILY.replace("Daily", "TimeBased") + ZONE + "partition.duration.ms=60000",
            "path.format",
            id="no pattern",
        ),
        pytest.param(
            DAILY.replace("Daily", "TimeBased") + ZONE + "path.format=YYYY",
            "partition.duration.ms",
            id="no span",
        ),
        pytest.param(
            DAILY.replace("Daily", "TimeBased")
            + ZONE
            + "path.format=YYYY\npartition.duration.ms=0",
            "partition.duration.ms",
            id="a span of nothing",
        ),
        pytest.param(
            DAILY.replace("Daily", "TimeBased")
            + ZONE
            + "partition.duration.ms=60000\npath.format=YYYY-b",
            "path.format",
            id="a letter that means nothing",
        ),
        pytest.param(
            DAILY.replace("Daily", "Field"), "partition.field.name", id="no field"
        ),
        pytest.param("partition.field.name=a..b", "partition.field.name", id="an empty name"),
        pytest.param("rotate.schedule.interval.ms=60000", "timezone", id="a schedule of no zone"),
        pytest.param("schema.compatibility=Full", "schema.compatibility", id="a misspelt mode"),
        pytest.param(
            "schema.compatibility=FULL_TRANSITIVE", "schema.compatibility", id="transitive"
        ),
        pytest.param(
            "s3.schema.partition.affix.type=Prefix", "s3.schema.partition.affix.type", id="affix"
        ),
        pytest.param("timestamp.extractor=record-time", "timestamp.extractor", id="no extractor"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_by_name(write: Write, text: str, name: str) -> None:
    """A missing or wrong property is reported by name before anything is read."""
    with pytest.raises(ConfigurationError) as caught:
        load("sink", write(SINK + text), bootstrap_servers="h:1")

    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("rotate.schedule.interval.ms=60000\ntimezone=+02:00", "schedule", id="clock"),
        pytest.param("partitioner.max.open.files=5", "open_files", id="open files"),
        pytest.param("schema.compatibility=BACKWARD", "compatibility", id="schemas"),
    ],
)
def test_a_property_of_rotation_is_part_of_the_rule(write: Write, text: str, found: str) -> None:
    """Each property of rotation in a file reaches the rule by which files are cut."""
    rules = [
        wiring.rule(load("sink", write(SINK + more), bootstrap_servers="h:1").settings)
        for more in ("", text)
    ]
    usual, given = (getattr(rule, found) for rule in rules)

    assert usual != given
