"""What cannot be checked, and how much is read."""

from gzip import compress as pack
from pathlib import Path

import pytest
from backup_samples import JSON, Backup
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.verify.task import Sample
from tests.support.verified import Verified


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        pytest.param("orders+0+0000000000.json", b'{"n":0}\n', "not checkable", id="json"),
        pytest.param("orders+0+0000000000.bin", b"text\n", "not checkable", id="bytes"),
        pytest.param("orders+0+0000000000.json.gz", pack(b'{"n":0}\n'), "ok", id="gzip has a CRC"),
    ],
)
def test_what_nothing_could_show_is_never_called_ok(
    tmp_path: Path, name: str, data: bytes, expected: str
) -> None:
    """A connector's plain text has no checksum, so it is called readable and no more."""
    backup = Backup.in_folder(tmp_path)
    path = backup.path(f"topics/orders/partition=0/{name}")
    path.parent.mkdir(parents=True)
    path.write_bytes(data)

    verified = Verified(backup, deep=True)

    assert (0, [expected]) == (verified.exit_code, verified.states)


def test_objects_that_cannot_be_checked_are_counted(tmp_path: Path) -> None:
    """Objects that cannot be checked are counted, however many others are good."""
    backup = Backup.in_folder(tmp_path)
    backup.run("orders", 0, range(3), views=JSON)
    path = backup.path("topics/orders/partition=0/orders+0+0000000003.json")
    path.write_bytes(b'{"n":3}\n')

    assert ["ok, 1 not checkable"] == Verified(backup, deep=True).states
    assert ["all there, 1 object not checkable"] == Verified(backup).states


# How much to read


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), unique=True), st.integers(1, 9))
def test_the_parts_hold_each_object_once(keys: list[str], parts: int) -> None:
    """Seven daily parts read all of a backup in a week, each object once."""
    found = [
        [key for key in keys if Sample(part, parts).takes(key)] for part in range(1, parts + 1)
    ]

    assert sorted(keys) == sorted(key for part in found for key in part)


def test_a_part_reads_its_objects_and_says_so() -> None:
    """Objects that were not read are not called ok, and the row says how many were."""
    backup = Backup()
    keys = backup.put("orders", 0, *([at] for at in range(40)))
    backup.replace(keys[7], b"x")

    found = [Verified(backup, deep=True, sample=Sample(part, 4)) for part in (1, 2, 3, 4)]

    assert 40 == sum(verified.summary["objects"] for verified in found)
    assert [("corrupt", keys[7])] == [error for verified in found for error in verified.errors]
    assert [0, 0, 0, 7] == sorted(verified.exit_code for verified in found)
    assert 3 == sum("of 40 objects read" in verified.states[0] for verified in found)
    assert [] == [note for verified in found for note in verified.notes]


def test_a_sample_is_a_share_of_the_objects() -> None:
    """A sample of another run is of other objects, about as many as were asked for."""
    keys = [f"topics/orders/partition=0/orders+0+{at:010}.json" for at in range(2000)]
    first, second = (
        {key for key in keys if Sample.parse(None, "10%", seed).takes(key)} for seed in ("a", "b")
    )

    assert first != second
    assert 120 < len(first) < 280
    assert 120 < len(second) < 280


@given(st.sets(st.text(max_size=30), max_size=40), st.integers(1, 3), st.text(max_size=9))
def test_a_sample_of_few_objects_is_of_one(keys: set[str], parts: int, seed: str) -> None:
    """It would else be of none more often than not, and say that nothing is wrong."""
    of_part = [key for key in keys if Sample(1, parts).takes(key)]
    share = Sample(1, parts, 1e-9, seed).at_least_one(keys)

    assert min(1, len(of_part)) == len([key for key in of_part if share.takes(key)])


def test_a_part_without_objects_is_not_called_good() -> None:
    """What was listed and not read has not been looked at."""
    backup = Backup()
    backup.put("orders", 0, [0])

    found = [Verified(backup, deep=True, sample=Sample(part, 2)) for part in (1, 2)]

    assert [["not read"], ["ok"]] == sorted(verified.states for verified in found)


@pytest.mark.parametrize(
    ("part", "sample", "expected"),
    [
        pytest.param("1/7", None, Sample(1, 7, seed="s"), id="part"),
        pytest.param(None, "5%", Sample(percent=5, seed="s"), id="sample"),
        pytest.param(None, "0.5", Sample(percent=0.5, seed="s"), id="sample without sign"),
        pytest.param("7/7", "100%", Sample(7, 7, seed="s"), id="both"),
    ],
)
def test_a_share_is_read(part: str | None, sample: str | None, expected: Sample) -> None:
    """Parts are numbered from 1, samples are per cent."""
    assert expected == Sample.parse(part, sample, "s")


@pytest.mark.parametrize(
    ("part", "sample"),
    [
        *((part, None) for part in ("0/7", "8/7", "1", "1/0", "-1/7", "a/b", "")),
        *((None, sample) for sample in ("0%", "101%", "-5%", "x", "")),
    ],
)
def test_a_share_that_cannot_be_is_refused(part: str | None, sample: str | None) -> None:
    """A part that does not exist is refused, since it would read nothing and report success."""
    with pytest.raises(Exception, match=r"is not a (part|share)") as caught:
        Sample.parse(part, sample, "s")

    assert 2 == caught.value.exit_code  # type: ignore[attr-defined]
