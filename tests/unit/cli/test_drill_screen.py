"""What a drill shows: what was proved, how long it took, what is left."""

from dataclasses import replace

import pytest

from kbackup.catalog.drills import DrillAge, DrillGroup, DrillReport, DrillTopic
from kbackup.cli.screens import drilled, spoken
from kbackup.events import Ended
from kbackup.records import TopicPartition

TOPICS = (
    DrillTopic("orders", "drill_5c1e_orders", 2, 41_203_000, 10 * 2**30, False, 0, "same"),
    DrillTopic("payments", "drill_5c1e_payments", 1, 118, 1024, True, 0, "same"),
)
AGES = (DrillAge(TopicPartition("orders", 0), 1, 249.0, None),)
REPORT = DrillReport(
    "5c1e", "id", 0, 1, 10 * 2**30, TOPICS, (DrillGroup("billing", "drill_5c1e_billing", 2, True),),
    AGES, {"plan": 1.0}, 372.0, 6600.0, None, None, (), 0,
)  # fmt: skip
ENDED = Ended("r", "restore drill", "ok", 0, facts={"deleted": 2, "whole_bytes": 310 * 2**30})


def test_a_drill_is_told_in_two_lines() -> None:
    """The estimate is called so."""
    assert [
        "drill 5c1e PASSED  2 topics, 10 GiB, 41\u2009203\u2009118 records equal, 1/1 group",
        "RTO 6 min 12 s (all 310 GiB: estimated 1 h 50 min)  RPO 4 min 9 s  2 topics deleted",
    ] == drilled(REPORT, ENDED)


def test_what_is_not_known_is_not_shown_as_a_number() -> None:
    """No estimate for all of it, and no age where no run says so."""
    whole = replace(
        REPORT, exit_code=7, rto_whole_s=None, groups=(),
        ages=(replace(AGES[0], rpo_s=None, complete_up_to_ms=None),),
    )  # fmt: skip

    first, second = drilled(whole, ENDED)

    assert first.startswith("drill 5c1e FAILED")
    assert first.endswith("0/0 groups")
    assert "RTO 6 min 12 s  RPO unknown  2 topics deleted" == second


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (7260, "2 h 1 min")]
)
def test_time_spans_have_two_units(seconds: float, text: str) -> None:
    """Of the largest."""
    assert text == spoken(seconds)
