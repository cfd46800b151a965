import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from kbackup.inspect.topics import StoredPartition
from kbackup.records import TopicPartition
from kbackup.runs.history import Estimate
from kbackup.runs.report import Summary
from tests.support.ended import row, warned

NUMBER = re.compile("\\d(?:[\\d\u2009.,:-]*\\d)?")
WIDTHS = (40, 80, 100, 200)


_SINK = [*["0", "1999999"] * 3, "1", "2", "0", "0", "512302"]  # the offsets of each partition
_STORED = ["2026", "11", "21", "02", "01", "2025", "03", "02", "02", "00"]  # when objects were
_OLDEST = ["2026", "08", "21", "00", "00"]  # a record's time
SPARED = {
    ("sink,skipped", 80): _SINK,
    ("sink,failed", 80): _SINK,
    ("sink,stopped", 80): _SINK,
    # objects of the plan; then the offsets of a topic with one partition, and their number
    ("restore", 80): ["600", "52", "0", "1999999", "1", "1"],
    ("restore,refused", 80): ["600"],
    ("restore-plan,refused", 80): ["600", "52", "18"],
    ("restore-list", 100): [*_STORED, *_OLDEST],
    ("restore-list", 80): [*_STORED, *_OLDEST, "31", "200"],  # objects too
    ("restore-groups", 80): ["2026", "11", "21", "02", "00"] * 3,  # when they were captured
}
"""What a screen of so many columns leaves out of a table rather than take it apart."""


def numbers(text: str) -> Counter[str]:
    """Count the numbers in *text*, dates and ranges taken apart."""
    return Counter(part for found in NUMBER.findall(text) for part in re.split("[:-]", found))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "pipe"])
def test_no_screen_breaks_a_number(any_told: Any, show: Any, width: int, on_terminal: bool) -> None:
    """However narrow the screen, numbers are shown in full, and only columns to spare disappear."""
    wide = show(any_told.command, any_told.events, any_told.ended())
    shown = show(
        any_told.command,
        any_told.events,
        any_told.ended(),
        width=width,
        on_terminal=on_terminal,
        no_progress=True,
    )

    spared = Counter(SPARED.get((any_told.path.stem, width), ()))
    assert numbers(wide.stdout) - spared == numbers(shown.stdout)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("restore-list", "avro/snappy 2026-11-21T02:00Z newest record"),
        ("restore-groups", "billing copy_of_orders"),
        ("restore-plan,refused", "payments copy_of_payments copy_of_audit"),
        ("restore", "copy_of_payments copy_of_orders"),
        ("restore-verify,damaged", "payments orders+1+0000410000.avro"),
        ("sink-status", "2026-11-21T02:00:00Z-7f3a"),
        ("plugins", "parquet kbackup 0.1.0"),
        ("config-show", "aws.secret.access.key AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_what_is_copied_from_a_screen_is_whole(told: Any, show: Any, name: str, words: str) -> None:
    """In 80 columns no name and no time is broken in two: prose is folded before."""
    each = told(name)
    shown = show(each.command, each.events, each.ended(), width=80)

    assert [] == [word for word in words.split() if word not in shown.stdout.split()]


@pytest.mark.parametrize(
    ("server", "words"), [(None, ""), ("http://dr:9000", " at http://dr:9000")]
)
def test_a_plan_says_on_which_server_the_backup_is(
    told: Any, show: Any, server: str | None, words: str
) -> None:
    """Two servers may have buckets of one name; the usual one is not named."""
    each = told("restore-plan,refused")
    start, *others = each.events
    shown = show(each.command, [replace(start, server=server), *others], each.ended())

    assert f"from  s3://backups/topics{words}" in shown.stdout.splitlines()


def test_the_usual_format_is_not_taken_apart(told: Any, show: Any) -> None:
    """``restore list`` of what a sink stores by default has one line a partition."""
    each = told("restore-list")
    events = [
        replace(event, format="parquet/zstd") if isinstance(event, StoredPartition) else event
        for event in each.events
    ]
    count = sum(isinstance(event, StoredPartition) for event in events)

    shown = {at: show(each.command, events, each.ended(), width=at).stdout for at in range(80, 121)}

    assert [] == [at for at, text in shown.items() if text.count("parquet/zstd") != count]


def test_a_name_wider_than_the_screen_is_folded(told: Any, show: Any) -> None:
    """A table remains a table, though a topic has a name of 100 characters."""
    each = told("restore-list")
    events = [
        replace(event, where=TopicPartition("n" * 100, 0))
        if isinstance(event, StoredPartition) else event
        for event in each.events
    ]  # fmt: skip
    shown = show(each.command, events, each.ended(), width=80)

    assert "newest" in shown.stdout.splitlines()[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_screen(any_told: Any, show: Any, width: int) -> None:
    """No table relies on the terminal to wrap it."""
    shown = show(any_told.command, any_told.events, any_told.ended(), width=width)

    assert [] == [line for line in shown.stdout.splitlines() if cell_len(line) > width]


def test_a_pipe_gets_no_escape_sequence(any_told: Any, show: Any) -> None:
    """Piped output contains no escape sequences."""
    shown = show(any_told.command, any_told.events, any_told.ended())

    assert "\x1b" not in shown.stdout + shown.stderr


@pytest.mark.parametrize(
    ("environ", "options"),
    [
        pytest.param({"NO_COLOR": "1"}, {}, id="NO_COLOR"),
        pytest.param({"TERM": "dumb"}, {}, id="dumb terminal"),
        pytest.param({}, {"no_progress": True}, id="--no-progress"),
    ],
)
def test_a_plain_terminal_gets_no_escape_sequence(
    any_told: Any, show: Any, environ: dict[str, str], options: dict[str, Any]
) -> None:
    """A terminal that is declared plain gets no escape sequences."""
    shown = show(
        any_told.command,
        any_told.events,
        any_told.ended(),
        on_terminal=True,
        environ=environ,
        **options,
    )

    assert "\x1b" not in shown.stdout + shown.stderr


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("restore-plan,refused", "3 topics, 670 objects, 1.4 GiB", id="restore plan"),
        pytest.param("restore-list", "2 partitions, 231 objects, 490 MiB.", id="topics"),
        pytest.param("restore-list,empty", "0 partitions, 0 objects, 0 B", id="nothing there"),
        pytest.param(
            "restore-verify,damaged",
            "651 objects read, 1.4 GiB, in 0:38: 650 good, 1 missing, 1 corrupt",
            id="verify",
        ),
        pytest.param(
            "restore-verify,against",
            "4 partitions, 5\u2009199\u2009996 equal, in 0:38: 1 differs, 1 not comparable",
            id="verify --against",
        ),
        pytest.param("sink-plan", "2 partitions, 2\u2009000\u2009000 offsets to read", id="plan"),
        pytest.param("sink-status", "1 partition", id="status, partitions"),
        pytest.param("sink-status", "2 runs", id="status, runs"),
        pytest.param("doctor", "2 checks: 1 ok, 1 warn, 0 fail", id="doctor"),
        pytest.param("config-show", "3 settings", id="settings"),
        pytest.param("plugins", "1 plugin", id="plugins"),
    ],
)
def test_every_table_ends_with_its_count(told: Any, show: Any, name: str, count: str) -> None:
    """Every table ends with its count, so a reader notices if it was cut off."""
    each = told(name)

    shown = show(each.command, each.events, each.ended())

    assert [count] == [line[: len(count)] for line in shown.stdout.splitlines() if count in line]


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(5_000_000, 40, 52.5), "likely to take: 4.8 MiB, 40 requests to the store, 0:52"),
        (
            Estimate(5_000_000, None, 52.5, 4_850_000),
            "likely to take: 4.8 MiB (up to 97% in batches as stored), 0:52",
        ),
        (Estimate(5_000_000, None, 52.5), "likely to take: 4.8 MiB, 0:52"),
        (Estimate(5_000_000, 7, None), "likely to take: 4.8 MiB, 7 requests to the store, unknown"),
        (Estimate(None, None, None), "likely to take: unknown before a first run"),
        (Estimate(None, 4, None), "take: unknown size, 4 requests to the store, unknown time"),
    ],
)
def test_a_plan_says_what_it_is_likely_to_take(
    told: Any, show: Any, estimate: Estimate, text: str
) -> None:
    """As past runs went; unknown is unknown."""
    each = told("sink-plan")

    shown = show(each.command, each.events, each.ended().saying(estimate=estimate))

    assert text in shown.stdout


def test_the_table_of_a_run_is_the_documented_one(told: Any, show: Any) -> None:
    """The screen in the documentation is what a user sees."""
    each = told("sink,skipped")

    shown = show(each.command, each.events, each.ended(), width=100)

    assert """\
sink finished, 3 records skipped
╭──────────┬────────────┬───────────┬──────────────┬─────────┬─────────┬─────────╮
│ topic    │ partitions │   records │      offsets │ objects │  stored │ skipped │
├──────────┼────────────┼───────────┼──────────────┼─────────┼─────────┼─────────┤
│ orders   │          3 │ 5 996 554 │ 0: 0-1999999 │     600 │ 1.2 GiB │       0 │
│          │            │           │ 1: 0-1999999 │         │         │         │
│          │            │           │ 2: 0-1999999 │         │         │         │
│ payments │          1 │   512 300 │     0-512302 │      52 │ 210 MiB │       3 │
├──────────┼────────────┼───────────┼──────────────┼─────────┼─────────┼─────────┤
│ total    │          4 │ 6 508 854 │              │     652 │ 1.4 GiB │   3 bad │
╰──────────┴────────────┴───────────┴──────────────┴─────────┴─────────┴─────────╯
run 2026-11-21T02:00:00Z-7f3a  took 2:37
offsets committed to group connect-s3-sink
""" == shown.stdout.replace("\u2009", " ")


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        pytest.param(
            {"by_records": "SASL mechanism X goes through librdkafka"},
            "copied record by record, not in batches: SASL mechanism X goes through librdkafka",
            id="a slower way is no secret",
        ),
        pytest.param(
            {"groups": ["a", "b"], "groups_taken": "2026-11-21T02:00:03Z"},
            "2 consumer groups set as of 2026-11-21T02:00:03Z",
            id="which groups stand, and as of when",
        ),
    ],
)
def test_a_run_says_at_its_end(told: Any, show: Any, facts: dict[str, Any], line: str) -> None:
    """What is to be known of how it has run."""
    each = told("sink,skipped")

    shown = show(each.command, each.events, each.ended().saying(**facts), width=100)

    assert line == shown.stdout.splitlines()[-1]


def test_a_run_without_news_is_one_line_and_its_name(told: Any, show: Any) -> None:
    """A run that copied nothing shows no table of zeros."""
    each = told("sink,nothing new")

    shown = show(each.command, each.events, each.ended(topics=[{"topic": "orders"}]))

    assert [
        "sink finished, nothing new",
        "run 2026-11-21T02:00:00Z-7f3a  took 2:37",
    ] == shown.stdout.splitlines()


def of_partitions(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What a summary says of these partitions, and of their topics."""
    summary = Summary("run", "sink")
    summary.partitions += [row(**each) for each in rows]
    found = summary.finish()
    return {"partitions": found.partitions, "topics": found.topics}


def idle_topics() -> dict[str, Any]:
    """Rows of topics of which nothing was stored, each for a reason of its own."""
    states = {
        "never": "empty", "gone": "emptied", "tx": "no records", "keys": "no records",
        "known": "up to date",
    }  # fmt: skip
    rows = [
        {"topic": topic, "partition": 0, "records": 0, "state": state}
        for topic, state in states.items()
    ]
    settings = {"keys": {"config": {"cleanup.policy": "compact,delete"}}}
    return {**of_partitions(rows), "topic_settings": settings}


def test_topics_without_records_are_told_apart_in_the_table(told: Any, show: Any) -> None:
    """A topic without records says why: it is empty, expired, aborted or compacted."""
    each = told("sink,skipped")

    shown = show(each.command, [], each.ended(**idle_topics())).stdout

    last = {
        line.split()[1]: line.split("│")[-2].strip() for line in shown.splitlines() if "│" in line
    }
    assert {
        "topic": "no records", "never": "empty", "gone": "emptied", "tx": "aborted",
        "keys": "compacted", "known": "up to date", "total": "",
    } == last  # fmt: skip


def test_topics_without_records_are_told_apart_where_nothing_is_new(told: Any, show: Any) -> None:
    """A first backup of empty topics says that they are empty."""
    each = told("sink,nothing new")

    shown = show(each.command, [], each.ended(**idle_topics())).stdout

    expected = "without records: never (empty), gone (emptied), tx (aborted), keys (compacted)"
    assert expected == shown.splitlines()[1]


@pytest.mark.parametrize("command", ["sink,nothing new", "restore"])
def test_records_that_the_configuration_leaves_out_are_counted_on_the_screen(
    told: Any, show: Any, command: str
) -> None:
    """A topic whose records were all filtered out is not shown as idle or aborted."""
    each = told(command)
    rows = [
        {"topic": "orders", "partition": 0, "records": 0, "filtered": 1500, "state": "no records"},
        {"topic": "orders", "partition": 1, "records": 0, "nulls_left_out": 2, "state": "done"},
        {"topic": "plain", "partition": 0, "records": 0, "filtered": 0, "state": "no records"},
    ]
    more = {**of_partitions(rows), "records": 0, "objects": 0, "skipped": {}}

    shown = show(each.command, [], each.ended(result="ok", exit_code=0, **more)).stdout

    lines = [line for line in shown.splitlines() if "│" in line]
    column = [text.strip() for text in lines[0].split("│")].index("left out")
    cells = {
        line.split()[1]: " ".join(line.split("│")[column].split())
        for line in lines
        if line.split()[1] in ("orders", "plain", "total")
    }
    assert "nothing new" not in shown
    assert {
        "orders": "1 500 filtered, 2 null values", "plain": "0",
        "total": "1 500 filtered, 2 null values",
    } == cells  # fmt: skip


@pytest.mark.parametrize("command", ["restore", "sink,skipped"])
def test_the_table_of_a_run_has_the_offsets_of_each_partition(
    told: Any, show: Any, command: str
) -> None:
    """A topic's row has a line for each of its first eight partitions; the JSON has all."""
    each = told(command)
    one = each.summary["partitions"][0]
    rows = [{**one, "partition": at, "first": at, "last": at + 1234567890} for at in range(10)]

    shown = show(each.command, [], each.ended(**of_partitions(rows)), width=120).stdout

    ranges = [f"{at}: {at}-{at + 1234567890}" for at in range(8)]
    assert [*ranges, "2 more"] == re.findall(r"\d: \d-\d+|\d more", shown)


def test_a_column_that_says_nothing_is_left_out(told: Any, show: Any) -> None:
    """The offsets column is left out if no record of any topic was stored."""
    each = told("sink,skipped")
    orders = [{**row, "first": None, "last": None} for row in each.summary["partitions"]]

    shown = show(each.command, [], each.ended(**of_partitions(orders))).stdout

    assert ("orders" in shown, "offsets  " in shown) == (True, False)


def test_no_warning_of_the_configuration_hides_another(told: Any, show: Any) -> None:
    """What was told already is shown once, with what only the summary has."""
    each, first = told("sink-status"), warned(code="without_effect", text="one")
    ended = each.ended()
    ended.warnings[:] = [first, warned(code="no_key", text="two")]

    shown = show(each.command, [*each.events, first], ended)

    assert (1, 1) == tuple(shown.stderr.count(f"warning: {text}") for text in ("one", "two"))
