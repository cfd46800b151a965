"""Where a partition's backup goes on."""

from collections.abc import Sequence
from typing import Any

import pytest

from kbackup.errors import TopicChangedError
from kbackup.kafka import Position
from kbackup.records import Span, TopicPartition
from kbackup.sink.start import Evidence, Start, decide

WHERE = TopicPartition("orders", 0)
SET_BACK: dict[str, Any] = {"committed": 10, "stored_to": 60}


def start(log: Span, *, reset: str = "earliest", committed: int | None = None,
          confirmed: bool = False, stored_to: int | None = None, objects: bool | None = None,
          reached: int | None = None, known_to: int | None = None,
          kept: Sequence[tuple[int, int]] = ()) -> Start:  # fmt: skip
    """The decision for a partition of which this is known."""
    seen = Evidence(
        log,
        None if committed is None else Position(committed),
        confirmed,
        stored_to,
        stored_to is not None if objects is None else objects,
        reached=reached,
        known_to=known_to,
        kept=tuple(Span(*one) for one in kept),
    )
    return decide(WHERE, seen, reset=reset)


@pytest.mark.parametrize(
    ("known", "offset", "codes"),
    [
        pytest.param({}, 5, [], id="nobody knows it: the log's start"),
        pytest.param({"reset": "latest"}, 90, [], id="nobody knows it, and only news are wanted"),
        pytest.param({"committed": 40, "confirmed": True}, 40, [], id="group and bucket agree"),
        pytest.param({"committed": 40, "stored_to": 40}, 40, [], id="they agree by the objects"),
        pytest.param({"committed": 40, "stored_to": 60}, 40, [], id="a crash before the commit"),
        pytest.param(
            {"committed": 40, "stored_to": 30}, 30, ["bucket_behind"], id="the group moved ahead"
        ),
        pytest.param({"committed": 40}, 5, ["bucket_behind"], id="the bucket is empty"),
        pytest.param({"stored_to": 30}, 30, ["offset_missing"], id="the group's offset expired"),
        pytest.param(
            {"committed": 40, "objects": True}, 40, [], id="a connector's objects, without facts"
        ),
        pytest.param(
            {"reset": "latest", "committed": 40, "confirmed": True},
            40,
            [],
            id="reset serves a first start only",
        ),
        pytest.param(
            {"reset": "latest", "committed": 40}, 5, ["bucket_behind"], id="not an emptied bucket"
        ),
        pytest.param(
            {"reset": "latest", "objects": True}, 5, ["offset_missing"], id="nor a lost offset"
        ),
    ],
)
def test_no_hole_arises(known: dict[str, object], offset: int, codes: list[str]) -> None:
    """Where group and bucket disagree, the lower one is taken, and the run says so."""
    found = start(Span(5, 90), **known)  # type: ignore[arg-type]

    assert (offset, codes) == (found.offset, [code for code, _ in found.warnings])


@pytest.mark.parametrize(
    ("known", "expired"),
    [
        pytest.param({}, [], id="a first start has no gap: it is nobody's loss to report"),
        pytest.param({"committed": 40, "confirmed": True}, [(40, 50)], id="before it was read"),
        pytest.param({"committed": 40}, [(40, 50)], id="markers alone: the group is all there is"),
        pytest.param({"committed": 40, "known_to": 40}, [(40, 50)], id="all objects were deleted"),
        pytest.param({"known_to": 40}, [(40, 50)], id="and the group's offset expired too"),
        pytest.param({"known_to": 40, "reset": "latest"}, [(40, 50)], id="reset changes nothing"),
        pytest.param({"reached": 5}, [(5, 50)], id="after a first run has begun"),
        pytest.param({"reached": 5, "committed": 40}, [(5, 50)], id="and the bucket was emptied"),
        pytest.param({"reached": 5, "objects": True}, [(5, 50)], id="and a connector's are there"),
        pytest.param(
            {"reached": 5, "committed": 40, "confirmed": True}, [(40, 50)],
            id="what was committed meanwhile counts more",
        ),
        pytest.param(SET_BACK | {"kept": [(0, 60)]}, [], id="set back, and the bucket has it"),
        pytest.param(
            SET_BACK | {"kept": [(0, 30), (35, 60)]}, [(30, 35)],
            id="set back, and a person deleted an object",
        ),
        pytest.param(
            SET_BACK | {"kept": [(20, 25), (30, 40)]}, [(10, 20), (25, 30), (40, 50)],
            id="set back, and the bucket has some of it",
        ),
    ],
)  # fmt: skip
def test_what_expired_is_a_gap_where_it_was_to_be_backed_up(
    known: dict[str, Any], expired: list[tuple[int, int]]
) -> None:
    """The log's start is next, and what is lost is named: neither more nor less."""
    found = start(Span(50, 90), **known)

    assert (50, tuple(Span(*one) for one in expired)) == (found.offset, found.expired)


def test_a_group_too_far_ahead_is_set_back() -> None:
    """A group too far ahead is set back before anything is read: no commit could move it back."""
    assert start(Span(0, 90), committed=40, stored_to=30).moves_group
    assert not start(Span(0, 90), committed=40, stored_to=40).moves_group


@pytest.mark.parametrize("stores_values", [False, True], ids=["whole", "values"])
def test_a_group_ahead_of_a_backup_without_objects_is_set_back(*, stores_values: bool) -> None:
    """A backup of empty cuts alone has an end too: no later commit would come to pass."""
    seen = Evidence(
        Span(0, 45),
        Position(42),
        stored_to=41,
        kept=(Span(0, 41),),
        stores_values=stores_values,
    )

    found = decide(WHERE, seen, reset="earliest")

    assert found.moves_group
    assert 41 >= found.offset
    assert ["bucket_behind"] == [code for code, _ in found.warnings]


def test_a_log_that_ends_before_the_backup_is_another_topic() -> None:
    """A log that ends before the backup is another topic's, and nothing is overwritten."""
    with pytest.raises(TopicChangedError) as caught:
        start(Span(0, 20), committed=40, confirmed=True)

    assert "ends at offset 20, but was backed up to 40" in caught.value.what
