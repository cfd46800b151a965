"""Rows of another tool's object against the records beside them."""

import pytest

from kbackup.catalog.covered import goes_beyond, goes_on_in


def contents(text: str) -> list[bytes | None]:
    """A row for each letter; a dash is a record without a value."""
    return [None if letter == "-" else letter.encode() for letter in text]


@pytest.mark.parametrize(
    ("rows", "records", "expected"),
    [
        pytest.param("abc", "abc", False, id="as long"),
        pytest.param("abc", "abcd", False, id="shorter"),
        pytest.param("abcd", "abc", True, id="longer"),
        pytest.param("ace", "abcdef", False, id="every other one"),
        pytest.param("aceg", "abcdef", True, id="every other one, and on"),
        pytest.param("acf", "abcdf", False, id="of another number of others"),
        pytest.param("abd", "ab-d", False, id="without what has no value"),
        pytest.param("abdf", "ab-d", True, id="without what has no value, and on"),
        pytest.param("ace", "abec", True, id="in another order"),
        pytest.param("aaaa", "aaa", True, id="alike, longer"),
        pytest.param("aaa", "aaaa", False, id="alike"),
        pytest.param("xyz", "ab-de", True, id="of another converter"),
        pytest.param("", "abc", False, id="no row"),
        pytest.param("a", "", True, id="no record"),
    ],
)
def test_values_that_begin_among_records_end_among_them_or_not(
    rows: str, records: str, *, expected: bool
) -> None:
    """What others hold of a directory's records, values of it hold too, up to their end."""
    assert expected is goes_beyond(contents(rows), contents(records))


@pytest.mark.parametrize(
    ("rows", "records", "is_share", "expected"),
    [
        pytest.param("abc", "def", False, False, id="others"),
        pytest.param("abc", "cde", False, True, id="the last one"),
        pytest.param("abcde", "cdefg", False, True, id="several"),
        pytest.param("abcdef", "cd", False, True, id="all of them, and on"),
        pytest.param("ace", "cdef", False, True, id="every other one"),
        pytest.param("ace", "bdce", False, True, id="behind others"),
        pytest.param("abc", "abc", False, False, id="all again"),
        pytest.param("abcab", "abcab", False, False, id="all again, of which some twice"),
        pytest.param("aaab", "aaa", False, False, id="what comes often shows nothing"),
        pytest.param("aaa", "aaa", False, False, id="alike"),
        pytest.param("abc", "bxa", False, False, id="one by chance"),
        pytest.param("abac", "caa", False, True, id="as they would go on"),
        pytest.param("abc", "", False, False, id="no record"),
        pytest.param("", "abc", False, False, id="no row"),
        pytest.param("abcdef", "ce", True, True, id="every other one of a share, and on"),
        pytest.param("abcdefg", "bdf", True, True, id="a share behind the first row"),
        pytest.param("abcdef", "ace", True, False, id="all of a share again"),
        pytest.param("abc", "def", True, False, id="a share of others"),
    ],
)
def test_values_go_on_with_the_records_that_come_later_or_not(
    rows: str, records: str, *, is_share: bool, expected: bool
) -> None:
    """Their last rows are the first records, one like no other row; a share lies among others."""
    assert expected is goes_on_in(contents(rows), contents(records), is_share=is_share)
