"""Groups that are set back to where they stood, whatever has come in between."""

import json
from typing import Any

import pytest

from kbackup.errors import KbackupError
from kbackup.events import Ended
from kbackup.kafka import GroupOffset
from kbackup.restore.groups import GroupsOptions
from kbackup.runs.report import Summary
from kbackup.stores import put_bytes
from tests.support.grouped import grouped, groups_run, set_groups
from tests.support.target import COPY, CrashError, Restoring

OWN = GroupOffset(1, b"own")
ID = "5c1e"


def done(of: Restoring, *, undo: bool, name: str = ID, **options: Any) -> Ended:
    """Set all groups, or set them back."""
    summary = Summary("r", "restore groups")
    run = groups_run(of, summary, yes=True, **options)
    try:
        if undo:
            run.undo(name)
        else:
            [*run.set(GroupsOptions(id=ID))]
    except KbackupError as error:
        summary.fail(error)
    return summary.finish()


@pytest.fixture
def of() -> Restoring:
    """Three groups that were set: one of them had stood elsewhere, two nowhere."""
    found = grouped(a=3, b=5, c=7)
    vars(found.cluster)["stood"]["b"] = {COPY: OWN}
    return found


def stood(of: Restoring) -> dict[str, Any]:
    """Where groups stand that stand anywhere."""
    return {name: one for name, one in vars(of.cluster)["stood"].items() if one}


def test_groups_stand_as_before_and_a_second_time_changes_nothing(of: Restoring) -> None:
    """One that had no offset has none again; the second run finds them as they should be."""
    done(of, undo=False)

    for _ in range(2):
        ended = done(of, undo=True)

        assert (0, ["a", "b", "c"]) == (ended.exit_code, ended.facts["groups"])
        assert {"b": {COPY: OWN}} == stood(of)
    calls = len(vars(of.cluster)["changes"])
    done(of, undo=True)
    assert calls == len(vars(of.cluster)["changes"])


@pytest.mark.parametrize("undo", [False, True])
@pytest.mark.parametrize("at", range(1, 4))
def test_a_kill_at_any_moment_is_undone(of: Restoring, at: int, *, undo: bool) -> None:
    """As groups are set, or set back: some stand here, some there, and all can go back."""
    if undo:
        done(of, undo=False)
    vars(of.cluster)["dies_in"] = at
    with pytest.raises(CrashError):
        done(of, undo=undo)

    ended = done(of, undo=True)

    assert (0, ["a", "b", "c"]) == (ended.exit_code, ended.facts["groups"])
    assert {"b": {COPY: OWN}} == stood(of)


def test_the_next_run_after_a_killed_one_names_its_id(
    of: Restoring, caplog: pytest.LogCaptureFixture
) -> None:
    """The id is said before the first group is set; with both, all groups go back."""
    vars(of.cluster)["dies_in"] = 2
    with pytest.raises(CrashError):
        set_groups(of, yes=True)
    (said,) = caplog.messages
    killed = said.split()[1]

    ended, _ = set_groups(of, yes=True)

    (warning,) = [one for one in ended.warnings if one.code == "groups_set_before"]
    assert f"a, b: set by an earlier run: after --undo {ended.facts['undo']}" in warning.text
    assert f"--undo {killed} undoes that too" in warning.text
    for name in (ended.facts["undo"], killed):
        assert 0 == done(of, undo=True, name=name).exit_code
    assert {"b": {COPY: OWN}} == stood(of)
    assert not set_groups(of, yes=True)[0].warnings  # they stand where neither has set them


@pytest.mark.parametrize("now", [{COPY: GroupOffset(9, b"")}, {}])
def test_a_group_that_has_moved_keeps_all_where_they_are(of: Restoring, now: Any) -> None:
    """One that went on, or whose offsets were deleted: nothing of it is guessed."""
    done(of, undo=False)
    vars(of.cluster)["stood"]["b"] = dict(now)
    before = {name: dict(one) for name, one in stood(of).items()}

    ended = done(of, undo=True)

    assert (4, [], before) == (ended.exit_code, ended.facts["groups"], stood(of))


def test_another_cluster_has_nothing_to_set_back() -> None:
    """No group stands there, as before the run, which would look as if all had been set back."""
    of = grouped(a=3)
    done(of, undo=False)
    after, of.cluster.cluster_id = stood(of), "another"
    vars(of.cluster)["stood"] = {}

    ended = done(of, undo=True)

    assert (4, []) == (ended.exit_code, ended.facts["groups"])
    of.cluster.cluster_id, vars(of.cluster)["stood"] = "cluster-here", after
    assert 0 == done(of, undo=True).exit_code


def test_what_an_earlier_version_has_set_is_set_back(of: Restoring) -> None:
    """It has not kept in which cluster."""
    done(of, undo=False)
    (key,) = (one.key for one in of.store.list("_kbackup/groups/") if "/applied/" in one.key)
    said = json.loads(of.store.open(key).read())
    assert "cluster-here" == said.pop("cluster_id")
    put_bytes(of.store, key, json.dumps(said).encode())

    assert (0, ["a", "b", "c"]) == (
        (ended := done(of, undo=True)).exit_code, ended.facts["groups"],
    )  # fmt: skip


def test_one_that_cannot_be_set_back_is_named_and_the_others_are(of: Restoring) -> None:
    """A consumer has joined between the look and the change."""
    done(of, undo=False)
    vars(of.cluster)["joined"].add("b")

    ended = done(of, undo=True)

    assert (4, ["a", "c"]) == (ended.exit_code, ended.facts["groups"])
    assert {"b"} == stood(of).keys()


@pytest.mark.parametrize(
    ("said", "code"),
    [(b"\0", 7), (b"[]", 7), (b"{}", 7), (b'{"v": 1, "before": {}}', 7), (b'{"v": 2}', 2)],
)
def test_what_cannot_be_read_sets_nothing_back(of: Restoring, said: bytes, code: int) -> None:
    """Damaged, or of a later version."""
    done(of, undo=False)
    (key,) = (one.key for one in of.store.list("_kbackup/groups/") if "/applied/" in one.key)
    assert 1 == json.loads(of.store.open(key).read())["v"]
    put_bytes(of.store, key, said)
    before = {name: dict(one) for name, one in stood(of).items()}

    ended = done(of, undo=True)

    assert (code, [key]) == (ended.exit_code, [one.place.get("key") for one in ended.errors])
    assert before == stood(of)
