"""``format.class=log``: full records as batches, and nothing that needs records one by one."""

from pathlib import Path

import pytest

from kbackup.config.loading import Command
from kbackup.errors import ConfigurationError
from kbackup.naming import View
from kbackup.runs import wiring
from tests.support.configurations import loaded

LOG = "topics=orders\ns3.bucket.name=b\nformat.class=log\n"

_TRANSFORMS = "org.apache.kafka.connect.transforms"


def test_batches_are_full_records(tmp_path: Path) -> None:
    """It chooses full records, which are cut as those are."""
    settings = loaded(tmp_path, LOG).settings

    (spec,) = wiring.views(settings)
    assert (View.RECORD, "log", ".log.zst") == (spec.view, spec.format, spec.extension())
    rule = wiring.rule(settings)
    assert (1_000_000, 134_217_728, 86_400_000) == (rule.records, rule.bytes, rule.span_ms)
    assert "batches" == wiring.passing(settings, writes=False)["kafka_client"]


@pytest.mark.parametrize("writes", [False, True])
def test_why_a_run_has_no_batches_is_known(tmp_path: Path, *, writes: bool) -> None:
    """What only librdkafka speaks is a reason; who chose its client knows it."""
    signed = "topics=orders\ns3.bucket.name=b\nsasl.mechanism=OAUTHBEARER\n"
    signed += "security.protocol=SASL_SSL\n"
    command: Command = "restore" if writes else "sink"
    free = loaded(tmp_path, signed, command).settings
    chosen = loaded(tmp_path, f"{signed}kafka.client=python\n", command).settings

    found = [wiring.passing(each, writes=writes)["by_records"] for each in (free, chosen)]

    assert "OAUTHBEARER" in str(found[0])
    assert found[1] is None


@pytest.mark.parametrize("command", ["sink", "restore", "list", "verify", "query"])
def test_every_command_takes_its_file(tmp_path: Path, command: Command) -> None:
    """Who reads the backup may use the sink's file."""
    assert ("orders",) == loaded(tmp_path, LOG, command).settings.topics


def test_names_of_topics_may_change(tmp_path: Path) -> None:
    """A router renames topics and leaves records alone."""
    text = (
        f"{LOG}transforms=r\ntransforms.r.type={_TRANSFORMS}.RegexRouter\n"
        "transforms.r.regex=(.*)\ntransforms.r.replacement=copy_of_$1\n"
    )

    assert 1 == len(loaded(tmp_path, text).settings.renames)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("partitioner.class=daily\nlocale=en\ntimezone=UTC\n", "partitioner.class"),
        ("partitioner.class=field\npartition.field.name=id\n", "partitioner.class"),
        ("partitioner.class=Modulo\n", "partitioner.class"),
        (
            "errors.tolerance=all\nerrors.deadletterqueue.topic.name=dead\n",
            "errors.deadletterqueue.topic.name",
        ),
        (
            f"transforms=h\ntransforms.h.type={_TRANSFORMS}.DropHeaders\ntransforms.h.headers=x\n",
            "transforms",
        ),
        ("s3.schema.partition.affix.type=PREFIX\n", "s3.schema.partition.affix.type"),
    ],
)
def test_what_needs_records_is_refused_by_name(tmp_path: Path, text: str, name: str) -> None:
    """What looks into records is refused, exit 2, and Parquet is named."""
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, LOG + text)

    assert name in str(caught.value)
    assert "batches are stored" in str(caught.value)
    assert "Parquet" in str(caught.value) + caught.value.do


def test_one_directory_for_all_records_needs_none(tmp_path: Path) -> None:
    """A partitioner that looks into no record goes with batches."""
    settings = loaded(tmp_path, f"{LOG}partitioner.class=default\n").settings

    assert "default" == settings.partitioner_class


def test_values_are_no_batches(tmp_path: Path) -> None:
    """The connectors' layout has no file of this format."""
    with pytest.raises(ConfigurationError, match=r"format\.class") as caught:
        loaded(tmp_path, f"{LOG}view=value\nflush.size=3\n")

    assert "full records only" in str(caught.value)
