"""Topics by regular expressions over object keys."""

import pytest

from kbackup.config import loading
from kbackup.errors import ConfigurationError
from kbackup.naming import Place
from kbackup.naming import generic as expressions
from kbackup.naming.generic import Expression


def test_a_comma_in_a_pattern_does_not_end_an_entry() -> None:
    """Entries are told apart by the topic that begins the next one."""
    found = expressions.read(r"clicks:a{1,3}/x,y, $1:raw/([a-z]+)/.* ,")

    assert (Expression("clicks", "a{1,3}/x,y"), Expression("$1", "raw/([a-z]+)/.*")) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("clicks", "expected TOPIC:PATTERN"),
        (":x", "expected TOPIC:PATTERN"),
        ("clicks:", "expected TOPIC:PATTERN"),
        ("clicks:(", "a group lacks its"),
        ("$1:x", "the pattern has 0 groups"),
        ("a:x,b:(?<=a*)", "in a look-behind"),
    ],
)
def test_what_is_no_entry_is_refused(text: str, why: str) -> None:
    """A pattern that Java would refuse, and a group that does not exist, are known before a run."""
    with pytest.raises(ValueError, match=why):
        expressions.read(text)


@pytest.mark.parametrize(
    ("key", "place"),
    [
        pytest.param("x/orders-3-0000000012.gz", Place("orders", 3, 12), id="all in the name"),
        pytest.param("x/my-orders-3-12.gz", Place("my-orders", 3, 12), id="dashes in the topic"),
        pytest.param("x/orders-a-12.gz", None, id="no number"),
        pytest.param("x/orders-3-12.gz.tmp", None, id="only a part of the key"),
    ],
)
def test_a_key_names_its_place(key: str, place: Place | None) -> None:
    """The whole key has to match; groups named partition and offset have to be numbers."""
    found = expressions.read(r"$1:x/(.+)-(?<partition>\w+)-(?<offset>\d+)\.gz")

    assert place == expressions.place(found, key)


def test_the_first_entry_that_matches_counts() -> None:
    """The first expression that matches a key decides its topic."""
    found = expressions.read("errors:.*err.*,all:.*")

    assert [Place("errors", 0, 0), Place("all", 0, 0)] == [
        expressions.place(found, key) for key in ("err", "x")
    ]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        pytest.param(["mode=GENERIC"], "topic.regex.list", id="no expression"),
        pytest.param(["topic.regex.list=a:b"], "topic.regex.list", id="not in this mode"),
        pytest.param(
            ["file.metadata.headers.enable=true"],
            "file.metadata.headers.enable",
            id="headers not in this mode",
        ),
        pytest.param(
            ["mode=GENERIC", "topic.regex.list=a:b", "store.kafka.keys=true"],
            "store.kafka.keys",
            id="objects of keys",
        ),
        pytest.param(["mode=OTHER"], "mode", id="no such mode"),
    ],
)
def test_what_would_have_no_effect_is_refused_by_name(given: list[str], name: str) -> None:
    """What changes which records are restored is never accepted without effect."""
    options = {"bootstrap_servers": "-", "s3_bucket_name": "b"}

    with pytest.raises(ConfigurationError) as caught:
        loading.load("restore", options=options, files=(), environ={}, extra=given)

    assert [name] == [each["name"] for each in caught.value.place["errors"]]
