"""Full records after a connector whose rows are like no record: the log shows where they ended."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

import pytest
from backup_samples import Backup

from kbackup.catalog.ledger.rows import Entry, entries
from kbackup.catalog.ledger.stream import topic_stream
from kbackup.clock import SystemClock
from kbackup.errors import RefusedError
from kbackup.kafka import Position
from kbackup.pipeline.views import ReadOptions
from kbackup.runs import backup_state
from kbackup.runs.position import SinkPosition
from kbackup.runs.report import Summary
from kbackup.verify.run import LedgerRepair, Notes
from tests.support.bench import WHERE, Bench
from tests.support.target import Restoring
from tests.support.verified import Verified

KEY = "topics/orders/partition=0/orders+0+{:010}.json"
DENSE, SPARSE = (range(10), range(10, 20)), (range(0, 10, 2), range(10, 20, 2))


def masked(offsets: Iterable[int], name: bytes = b"n") -> bytes:
    """Rows of a connector whose transform changes a field, and its name or not."""
    return b"".join(b'{"%s":%d}\n' % (name, -(at + 1)) for at in offsets)


class Taken:
    """What a sink of full records has taken over from a connector that has left some out."""

    def __init__(
        self, cuts: Iterable[Sequence[int]], position: Position | None,
        config: Mapping[str, str] = {}, directories: Sequence[str] = ("partition=0",),
        name: bytes = b"n", is_masked: bool = True,
    ) -> None:  # fmt: skip
        self.bench = Bench(30)
        self.bench.kafka.configs["orders"] = dict(config)
        self.backup = Backup(self.bench.settings)
        for cut, directory in zip(cuts, cycle(directories), strict=False):
            key = KEY.format(cut[0]).replace("partition=0", directory)
            plain = b"".join(b'{"n":%d}\n' % at for at in cut)
            self.backup.replace(key, masked(cut, name) if is_masked else plain, {})
        if position is not None:
            self.bench.kafka.positions_[WHERE] = position
        self.sink()

    def sink(self) -> None:
        """Back up what is there."""
        assert 0 == self.bench.sink(7, format_class=None)["exit_code"]

    @property
    def rows(self) -> list[Entry]:
        """The ledger."""
        stream = topic_stream(self.backup.store, self.backup.layout, "orders", SystemClock())
        return [*entries(stream.read().rows)]

    def verified(self) -> int:
        """What `verify` ends with."""
        notes = Notes(backup_state.read(self.backup.store, self.backup.layout, SystemClock()))
        return Verified(self.backup, notes=notes).exit_code

    def restored(self) -> list[bytes | None]:
        """The values that a restore delivers."""
        again = Restoring(self.backup, entries={"orders": self.rows})
        again.restore()
        return again.cluster.values("copy_of_orders")


@pytest.mark.parametrize("position", [10, 15, 20, 26, 30])
@pytest.mark.parametrize("cuts", [DENSE, SPARSE], ids=["dense", "dropped"])
def test_the_last_object_of_a_connector_is_within_the_full_records(
    cuts: tuple[range, ...], position: int
) -> None:
    """Wherever the group was set to behind its beginning: a count of its rows shows no end."""
    taken = Taken(cuts, Position(position))

    first = [line + b"}" for line in masked(cuts[0]).split(b"}\n")[:-1]]
    assert [*first, *(b'{"n":%d}' % at for at in range(10, 30))] == taken.restored()
    assert 0 == taken.verified()
    assert [30, 30] == [one.below for one in taken.rows if one.last is None]


def test_a_connector_that_went_on_while_the_sink_looked_stops_nothing() -> None:
    """A run goes on to where the log ended behind what it has entered."""
    bench = Bench(30)
    ends = bench.kafka.ends
    bench.kafka.ends = lambda wheres: bench.kafka.append(WHERE, 5) or ends(wheres)  # type: ignore[method-assign]
    backup = Backup(bench.settings)
    backup.replace(KEY.format(0), masked(range(20)), {})
    bench.kafka.positions_[WHERE] = Position(20)

    bench.sink(100, format_class=None)

    stream = topic_stream(backup.store, backup.layout, "orders", SystemClock())
    rows = [*entries(stream.read().rows)]
    (below,) = [one.below for one in rows if one.last is None]
    assert below is not None
    assert below <= max(one.next_offset or 0 for one in rows)


@pytest.mark.parametrize(
    ("position", "config"),
    [
        pytest.param(None, {}, id="a group of its own"),
        pytest.param(Position(9), {}, id="set back before it"),
        pytest.param(Position(20), {"cleanup.policy": "compact,delete"}, id="compaction"),
    ],
)
def test_what_may_be_of_another_log_or_compacted_is_named(
    position: Position | None, config: Mapping[str, str]
) -> None:
    """Nothing shows then that the full records have all that the connector's object holds."""
    taken = Taken(DENSE, position, config)

    assert {None} == {one.below for one in taken.rows if one.first >= 10}
    assert 7 == taken.verified()
    with pytest.raises(RefusedError, match="unlike"):
        taken.restored()


def test_an_object_that_was_replaced_since_is_named() -> None:
    """What the ledger says of the end is of the object that it saw."""
    taken = Taken(DENSE, Position(20))
    taken.backup.replace(KEY.format(10), masked(range(10, 40)), {})

    assert 7 == taken.verified()
    with pytest.raises(RefusedError, match="unlike"):
        taken.restored()


def test_a_ledger_that_is_made_anew_keeps_where_the_log_ended() -> None:
    """The objects do not say it; it is kept for one that is as long as it was."""
    taken = Taken(DENSE, Position(20))
    store, layout, clock = taken.backup.store, taken.backup.layout, SystemClock()

    list(
        LedgerRepair(store, layout, ReadOptions(), Summary("r", "restore verify"), clock).rebuild()
    )

    assert [30, 30] == [one.below for one in taken.rows if one.last is None]
    assert 0 == taken.verified()


def test_a_connector_that_wrote_after_kbackup_did_is_taken_over_too() -> None:
    """The topic has a ledger, which lacks the objects that the connector has written since."""
    taken = Taken([], None)
    taken.bench.kafka.append(WHERE, 25)
    taken.backup.replace(KEY.format(30), masked(range(30, 40)), {})
    taken.backup.replace(KEY.format(40), masked(range(40, 50, 3)), {})
    taken.bench.kafka.positions_[WHERE] = Position(50)
    taken.sink()

    came = [*(b'{"n":%d}' % at for at in range(30)), *masked(range(30, 40)).splitlines()]
    assert [*came, *(b'{"n":%d}' % at for at in range(40, 55))] == taken.restored()
    assert 0 == taken.verified()


def test_a_group_that_is_set_to_where_the_object_begins_mends_an_earlier_takeover() -> None:
    """Another version has begun behind it: full records then hold all of it."""
    taken = Taken(DENSE, SinkPosition().position(15))
    assert {None} == {one.below for one in taken.rows}
    with pytest.raises(RefusedError) as refused:
        taken.restored()
    assert "set its group to 10 and run it" in refused.value.do

    taken.bench.set_back(10)
    taken.sink()

    came = [*masked(range(10)).splitlines(), *(b'{"n":%d}' % at for at in range(10, 30))]
    assert came == taken.restored()
    assert 0 == taken.verified()


def test_a_group_that_is_set_to_where_the_first_begins_mends_several_directories() -> None:
    """Nothing bounds the last object of each; the lowest offset that is named is enough."""
    cuts = range(10), [10, 11, 16], [13, 14, 15]
    taken = Taken(cuts, Position(20), directories=["d=0", "d=0", "d=1"], name=b"m")
    with pytest.raises(RefusedError, match="unlike"):
        taken.restored()

    taken.bench.set_back(10)
    taken.sink()

    came = [*masked(range(10), b"m").splitlines(), *(b'{"n":%d}' % at for at in range(10, 30))]
    assert came == taken.restored()
    assert 0 == taken.verified()


@pytest.mark.parametrize(
    ("first", "is_masked", "code"),
    [
        pytest.param([16, 18, 20, 22], True, 7, id="reaches, masked"),
        pytest.param([16, 18, 20, 22], False, 7, id="reaches"),
        pytest.param([16, 18, 20], True, 7, id="ends before, masked"),
        pytest.param([16, 18, 20], False, 0, id="ends before"),
    ],
)
def test_rows_that_a_transform_has_masked_show_no_end(
    first: Sequence[int], is_masked: bool, code: int
) -> None:
    """Full records hold the other directory's first row too, and show whether it was changed."""
    taken = Taken([first, [21, 23]], Position(24), directories=["d=0", "d=1"], is_masked=is_masked)

    assert code == taken.verified()
    if code:
        with pytest.raises(RefusedError, match="reaches beyond offset 21") as refused:
            taken.restored()
        assert "set its group to 16 and run it" in refused.value.do
        taken.bench.set_back(16)
        taken.sink()
        assert [b'{"n":%d}' % at for at in range(16, 30)] == taken.restored()
        assert 0 == taken.verified()


@pytest.mark.parametrize("is_masked", [True, False])
def test_more_rows_than_offsets_before_full_records_are_named(is_masked: bool) -> None:
    """The group was set back into what one of several directories holds."""
    cuts = [0, 2, 4], [1, 3], [5, 7], [6]
    directories = "d=0", "d=1", "d=1", "d=0"
    taken = Taken(cuts, Position(7), directories=directories, is_masked=is_masked)

    assert 7 == taken.verified()
    with pytest.raises(RefusedError):
        taken.restored()

    taken.bench.set_back(0 if is_masked else 5)  # what is masked may reach beyond 5 too
    taken.sink()

    assert 30 == len(taken.restored())
    assert 0 == taken.verified()


def test_a_count_that_fits_by_accident_is_not_believed() -> None:
    """Records were left out, and the group set back: what adds up is held by full records too."""
    cuts = [0, 2, 6], [3, 5], [8, 12, 14], [9, 11, 15]
    taken = Taken(cuts, Position(14), directories=["d=0", "d=1"])

    before = masked([0, 2, 6]).splitlines() + masked([3, 5]).splitlines()
    assert [*before, *(b'{"n":%d}' % at for at in range(8, 30))] == taken.restored()
    assert 0 == taken.verified()


@pytest.mark.parametrize(
    ("cuts", "directories"),
    [
        ([[0, 1, 2, 3], [4]], 2),
        ([range(at, at + 2) for at in range(0, 24, 2)], 12),
        ([range(at, 6, 3) for at in range(3)] + [range(at, 21, 3) for at in range(6, 9)], 3),
        ([range(at, at + 5, 3) for cut in range(0, 24, 6) for at in range(cut, cut + 3)], 3),
    ],
    ids=["two", "by the hour", "by field", "by field, in four cuts"],
)
def test_where_nothing_was_left_out_nothing_is_stored_again(
    cuts: Sequence[Sequence[int]], directories: int
) -> None:
    """Rows that a transform has masked are believed, as nothing shows that any reaches beyond."""
    names, end = [f"d={at}" for at in range(directories)], sum(map(len, cuts))
    taken = Taken(cuts, Position(end), directories=names)

    came = b"".join(masked(cut) for cut in cuts).splitlines()
    wanted = Counter[bytes | None]([*came, *(b'{"n":%d}' % at for at in range(end, 30))])
    assert wanted == Counter(taken.restored())
    assert 0 == taken.verified()
