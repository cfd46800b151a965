"""``--follow-groups``: consumer groups of a standby that follow their captures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kbackup.config import loading
from kbackup.errors import ConfigurationError, RefusedError
from kbackup.kafka import GroupOffset
from kbackup.records import TopicPartition
from kbackup.stores.memory import MemoryStore
from tests.support import grouped
from tests.support.standby import Standby
from tests.support.target import Grouped

COPY = TopicPartition("copy_of_orders", 0)


@pytest.fixture
def standby() -> Standby:
    """An empty bucket, and a cluster with groups."""
    return Standby(target=Grouped())


def capture(
    standby: Standby, taken: int, kind: str = "consumer", /, **stood: int | Sequence[int | None]
) -> None:
    """Capture where groups stand in orders."""
    grouped.capture(standby.backup, taken, kind, standby.time, **stood)


def stood(standby: Standby) -> dict[str, dict[TopicPartition, GroupOffset]]:
    """Where groups stand in the cluster."""
    found: dict[str, dict[TopicPartition, GroupOffset]] = vars(standby.target)["stood"]
    return found


def test_groups_follow_as_the_copy_reaches_their_captures(standby: Standby) -> None:
    """Each capture is applied once its records are there, to the groups that match."""
    standby.sink("orders", 0, range(5))
    capture(standby, 1, billing=3, other=2)
    seen: list[Any] = []

    def happens(look: int) -> bool:
        seen.append(stood(standby).get("billing", {}).get(COPY))
        if look == 1:
            standby.sink("orders", 0, range(5, 10))
            capture(standby, 2, billing=7)
        return look < 4

    summary = standby.follow(happens, follow_groups="b.*")

    assert GroupOffset(3, b"m") == seen[0]
    assert GroupOffset(8, b"m") == seen[-1]  # a marker lies in between
    assert {"billing"} == stood(standby).keys()
    assert ["billing"] == summary["groups"]


def test_a_group_that_a_new_application_of_streams_cannot_join_is_named_once(
    standby: Standby,
) -> None:
    """However often it is set."""
    standby.sink("orders", 0, range(5))
    capture(standby, 1, "streams", app=2)

    def happens(look: int) -> bool:
        if look == 1:
            capture(standby, 2, "streams", app=3)
        return look < 4

    summary = standby.follow(happens, follow_groups=".*")

    assert 3 == stood(standby)["app"][COPY].offset
    assert 1 == len(standby.warned("streams_group"))
    assert ["streams_group"] == [one["code"] for one in summary["warnings"]]


def test_without_the_option_no_group_is_touched(standby: Standby) -> None:
    """As ever."""
    standby.sink("orders", 0, range(5))
    capture(standby, 1, billing=3)

    standby.follow(lambda look: look < 2)

    assert {} == stood(standby)


@pytest.mark.parametrize("who", ["member", "moved", "foreign"])
def test_a_group_of_somebody_is_left_alone(standby: Standby, who: str) -> None:
    """One with members, one that was moved since, and one that this restore never set."""
    own = GroupOffset(1, b"own")
    standby.sink("orders", 0, range(5))
    capture(standby, 1, billing=3)
    if who == "foreign":
        stood(standby)["billing"] = {COPY: own}

    def happens(look: int) -> bool:
        if look == 1:
            capture(standby, 2, billing=4)
            if who == "member":
                vars(standby.target)["live"].add("billing")
            elif who == "moved":
                stood(standby)["billing"] = {COPY: own}
        return look < 3

    summary = standby.follow(happens, follow_groups=".*")

    expected = GroupOffset(3, b"m") if who == "member" else own
    assert expected == stood(standby)["billing"][COPY]
    assert [] == summary["groups"]
    assert 1 == len(standby.warned("group_left_alone"))


def test_a_capture_of_another_partition_alone_is_applied(standby: Standby) -> None:
    """A sink of some partitions has a capture of its own, and the group's others stay."""
    for partition in (0, 1):
        standby.sink("orders", partition, range(5), partitions=2)
    other = TopicPartition(COPY.topic, 1)
    capture(standby, 1, a=(1, 1))

    def happens(look: int) -> bool:
        if look == 1:
            capture(standby, 2, a=(None, 3))
        return look < 3

    standby.follow(happens, follow_groups=".*")

    assert {COPY: GroupOffset(1, b"m"), other: GroupOffset(3, b"m")} == stood(standby)["a"]


def test_another_run_goes_on_over_its_own_values(standby: Standby) -> None:
    """What an earlier run of the same restore has set is renewed."""
    standby.sink("orders", 0, range(5))
    capture(standby, 1, billing=3)
    standby.follow(lambda look: look < 2, follow_groups=".*")
    capture(standby, 2, billing=4)

    standby.follow(lambda look: look < 2, follow_groups=".*")

    assert GroupOffset(4, b"m") == stood(standby)["billing"][COPY]


def test_a_group_ahead_of_the_copy_waits_for_it(standby: Standby) -> None:
    """It is not set at the end of a copy that has not come so far."""
    standby.sink("orders", 0, range(5), range(5, 10))
    capture(standby, 1, billing=8)
    fault = RefusedError("no", "not yet")
    standby.target.faults[COPY] = fault

    def happens(look: int) -> bool:
        if look == 1:
            assert {} == stood(standby)
            standby.target.faults.clear()
        return look < 200

    standby.follow(happens, follow_groups=".*")

    assert 8 == stood(standby)["billing"][COPY].offset


def test_a_look_at_what_is_known_costs_one_listing(
    standby: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture is read once, however often the bucket is looked at; a new one is seen."""
    standby.sink("orders", 0, range(5))
    capture(standby, 1, billing=3)
    asked: list[str] = []
    for name in ("list", "open"):
        real = getattr(MemoryStore, name)

        def noting(store: Any, key: str, real: Any = real, name: str = name) -> Any:
            if key.startswith("_kbackup/groups/"):
                asked.append(name)
            return real(store, key)

        monkeypatch.setattr(MemoryStore, name, noting)
    looks: list[list[str]] = []

    def happens(look: int) -> bool:
        if look == 4:
            capture(standby, 2, billing=4)
        looks.append([*asked])
        asked.clear()
        return look < 6

    standby.follow(happens, follow_groups=".*")

    assert [["list", "open"], ["list"], ["list"]] == looks[:3]
    assert ["list", "open", "open"] == looks[4]
    assert ["list"] == looks[5]
    assert GroupOffset(4, b"m") == stood(standby)["billing"][COPY]


def test_what_was_read_for_one_group_serves_the_next(
    standby: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever groups stand in an object, it is read once for all of them."""
    standby.sink("orders", 0, range(10))
    places = {f"g{at}": 9 - at for at in range(10)}
    capture(standby, 1, **places)
    opened, real = list[str](), MemoryStore.open

    def opening(store: MemoryStore, key: str, *more: Any, **options: Any) -> Any:
        opened.append(key)
        return real(store, key, *more, **options)

    monkeypatch.setattr(MemoryStore, "open", opening)

    standby.follow(lambda look: look < 2, follow_groups=".*")

    assert places == {name: found[COPY].offset for name, found in stood(standby).items()}
    assert 2 == sum(key.startswith("topics/orders/") for key in opened)  # one is the copy's


def test_a_restore_that_ends_takes_no_groups(standby: Standby) -> None:
    """The option says something of a restore that follows."""
    with pytest.raises(ConfigurationError):
        standby.follow(lambda _: False, follow=False, follow_groups=".*")


def test_a_file_may_say_which_groups_a_standby_follows(tmp_path: Path) -> None:
    """A restore by hand that is given the same file is told that it does not follow them."""
    given = "bootstrap.servers=h:1\ns3.bucket.name=b\ntopics=t\nfollow.groups=.*\n"
    (file := tmp_path / "dr.properties").write_text(given)

    loaded = loading.load("restore", options={"rename": "copy_of_$0"}, files=(file,), environ={})

    assert [("warning", "no_effect", "follow.groups")] == [
        (each.level, each.code, each.name) for each in loaded.warnings
    ]
