"""When a partition is visited, when it is left alone, and up to when it is backed up."""

from dataclasses import replace

import pytest

from kbackup.errors import BadRecordError, KafkaError, KbackupError, StoppedError, StoreError
from kbackup.records import UNKNOWN, Span, TopicPartition
from kbackup.runs.position import NOTHING, Done
from kbackup.sink.follow import SILENCE_S, Look, Watch, changed
from kbackup.sink.job import SinkUnit

WHERE = TopicPartition("orders", 0)
IDLE_S = 5.0


def look(end: int, start: int = 0) -> Look:
    """The cluster with a log that ends here."""
    return Look({WHERE: Span(start, end)})


NONE = Look()
GONE = Look(gone=frozenset({"orders"}))
ANEW = Look(changed=frozenset({"orders"}))
SILENT = Look(silent={WHERE: KafkaError("orders-0 has no leader")})


@pytest.mark.parametrize(
    ("before", "now", "code"),
    [
        pytest.param(NONE, look(200), None, id="at first"),
        pytest.param(look(100), look(100), None, id="nothing new"),
        pytest.param(NONE, look(50), None, id="one answer that is behind"),
        pytest.param(look(100), look(50), None, id="one answer that is behind, later"),
        pytest.param(look(50), look(60), "topic_changed", id="cut back"),
        pytest.param(look(100), GONE, None, id="gone for a moment"),
        pytest.param(GONE, GONE, "topic_deleted", id="deleted"),
        pytest.param(look(100), ANEW, "topic_changed", id="anew"),
    ],
)
def test_a_partition_that_cannot_be_followed_says_why(
    before: Look, now: Look, code: str | None
) -> None:
    """What one broker's stale answer could look like is believed when it is seen twice."""
    error = changed(WHERE, 100, now, before)

    assert code == (None if error is None else error.code)


def watch(committed: int = 100, size: int = 10) -> Watch:
    """A partition that is backed up to there."""
    return Watch.begin(SinkUnit(WHERE, Span(committed, committed), identity=UNKNOWN), size)


def see(at: Watch, now: float, *looks: Look) -> Watch:
    """Let it see looks, one second apart, the last of them *now*; the clock is 1000 s ahead."""
    pairs = list(zip((NONE, *looks), looks, strict=False))
    for index, (before, found) in enumerate(pairs):
        moment = now - (len(pairs) - 1 - index)
        at.see(found, before, moment, 1000 + moment)
    return at


def visit(at: Watch, committed: int, error: KbackupError | None, now: float) -> None:
    """Let a visit come to this."""
    at.visited(replace(at.report, committed=committed), error, now, 0.0)


def code(at: Watch) -> object:
    """Why it stands still."""
    return None if at.report.failure is None else at.report.failure.code


def test_a_partition_is_visited_when_a_file_is_full_or_a_record_has_waited() -> None:
    """Waiting begins with the first record that is seen to wait."""
    at = watch()

    due = []
    for end, now in ((100, 0.0), (103, 1.0), (103, 5.9), (103, 6.0)):
        see(at, now, look(end))
        due.append(at.is_due(now, IDLE_S))
    see(at, 6.1, look(110))

    assert [False, False, False, True, True] == [*due, at.is_due(6.1, None)]


def test_a_visit_that_left_less_than_a_file_waits_for_a_file_more() -> None:
    """What was read and is not stored yet is not read again for each record that comes."""
    at = see(watch(), 0.0, look(115))
    visit(at, 110, None, 1.0)

    first = see(at, 2.0, look(119)).is_due(2.0, None)
    second = see(at, 3.0, look(120)).is_due(3.0, None)

    assert (False, True) == (first, second)


def test_a_partition_that_failed_is_left_alone_until_its_pause_is_over() -> None:
    """The report says why meanwhile, and its lag is real; a visit that succeeds clears it."""
    at = see(watch(), 0.0, look(120))
    visit(at, 105, StoreError("put", "503"), 1.0)
    waits = see(at, 1.9, look(130)).is_due(1.9, IDLE_S), see(at, 2.0, look(130)).is_due(2.0, IDLE_S)
    aside = code(at), (at.report.end or 0) - (at.report.committed or 0)
    visit(at, 130, None, 3.0)

    assert ((False, True), ("store", 25)) == (waits, aside)
    assert (None, 130) == (code(at), at.report.committed)


def test_a_bad_record_is_tried_again_when_it_may_have_gone() -> None:
    """A partition with a bad record is tried again once its log begins later, not sooner."""
    at = see(watch(), 0.0, look(120))
    visit(at, 100, BadRecordError("offset 104"), 1.0)

    due = [
        see(at, 60.0, look(300)).is_due(60.0, IDLE_S),
        see(at, 61.0, look(300, start=110)).is_due(61.0, IDLE_S),
    ]

    assert [False, True] == due
    assert see(at, 700.0, look(300)).is_due(700.0, IDLE_S)


def test_a_recreated_topic_is_set_aside_for_good_and_a_deleted_one_until_it_is_back() -> None:
    """A topic that grows beyond where the old one was is still another one."""
    deleted = see(watch(), 2.0, GONE, GONE)
    gone = code(deleted), deleted.is_due(99.0, IDLE_S)
    see(deleted, 5.0, look(150), look(150))
    anew = see(watch(), 1.0, ANEW)
    see(anew, 5.0, look(150), look(150))

    assert (("topic_deleted", False), None) == (gone, code(deleted))
    assert ("topic_changed", False) == (code(anew), anew.is_due(99.0, IDLE_S))


def test_a_partition_without_a_leader_is_reported_when_that_lasts() -> None:
    """A partition without a leader is reported only if that lasts longer than an election."""
    at = see(watch(), 0.0, SILENT)
    first = code(see(at, SILENCE_S - 1, SILENT))
    last = code(see(at, SILENCE_S, SILENT))

    assert (None, "kafka", None) == (first, last, code(see(at, 40.0, look(100))))


def test_everything_is_backed_up_to_the_look_whose_end_is_committed() -> None:
    """The backup is complete up to the look whose end it reached, not up to the commit."""
    at = watch()
    untils = [at.report.own.until]
    untils.append(see(at, 1.0, look(100)).report.own.until)
    untils.append(see(at, 2.0, look(130)).report.own.until)
    untils.append(see(at, 3.0, look(150)).report.own.until)
    visit(at, 140, None, 4.0)
    untils.append(see(at, 5.0, look(170)).report.own.until)
    untils.append(see(at, 6.0, look(180)).report.own.until)
    visit(at, 180, None, 7.0)
    untils.append(at.report.own.until)
    untils.append(see(at, 8.0, look(180)).report.own.until)

    assert [None, 1001.0, 1001.0, 1001.0, 1002.0, 1002.0, 1006.0, 1008.0] == untils


def test_a_partition_that_stands_still_grows_old() -> None:
    """A partition that is set aside is not known to be backed up from then on."""
    at = see(watch(), 1.0, look(100))
    see(at, 500.0, GONE, GONE)

    assert 1001.0 == at.report.own.until


def test_a_stop_does_not_hide_why_a_partition_stood_still() -> None:
    """A stopped visit is not a failure, and does not hide an earlier one."""
    failed, fine = see(watch(), 0.0, look(120)), see(watch(), 0.0, look(120))
    visit(failed, 100, StoreError("put", "503"), 1.0)
    for at in (failed, fine):
        visit(at, 100, StoppedError("stopped"), 2.0)

    assert ("store", "stopped") == (code(failed), code(fine))


def test_a_visit_that_fails_at_once_undoes_no_count() -> None:
    """A visit that fails at once leaves the run's counts as they were."""
    at = see(watch(), 0.0, look(110))
    done = Done(10, 1, bad_records=1, first=100, last=109)
    at.visited(replace(at.report, committed=110, done=done), None, 1.0, 0.0)
    see(at, 2.0, look(115))

    at.visited(replace(at.report, done=NOTHING), KafkaError("no coordinator"), 3.0, 0.0)

    assert (done, "kafka") == (at.report.done, code(at))
