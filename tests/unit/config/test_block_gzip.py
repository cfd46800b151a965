"""The block-gzip layout: by name, or by the file of the connector that writes it."""

from pathlib import Path
from typing import Final

import pytest

from kbackup.config.loading import Command
from kbackup.errors import ConfigurationError
from kbackup.naming import DatedLayout, TemplateLayout
from kbackup.runs import wiring
from tests.support.configurations import loaded

CONNECTOR: Final = """
name=s3-sink
connector.class=com.deviantart.kafka_connect_s3.S3SinkConnector
topics=orders
s3.bucket=backups
local.buffer.dir=/tmp/buffer
"""


def test_a_connectors_file_chooses_the_layout(tmp_path: Path) -> None:
    """The connector's properties have their own defaults, and flush.size is not required."""
    text = CONNECTOR + (
        "s3.prefix=systest/\ns3.endpoint=http://127.0.0.1:9000\ns3.path_style=true\n"
        "compressed_block_size=1000\n"
    )
    settings = loaded(tmp_path, text).settings

    assert DatedLayout("systest", "/", "-", 12) == wiring.layout(settings)
    assert ("s3://backups", "http://127.0.0.1:9000") == (settings.url, settings.endpoint_url)
    assert 1000 == settings.options_of("formats")["compressed_block_size"]
    assert settings.options_of("stores")["s3.path.style.access.enabled"] is True
    assert ("connect-s3-sink", "upload_date") == (settings.group, settings.partitioner_class)
    assert ["block_gzip"] == [spec.format for spec in wiring.views(settings)]


@pytest.mark.parametrize("command", ["sink", "restore", "list", "verify", "peek", "query"])
def test_every_command_reads_the_same_layout_from_it(tmp_path: Path, command: Command) -> None:
    """Without s3.prefix the dates are the first part of each key."""
    settings = loaded(tmp_path, CONNECTOR, command).settings

    assert DatedLayout("", "/", "-", 12) == wiring.layout(settings)


def test_the_format_alone_chooses_the_layout(tmp_path: Path) -> None:
    """Files are cut as full records are, by number, bytes and time."""
    text = "topics=orders\ns3.bucket.name=b\nformat.class=block_gzip\n"
    settings = loaded(tmp_path, text).settings

    assert DatedLayout("topics", "/", "-", 12) == wiring.layout(settings)
    rule = wiring.rule(settings)
    assert (1_000_000, 134_217_728, 86_400_000) == (rule.records, rule.bytes, rule.span_ms)


def test_limits_that_are_given_count(tmp_path: Path) -> None:
    """Limits that the operator sets win over the defaults."""
    text = CONNECTOR + "flush.size=7\nrotate.bytes=1000000000\nrotate.interval.ms=-1\n"
    rule = wiring.rule(loaded(tmp_path, text).settings)

    assert (7, 1_000_000_000, None) == (rule.records, rule.bytes, rule.span_ms)


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        ("store.kafka.keys=true", "store.kafka.keys", "no place for keys"),
        ("store.kafka.headers=true", "store.kafka.headers", "no place for headers"),
        ("partitioner.class=default", "partitioner.class", "names of their own"),
        ("value.converter=JsonConverter", "value.converter", "bytes, string"),
        ("view=record", "format.class", "cannot hold full records"),
        ("compressed_block_size=0", "compressed_block_size", ""),
    ],
)
def test_what_does_not_go_with_it_is_refused_by_name(
    tmp_path: Path, text: str, name: str, why: str
) -> None:
    """A property that the block-gzip layout has no place for is refused by name."""
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, f"{CONNECTOR}{text}\n")

    assert name in str(caught.value)
    assert why in str(caught.value)


def test_dates_of_upload_go_with_no_other_format(tmp_path: Path) -> None:
    """Dated directories are refused with other formats, whose names do not allow them."""
    text = "topics=t\ns3.bucket.name=b\nformat.class=json\nflush.size=3\n"

    with pytest.raises(ConfigurationError, match="block_gzip only"):
        loaded(tmp_path, f"{text}partitioner.class=upload_date\n")


def test_another_connector_of_the_same_simple_name_needs_its_format(tmp_path: Path) -> None:
    """Only the full class name distinguishes the two connectors."""
    text = CONNECTOR.replace("com.deviantart.kafka_connect_s3", "io.confluent.connect.s3")

    with pytest.raises(ConfigurationError, match=r"format\.class"):
        loaded(tmp_path, text)


def test_names_may_follow_a_template(tmp_path: Path) -> None:
    """Every command that reads the backup takes it from the same file."""
    template = "{year}/{month}/{day}/{topic}-{partition}-{offset}"
    for command in ("sink", "restore", "verify"):
        settings = loaded(tmp_path, f"{CONNECTOR}object.name.template={template}", command).settings
        layout = wiring.layout(settings)
        assert isinstance(layout, TemplateLayout)
        assert template == layout.template


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(CONNECTOR + "object.name.template={date}/{topic}", id="cannot be read back"),
        pytest.param(
            "topics=t\ns3.bucket.name=b\nobject.name.template={date}/{topic}-{partition}-{offset}",
            id="another layout",
        ),
    ],
)
def test_a_template_that_cannot_work_is_refused_by_name(tmp_path: Path, text: str) -> None:
    """Names that could not be read back, or a layout whose names are not its own."""
    with pytest.raises(ConfigurationError, match=r"object\.name\.template"):
        loaded(tmp_path, text)
