"""What is refused by name."""

import pytest

from kbackup.config import refusals

HARMLESS = {
    "rotate.schedule.interval.ms": "-1",
    "schema.compatibility": "NONE",
    "behavior.on.null.values": "ignore",
    "s3.ssea.name": "",
    "s3.sse.customer.key": "",
    "s3.sse.kms.key.id": "",
    "s3.acl.canned": "",
    "s3.wan.mode": "False",
    "s3.proxy.": "",
    "s3.object.tagging": "false",
    "s3.credentials.provider.class": "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
    "s3.schema.partition.affix.type": "NONE",
    "mode": "RESTORE_BACKUP",
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
    "s3.ssea.name": "AES256",
    "s3.sse.customer.key": "x",
    "s3.sse.kms.key.id": "x",
    "s3.acl.canned": "private",
    "s3.wan.mode": "TRUE",
    "s3.proxy.": "http://p:1",
    "s3.object.tagging": "true",
    "s3.credentials.provider.class": "x.AwsAssumeRoleCredentialsProvider",
    "s3.schema.partition.affix.type": "PREFIX",
    "mode": "GENERIC",
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("s3.proxy.url", "s3.proxy.", id="a family"),
        pytest.param("mode", "mode", id="a name"),
        pytest.param("topics", None, id="another"),
    ],
)
def test_a_row_is_found_by_name_or_family(name: str, expected: str | None) -> None:
    """
    One row can stand for all properties that begin alike.
    """
    row = refusals.find(name)

    assert expected == (None if row is None else row.name)
