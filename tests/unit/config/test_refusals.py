"""What is refused by name."""

import pytest

from kbackup.config import refusals

HARMLESS = {
    "rotate.schedule.interval.ms": "-1",
    "schema.compatibility": "NONE",
    "behavior.on.null.values": "ignore",
    "s3.schema.partition.affix.type": "NONE",
    "file.discovery.starting.timestamp": "0",
    "parse.error.topic.prefix": "error",
    "value.schema": "",
    "csv.rfc.4180.parser.enabled": "true",
    "csv.keep.carriage.return": "false",
    "filename.regex": r"(.+)\+(\d+)\+.+$",
    "format.json.schema.enable": "false",
    "predicates": "",
    "kafka.api.key": "",
    "kafka.api.secret": "",
}
REFUSED = {
    "rotate.schedule.interval.ms": "60000",
    "schema.compatibility": "FULL",
    "behavior.on.null.values": "WRITE",
    "s3.schema.partition.affix.type": "PREFIX",
    "file.discovery.starting.timestamp": "1700000000000",
    "parse.error.topic.prefix": "bad",
    "value.schema": "{}",
    "csv.rfc.4180.parser.enabled": "false",
    "csv.keep.carriage.return": "true",
    "filename.regex": ".*",
    "format.json.schema.enable": "true",
    "predicates": "p",
    "kafka.api.key": "x",
    "kafka.api.secret": "x",
}
NAMES = pytest.mark.parametrize("name", [refusal.name for refusal in refusals.REFUSALS])


@NAMES
def test_a_value_that_changes_something_is_refused(name: str) -> None:
    """
    What this version cannot do is not done halfway.
    """
    row = refusals.find(name)

    assert row is not None
    assert row.applies(REFUSED[name])
    assert row.why
    assert row.do


@NAMES
def test_a_harmless_value_is_accepted(name: str) -> None:
    """
    A file that merely spells out a default is as good as one that does not.
    """
    row = refusals.find(name)

    assert row is not None
    assert not row.applies(HARMLESS[name])
