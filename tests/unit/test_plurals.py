"""Numbers with their nouns."""

import pytest

from kbackup.errors import counted, form, some


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0 value objects are missing"),
        (1, "1 value object is missing"),
        (2, "2 value objects are missing"),
        (-1, "-1 value objects are missing"),
    ],
)
def test_one_thing_is_no_plural(number: int, expected: str) -> None:
    """Nouns and verbs are in the singular beside 1, and beside no other number."""
    found = f"{counted(number, 'value object')} {form(number, 'is', 'are')} missing"

    assert expected == found


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c"], "a, b and 1 more")],
)
def test_of_many_names_some_are_given(names: list[str], expected: str) -> None:
    """The first ones are named, and the others counted."""
    assert expected == some(names, 2)
