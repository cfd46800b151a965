"""Errors: one exit code each, whole across processes, in the order of the contract."""

import itertools
import pickle

import pytest

from kbackup import errors
from kbackup.errors import Issue, KbackupError, StoppedError, worst
from kbackup.events import to_json

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, KbackupError)
]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_crosses_processes_whole(kind: type[KbackupError]) -> None:
    """Fields and class survive pickling, and the way through a task's report."""
    error = kind("what", "why", "do", topic="orders")
    fields = (error.what, error.why, error.do, error.place)

    for copy in (
        pickle.loads(pickle.dumps(error)),
        Issue.from_dict(to_json(error.issue())).error(),
    ):
        assert (kind, fields) == (type(copy), (copy.what, copy.why, copy.do, copy.place))


@pytest.mark.parametrize(
    ("error", "code", "do"),
    [
        pytest.param(MemoryError("malloc failed"), "no_memory", "give it more", id="memory"),
        pytest.param(
            KeyError("x"), "failed", "this is a defect of kbackup: report it", id="defect"
        ),
    ],
)
def test_what_nobody_expected_is_a_defect_or_a_lack_of_memory(
    error: Exception, code: str, do: str
) -> None:
    """Either way it names what failed, and says what to do."""
    found = errors.unexpected("kbackup demo", error, "report it")

    assert (code, do) == (found.code, found.do)
    assert found.what.startswith("kbackup demo ")


def test_codes_are_unique() -> None:
    """A script can tell every condition by its code."""
    codes = [kind.code for kind in ALL]

    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations((7, 4, 1, 6, 5, 9, 3), 2)])
def test_of_two_reasons_the_graver_one_is_the_exit_code(first: int, second: int) -> None:
    """The order is 7, 4, 1, 6, 5, 9, 3."""
    assert first == worst([second, 0, first])


def test_no_reason_is_success() -> None:
    """A run without any reason to fail exits with 0."""
    assert (0, 0) == (worst([]), worst([0, 0]))


def test_a_stop_has_the_code_of_its_signal() -> None:
    """A stopped process exits 128 plus the signal."""
    assert 143 == StoppedError("stopped", signal=15).exit_status


def test_a_place_changes_nothing_of_the_error_itself() -> None:
    """A field of the place that is named like one of the error's own never replaces it."""
    issue = Issue(
        "configuration", "a file", "it is missing", "", {"code": "file", "line": 3}, exit_code=2
    )

    assert ("configuration", 3) == (to_json(issue)["code"], to_json(issue)["line"])
    assert 2 == Issue.from_dict(to_json(issue)).exit_code
