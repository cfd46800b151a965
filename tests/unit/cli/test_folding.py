import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from kbackup.cli.terminal import fold, fold_command, longest_atom, shorten

TEXTS = st.text(st.sampled_from("ab 01234,.\u2009/_-+田(") | st.characters(categories=["L", "N"]))


@given(TEXTS, st.integers(1, 50))
@settings(deadline=None)
def test_nothing_but_spaces_is_lost(text: str, width: int) -> None:
    """
    Folded text loses nothing.
    """
    assert text.replace(" ", "") == "".join(fold(text, width)).replace(" ", "")


@given(TEXTS, st.integers(1, 50))
@settings(deadline=None)
def test_numbers_stay_whole(text: str, width: int) -> None:
    """
    No line ends inside a number.
    """
    numbers = re.findall("[0-9](?:[0-9\u2009.,]*[0-9])?", text)

    folded = "\n".join(fold(text, width))

    assert numbers == re.findall("[0-9](?:[0-9\u2009.,]*[0-9])?", folded)


@given(TEXTS, st.integers(1, 50))
@settings(deadline=None)
def test_lines_fit_unless_a_number_does_not(text: str, width: int) -> None:
    """
    A line is too wide only where one number alone is.
    """
    room = max(width, longest_atom(text))

    assert [] == [line for line in fold(text, width) if cell_len(line) > room]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        pytest.param("copy_of_payments", 10, ["copy_of_", "payments"], id="after a sign"),
        pytest.param("2026-11-21 02:01", 10, ["2026-11-21", "02:01"], id="at a space first"),
        pytest.param("t+1+0000410000.avro", 15, ["t+1+0000410000.", "avro"], id="object name"),
        pytest.param("1\u2009240\u2009000 of 2", 9, ["1\u2009240\u2009000", "of 2"], id="grouped"),
        pytest.param("12345678", 4, ["12345678"], id="number too wide"),
        pytest.param("", 4, [""], id="empty"),
        pytest.param("abc def", None, ["abc def"], id="no bound"),
    ],
)
def test_where_lines_end(text: str, width: int | None, lines: list[str]) -> None:
    """
    Lines break at word boundaries.
    """
    assert lines == fold(text, width)


def test_quoted_arguments_stay_whole() -> None:
    """
    A folded command is equivalent to the unfolded one in a shell.
    """
    lines = fold_command("kbackup restore --rename 'copy of $0' -t orders", 30)

    assert ["  kbackup restore --rename \\", "    'copy of $0' -t orders"] == lines


@given(TEXTS, st.integers(1, 30))
@settings(deadline=None)
def test_shortened_text_fits(text: str, width: int) -> None:
    """
    A name in the live display never pushes the numbers off the screen.
    """
    assert cell_len(shorten(text, width)) <= width
