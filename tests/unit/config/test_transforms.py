"""Renaming steps out of a connector's file, and out of ``--rename``."""

import pytest

from kbackup.config import transforms
from kbackup.config.issues import Given, Origin, Value
from kbackup.config.loading import Command
from kbackup.config.transforms import steps
from kbackup.naming.renaming import rename
from kbackup.plugins import Step
from tests.support.configurations import Write, errors, load

TYPE = "org.apache.kafka.connect.transforms.RegexRouter"


def _given(properties: dict[str, str]) -> Given:
    return Given({name: Value(text, Origin("file", "f:1")) for name, text in properties.items()})


ROUTER = {
    "transforms": "a, b",
    "transforms.a.type": TYPE,
    "transforms.a.regex": "(.*)",
    "transforms.a.replacement": "x_$1",
    "transforms.b.type": TYPE,
    "transforms.b.regex": "x_(.*)",
    "transforms.b.replacement": "y_$1",
}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        pytest.param({}, "orders", id="nothing"),
        pytest.param({"rename": "copy_of_$0"}, "copy_of_orders", id="rename"),
        pytest.param({"rename": "$1", "rename.regex": "o(.*)"}, "rders", id="with a pattern"),
        pytest.param({"rename": "$1", "rename.regex": "p(.*)"}, "orders", id="no match"),
        pytest.param({"rename.prefix": "copy_of_"}, "copy_of_orders", id="prefix"),
        pytest.param({"rename.prefix": "x.", "rename.regex": "p.*"}, "orders", id="no prefix"),
        pytest.param(ROUTER, "y_orders", id="one after the other"),
        pytest.param(ROUTER | {"transforms": "b,a"}, "x_orders", id="in the order of transforms"),
        pytest.param(ROUTER | {"transforms": ""}, "orders", id="none is listed"),
        pytest.param(ROUTER | {"rename": "z"}, "z", id="rename takes their place"),
    ],
)
def test_a_topic_gets_the_name_the_file_says(properties: dict[str, str], expected: str) -> None:
    """Every way of configuring a rename yields the same steps."""
    steps = transforms.renaming_of(_given(properties)).steps

    assert expected == rename("orders", steps)


def test_a_name_is_given_in_one_way() -> None:
    """A prefix beside a whole name is no renaming, but a mistake."""
    found = transforms.renaming_of(_given({"rename": "z", "rename.prefix": "a_"}))

    assert ((), ["rename.prefix"]) == (found.steps, [issue.name for issue in found.issues])


def test_a_replaced_chain_is_said() -> None:
    """A file's transforms do not vanish in silence behind an option."""
    issues = transforms.renaming_of(_given(ROUTER | {"rename": "z"})).issues

    assert [("warning", "transforms.a.type"), ("warning", "transforms.b.type")] == [
        (issue.level, issue.name) for issue in issues
    ]


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        pytest.param({"rename": "$x"}, "rename", id="no group"),
        pytest.param({"rename": "x", "rename.regex": "("}, "rename", id="no pattern"),
        pytest.param({"rename.regex": "x"}, "rename.regex", id="pattern alone"),
        pytest.param({"transforms": "a"}, "transforms.a.type", id="no type"),
        pytest.param(
            {"transforms": "a", "transforms.a.type": TYPE}, "transforms.a", id="no replacement"
        ),
        pytest.param(
            ROUTER | {"transforms.a.predicate": "p"}, "transforms.a.predicate", id="condition"
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(properties: dict[str, str], name: str) -> None:
    """A transform that cannot be applied to names is refused by name."""
    found = transforms.renaming_of(_given(properties))

    assert [("error", name)] == [(issue.level, issue.name) for issue in found.issues]


INSERT = {
    "transforms": "at,text",
    "transforms.at.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.at.timestamp.field": "ts",
    "transforms.text.type": "org.apache.kafka.connect.transforms.TimestampConverter$Value",
    "transforms.text.field": "ts",
    "transforms.text.target.type": "string",
    "transforms.text.format": "yyyy-MM-dd",
}


def test_a_sinks_transforms_are_steps_in_their_order() -> None:
    """A chain is what the file says: class, side and options of each."""
    found = steps(_given(INSERT), "value", has_keys=False)

    assert [] == found.issues
    assert (
        Step("at", "insert_field", "value", {"timestamp.field": "ts"}),
        Step(
            "text",
            "timestamp_converter",
            "value",
            {"field": "ts", "target.type": "string", "format": "yyyy-MM-dd"},
        ),
    ) == found.steps


@pytest.mark.parametrize(
    ("more", "name", "why"),
    [
        pytest.param(
            {"transforms.at.type": "io.debezium.transforms.ExtractNewRecordState"},
            "transforms.at.type", "no installed transform has this name", id="of somebody else",
        ),
        pytest.param(
            {"transforms.at.type": "x.InsertField"},
            "transforms.at.type", "there is no such class", id="neither key nor value",
        ),
        pytest.param(
            {"transforms": "at,nope"}, "transforms.nope.type", "its type is not set", id="no type"
        ),
        pytest.param(
            {"transforms.text.target.type": "text"},
            "transforms.text.target.type", "expected 'string'", id="no such word",
        ),
        pytest.param(
            {"transforms.text.target.type": ""},
            "transforms.text.target.type", "expected", id="empty",
        ),
        pytest.param(
            {"transforms.text.format": "yyyy-bb"},
            "transforms.text.format", "'b' is not a letter", id="no pattern",
        ),
        pytest.param(
            {"transforms.text.format": ""}, "transforms.text.format", "needs a format",
            id="no pattern for text",
        ),
        pytest.param(
            {"transforms.at.timestamp.field": ""}, "transforms.at.type", "none is named",
            id="nothing to insert",
        ),
        pytest.param(
            {"transforms.at.predicate": "p"}, "transforms.at.predicate", "does not name 'p'",
            id="no such predicate",
        ),
        pytest.param(
            {"transforms": "at,text,at"}, "transforms", "names at 2 times", id="named twice"
        ),
    ],
)  # fmt: skip
def test_what_a_sink_cannot_do_is_refused_by_name(
    more: dict[str, str], name: str, why: str
) -> None:
    """A record is never stored otherwise than its configuration says."""
    found = steps(_given(INSERT | more), "value", has_keys=False)
    errors = [issue for issue in found.issues if issue.level == "error"]

    assert [name] == [issue.name for issue in errors]
    assert why in errors[0].why


def test_full_records_refuse_what_changes_a_value() -> None:
    """Their bytes are kept as they are, and are not converted."""
    found = steps(_given(INSERT), "record", has_keys=True)

    assert ["transforms.at.type", "transforms.text.type"] == [d.name for d in found.issues]
    assert all("full records keep their bytes" in issue.why for issue in found.issues)


OF_KEYS = {"transforms.at.type": "org.apache.kafka.connect.transforms.InsertField$Key"}


@pytest.mark.parametrize(
    ("properties", "name", "kept"),
    [
        pytest.param(INSERT | OF_KEYS, "transforms.at.type", ["text"], id="of keys not stored"),
        pytest.param({"transforms.at.type": TYPE}, "transforms.at.type", [], id="not listed"),
        pytest.param(
            INSERT | {"transforms.at.timestamp.feild": "x"},
            "transforms.at.timestamp.feild",
            ["at", "text"],
            id="an option that it does not have",
        ),
    ],
)
def test_what_has_no_effect_in_a_chain_is_said(
    properties: dict[str, str], name: str, kept: list[str]
) -> None:
    """Kafka ignores some of it silently."""
    found = steps(_given(properties), "value", has_keys=False)

    assert kept == [step.alias for step in found.steps]
    assert [("warning", name)] == [(issue.level, issue.name) for issue in found.issues]


MASK = {
    "transforms": "name,mask",
    "transforms.name.type": TYPE,
    "transforms.name.regex": ".*",
    "transforms.name.replacement": "copy_of_$0",
    "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.mask.fields": "card",
}
BOTH = frozenset({"key", "value"})


def test_a_restore_has_the_whole_chain_and_its_renaming() -> None:
    """Names are known before a record is read; the chain sees them as they become."""
    given = _given(MASK)
    found = transforms.restore_steps(given, BOTH)

    assert [] == found.issues
    assert ["name", "mask"] == [step.alias for step in found.steps]
    assert "copy_of_orders" == rename("orders", transforms.renaming_of(given).steps)


def test_a_restore_that_only_renames_changes_no_record() -> None:
    """A restore that only renames topics does not convert records."""
    assert () == transforms.restore_steps(_given(ROUTER), frozenset()).steps


def test_rename_takes_the_place_of_routers_alone() -> None:
    """A restore that is to hide something hides it under every name."""
    found = transforms.restore_steps(_given(MASK | {"rename": "x"}), BOTH)

    assert ["mask"] == [step.alias for step in found.steps]


@pytest.mark.parametrize(
    ("more", "converters", "name", "why"),
    [
        pytest.param({}, frozenset(), "transforms.mask.type", "no converter is set to read it",
                     id="no converter"),
        pytest.param(
            {"transforms.mask.type": "io.confluent.connect.transforms.Drop$Value"}, BOTH,
            "transforms.mask.type", "no installed transform has this name", id="not there",
        ),
        pytest.param(
            {"transforms": "mask,mask"}, BOTH, "transforms", "names mask 2 times", id="named twice"
        ),
        pytest.param(
            {"transforms": "mask,hide", "rename": "copy_of_$0"}, BOTH, "transforms.hide.type",
            "its type is not set", id="no type, and another renaming",
        ),
    ],
)  # fmt: skip
def test_what_a_restore_cannot_do_is_refused_by_name(
    more: dict[str, str], converters: frozenset[str], name: str, why: str
) -> None:
    """A transform that a restore cannot do is refused, since it may be meant to hide data."""
    found = transforms.restore_steps(_given(MASK | more), converters)

    assert [name] == [issue.name for issue in found.issues if issue.level == "error"]
    assert any(why in issue.why for issue in found.issues)


ROUTED_SINK = """
connector.class=io.confluent.connect.s3.S3SinkConnector
name=s3-sink
topics=orders,payments
s3.bucket.name=b
flush.size=3
format.class=io.confluent.connect.s3.format.json.JsonFormat
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
transforms=copy
transforms.copy.type=org.apache.kafka.connect.transforms.RegexRouter
transforms.copy.regex=o.*
transforms.copy.replacement=copy_of_$0
"""


def test_a_sinks_router_names_what_it_stores(write: Write) -> None:
    """RegexRouter in a sink changes the name that a topic is stored under, and no record."""
    settings = load("sink", write(ROUTED_SINK), bootstrap_servers="h:1").settings

    assert ("copy_of_orders", ()) == (rename("orders", settings.renames), settings.transforms)


@pytest.mark.parametrize("command", ["restore", "verify", "list", "query"])
def test_who_reads_by_a_sinks_file_asks_for_what_it_has_stored(
    write: Write, command: Command
) -> None:
    """A file names the cluster's topics; the command line names the backup's."""
    path, more = write(ROUTED_SINK), {"bootstrap_servers": "h:1"}
    by_file = load(command, path, **more).settings
    by_hand = load(command, path, topics="orders", **more).settings

    assert ("copy_of_orders", "payments") == by_file.topics
    assert ("orders",) == by_hand.topics
    assert () == by_file.renames


@pytest.mark.parametrize(
    ("more", "name"),
    [
        pytest.param("transforms.copy.predicate=p\n", "transforms.copy.predicate", id="condition"),
        pytest.param("transforms.copy.regex=(\n", "transforms.copy.replacement", id="no pattern"),
    ],
)
def test_a_router_that_a_sink_cannot_follow_is_refused_once(
    write: Write, more: str, name: str
) -> None:
    """A record is never stored under a name nobody asked for."""
    text = ROUTED_SINK
    if "regex" in more:
        text = text.replace("transforms.copy.regex=o.*\n", "")

    assert [name] == [*errors("sink", write(text + more), bootstrap_servers="h:1")]


BY_DAY = {
    "transforms": "day",
    "transforms.day.type": "org.apache.kafka.connect.transforms.TimestampRouter",
}


def test_a_topic_for_each_record_is_chosen_by_a_restore_alone() -> None:
    """A sink stores the offsets of a partition under one name, and says where to choose another."""
    found = steps(_given(BY_DAY), "value", has_keys=True)

    assert ((), ["transforms.day.type"]) == (found.steps, [each.name for each in found.issues])
    assert "give it to the restore" in found.issues[0].do
    (step,) = transforms.restore_steps(_given(BY_DAY), frozenset()).steps
    assert ("timestamp_router", True) == (step.plugin, step.chooses_topics)
