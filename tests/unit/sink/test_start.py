"""Where a partition's backup goes on."""

import pytest

from kbackup.errors import TopicChangedError
from kbackup.kafka import Position
from kbackup.records import Span, TopicPartition
from kbackup.sink.start import Evidence, Start, decide

WHERE = TopicPartition("orders", 0)


def start(log: Span, *, reset: str = "earliest", committed: int | None = None,
          confirmed: bool = False, stored_to: int | None = None, objects: bool | None = None,
          reached: int | None = None, known_to: int | None = None,
          kept: tuple[Span, ...] = ()) -> Start:  # fmt: skip
    """The decision for a partition of which this is known."""
    seen = Evidence(
        log,
        None if committed is None else Position(committed),
        confirmed,
        stored_to,
        stored_to is not None if objects is None else objects,
        reached=reached,
        known_to=known_to,
        kept=kept,
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


def test_expired_offsets_are_a_gap_and_the_log_start_is_next() -> None:
    """What the cluster deleted before it was backed up is named."""
    found = start(Span(50, 90), committed=40, confirmed=True)

    assert (50, (Span(40, 50),)) == (found.offset, found.expired)


@pytest.mark.parametrize(
    "known",
    [
        pytest.param({"committed": 40}, id="the group stands where it was"),
        pytest.param({}, id="the group's offset expired too"),
        pytest.param({"reset": "latest"}, id="reset serves a first start only"),
    ],
)
def test_what_expired_after_all_objects_were_deleted_is_a_gap(known: dict[str, object]) -> None:
    """The ledger knows how far a backup had come, even if none of its objects is left."""
    found = start(Span(50, 90), known_to=40, **known)  # type: ignore[arg-type]

    assert (50, (Span(40, 50),)) == (found.offset, found.expired)


def test_what_expired_after_a_position_without_objects_is_a_gap() -> None:
    """A partition may have had markers alone: the group's offset is all that is known of it."""
    found = start(Span(50, 90), committed=40)

    assert (50, (Span(40, 50),)) == (found.offset, found.expired)


@pytest.mark.parametrize(
    ("kept", "expired"),
    [
        pytest.param([(0, 60)], [], id="all of it is in the bucket"),
        pytest.param([(0, 30), (35, 60)], [(30, 35)], id="a person deleted an object"),
        pytest.param([(20, 25), (30, 40)], [(10, 20), (25, 30), (40, 50)], id="some of it"),
    ],
)
def test_what_the_bucket_holds_is_no_gap_for_a_group_that_was_set_back(
    kept: list[tuple[int, int]], expired: list[tuple[int, int]]
) -> None:
    """If a group was set back, only what is really lost is reported."""
    spans = tuple(Span(*one) for one in kept)
    found = start(Span(50, 90), committed=10, stored_to=60, kept=spans)

    assert (50, tuple(Span(*one) for one in expired)) == (found.offset, found.expired)


def test_a_first_start_has_no_gap() -> None:
    """Records that expired before the first run are nobody's loss to report."""
    assert () == start(Span(50, 90)).expired


@pytest.mark.parametrize(
    "known",
    [
        pytest.param({}, id="nobody knows the partition"),
        pytest.param({"committed": 40}, id="the bucket was emptied"),
        pytest.param({"objects": True}, id="a connector's objects, and no offset"),
    ],
)
def test_what_expires_after_a_first_run_has_begun_is_a_gap(known: dict[str, object]) -> None:
    """Records that the run set out to read, and that retention took from it, are named."""
    found = start(Span(50, 90), reached=5, **known)  # type: ignore[arg-type]

    assert (50, (Span(5, 50),)) == (found.offset, found.expired)


def test_what_was_committed_meanwhile_counts_more_than_where_a_run_began() -> None:
    """A gap begins after the last record that is safe."""
    found = start(Span(50, 90), committed=40, confirmed=True, reached=5)

    assert (Span(40, 50),) == found.expired


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
