"""Plans on the screen, and what comes before and after them."""

from dataclasses import replace
from typing import Any

import pytest

from kbackup.cli.options import typed
from kbackup.cli.restore import _remaining, configs_command, run_command
from kbackup.cli.screens import restored, told_once
from kbackup.config import Origin, Settings
from kbackup.config.loading import Loaded
from kbackup.errors import Issue
from kbackup.events import PartitionCounts, RestoreTopic, Started, TopicPlanned
from kbackup.kafka import Acl, ScramUser
from kbackup.restore.access import AclPlanned, SettingCompared, UserPlanned
from tests.support.ended import ended
from tests.support.invoked import invoke

COUNTS = PartitionCounts(1)
KEPT, KEPT_AS_IS = (RestoreTopic(1, 1, 1, retention) for retention in ("-1", None))


def test_a_sink_plan_names_its_group(told: Any, show: Any) -> None:
    """A sink's plan names its group, for those who need to set it back."""
    each = told("sink-plan")

    shown = show(each.command, each.events, each.ended())

    assert "positions are kept in group connect-s3-sink" == shown.stdout.splitlines()[-1]


def test_a_dry_run_of_a_repair_shows_its_plan(told: Any, show: Any) -> None:
    """It has the table of a sink's plan, and is called a repair in JSON."""
    plan = told("sink-plan")
    events = [event for event in plan.events if not isinstance(event, Started)]

    shown = show("sink repair plan", events, plan.ended())

    assert ["topic", "p", "group", "at", "from"] == shown.stdout.split()[:5]
    line = "sink repair orders:0:1 -t orders -b b -k h:1 --follow --dry-run --json"
    refused = invoke(*line.split())
    assert ("sink repair", 2) == (refused.lines[-1]["command"], refused.code)


GROWN = "grown by exactly the records that were written"
IDLE = {"records": 0, "window": "offset before 9"}


@pytest.mark.parametrize(
    ("facts", "lines"),
    [
        pytest.param({}, [], id="nothing known"),
        pytest.param(
            {"audit": "counted"},
            ["audit: the records in the target were counted, no difference"],
            id="counted",
        ),
        pytest.param(
            {"audit": "plain"},
            [f"audit: the target has {GROWN}"],
            id="plain",
        ),
        pytest.param(
            {"as_stored": 979, "bytes_written": 1000},
            ["97% of the bytes went in batches as stored"],
            id="batches",
        ),
        pytest.param({"as_stored": 0, "bytes_written": 1000}, [], id="no batches"),
        pytest.param({"window": "offset before 9"}, ["restored only: offset before 9"], id="some"),
        pytest.param({"audit": "counted", "errors": [{"code": "audit"}]}, [], id="a difference"),
        pytest.param(
            {"audit": "counted", "warnings": [{"code": "repeated"}]},
            ["audit: the records in the target were counted, none is missing"],
            id="written again",
        ),
        pytest.param(
            {"audit": "plain", "errors": [{"code": "kafka", "topic": "a", "partition": "1"}]},
            [f"audit: the target has {GROWN}, but for the partitions that failed"],
            id="one failed",
        ),
        pytest.param(
            {
                "plan": [
                    TopicPlanned("a", "copy_of_a", COUNTS, "create", None, None, KEPT),
                    TopicPlanned("b", "copy_of_b", COUNTS, "append", None, None, KEPT_AS_IS),
                ]
            },
            ["created to keep everything until retention.ms is set back: copy_of_a"],
            id="created",
        ),
        pytest.param(
            IDLE | {"exit_code": 0}, ["restored only: offset before 9"], id="nothing new of some"
        ),
        pytest.param(
            IDLE | {"exit_code": 3}, ["restored only: offset before 9"], id="the same, with skips"
        ),
        pytest.param(IDLE | {"exit_code": 4}, [], id="refused, so nothing is restored"),
    ],
)
def test_a_restore_says_what_is_to_be_known_of_the_target(
    facts: dict[str, Any], lines: list[str]
) -> None:
    """A restore's screen shows its audit, which topics will grow without limit, and of what."""
    assert lines == restored(ended(command="restore", **{"records": 1} | facts))


def test_the_command_that_remains_has_what_was_typed_for_it() -> None:
    """What was typed for a restore is typed again for its topics, but for output and agreement."""
    words = [
        "--config", "dr.properties", "-t", "a,b", "-t", "c d", "--yes", "--no-create-topics",
        "--rename", "copy_of_$0", "--json", "-X", "s3.region=x",
    ]  # fmt: skip

    with run_command.make_context("run", words):
        found = typed(configs_command)

    assert [
        "--config", "dr.properties", "-X", "s3.region=x", "--topics", "a,b", "--topics", "c d",
        "--rename", "copy_of_$0",
    ] == found  # fmt: skip


@pytest.mark.parametrize("has_schemas", [True, False])
def test_the_commands_that_remain_stand_in_the_order_of_a_recovery(
    has_schemas: bool, show: Any
) -> None:
    """Each can be pasted: it has the place of the backup, the topics, and new names."""
    words = ["-b", "b", "-t", "orders", "-k", "h:1", "--rename", "copy_of_$0", "--yes"]
    found = {"unregistered": ["orders"], "captured": True, "access": True}
    origins = {"sasl.password": Origin("env", "KBACKUP_SASL_PASSWORD"),
               "quiet": Origin("env", "KBACKUP_QUIET")}  # fmt: skip
    done = ended(
        command="restore", records=1, result="ok", exit_code=0,
        **(found if has_schemas else {}),
    )  # fmt: skip

    with run_command.make_context("run", words):
        remaining = _remaining(done, Loaded(Settings(), origins, (), {}))
    shown = show("restore run", [], done.saying(remaining=remaining)).stdout.splitlines()

    place = "--topics orders --bucket b"
    written = f"--bootstrap-servers h:1 {place} --rename 'copy_of_$0'"
    expected = [
        f"kbackup restore verify --against target {written}",
        f"kbackup restore configs {written}",
    ]
    if has_schemas:
        schemas = f"kbackup restore list --schemas {place}"
        expected.insert(1, expected[-1].replace("configs", "groups"))
        expected[:0] = [schemas, f"kbackup restore access {written}"]
    assert expected == [each.command for each in remaining]
    assert remaining[0].purpose.startswith("with KBACKUP_SASL_PASSWORD set as here, ")
    assert expected == [line.strip() for line in shown if line.startswith("  kbackup")]


@pytest.mark.parametrize("words", ["sink-plan", "restore-plan,refused"])
def test_a_plan_names_what_nobody_sees_in_it(words: str, told: Any, show: Any) -> None:
    """Topics that are left out, and a time that was left in the environment of a shell."""
    each = told(words)
    begun = [
        replace(
            one,
            from_environment=["KBACKUP_TO_TIME"],
            excluded=["a"],
            internal=["__b"],
            not_yet=["c"],
        )
        if isinstance(one, Started)
        else one
        for one in each.events
    ]

    shown = show(each.command, begun, each.ended())

    assert {
        "left out by topics.exclude: a",
        "left out, as nobody named them: __b",
        "left out, not backed up by then: c",
        "from the environment: KBACKUP_TO_TIME",
    } <= {*shown.stdout.splitlines()}


def test_a_refusal_is_told_below_its_plan(told: Any, show: Any) -> None:
    """A plan names what it refuses and what to do, once, on stderr."""
    each = told("restore-plan,refused")

    shown = show(each.command, each.events, each.ended())

    assert [
        (
            "refused: copy_of_audit has 3 partitions, the backup has 6. Add partitions, choose "
            "another name, or use --partition-map modulo (order per key is lost)."
        ),
        "  more: kbackup explain fewer_partitions",
        "warning: topics/orders/README.avro: name is not one of ours",
        "exit 4: 1 topic refused, nothing will run",
    ] == shown.stderr.splitlines()


@pytest.mark.parametrize(
    ("code", "reasons"),
    [("few", []), ("other", [Issue("few", "too few partitions")])],
    ids=["told", "untold"],
)
def test_a_refused_topic_is_told_once(code: str, reasons: list[Issue]) -> None:
    """By its error where there is one, else by the reason in its plan; never not at all."""
    topic = TopicPlanned("a", "b", COUNTS, "refuse", "too few partitions", "few", KEPT)
    error = Issue(code, "failed")

    assert (reasons, [error]) == told_once([topic], [error], is_run=True)


def test_a_real_restore_shows_its_plan_before_its_work(told: Any, show: Any) -> None:
    """A restore shows its plan before it writes its first record."""
    each = told("restore")

    shown = show(each.command, each.events, each.ended()).stdout

    assert shown.index("copy_of_orders") < shown.index("restore finished")


def test_a_command_that_failed_at_once_shows_no_empty_table(told: Any, show: Any) -> None:
    """A usage error is an error, not a table of nothing."""
    each = told("sink,configuration")

    shown = show(each.command, each.events, each.ended())

    assert ("", "error:") == (shown.stdout, shown.stderr[:6])


def test_access_is_shown_in_tables(show: Any) -> None:
    """What is added, what is left to a person and why, and which settings differ."""
    acl = Acl("TOPIC", "orders", "PREFIXED", "User:app", "*", "READ", "ALLOW")
    user = ScramUser("nightly", "SCRAM-SHA-512", 8192)
    told = [
        AclPlanned(acl, "orders", "left", "add it by hand", None),
        UserPlanned(user, "left", "no password", None),
        SettingCompared("log.retention.hours", "24", "168"),
    ]
    done = ended(command="restore access", result="ok", exit_code=0, acls=2, users=1)

    shown = show("restore access", told, done).stdout

    for words in ("topic orders (prefix)", "nightly", "no password", "168", "2 ACLs and 1 user"):
        assert words in shown
