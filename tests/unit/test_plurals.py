"""Numbers with their nouns."""

import pytest

from kbackup.errors import counted, form


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
    """
    Nouns and verbs are in the singular beside 1, and beside no other number.
    """
    found = f"{counted(number, 'value object')} {form(number, 'is', 'are')} missing"

    assert expected == found
