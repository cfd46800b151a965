"""Text in lines that fit: sentences, and commands that are to be pasted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kbackup.cli.prepare import filled_topic
from kbackup.cli.terminal import fold, fold_command, hang
from kbackup.local.sample import TOPICS, Filled, SampleTopic

TEXTS = st.text(st.sampled_from("ab 01234,.\u2009/_-+(") | st.characters(categories=["L", "N"]))


@given(TEXTS, st.integers(1, 50))
def test_nothing_but_spaces_is_lost(text: str, width: int) -> None:
    """Folded text loses nothing, and no line is too long."""
    lines = fold(text, width)

    assert text.replace(" ", "") == "".join(lines).replace(" ", "")
    assert [] == [line for line in lines if len(line) > width]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        pytest.param("2026-11-21 02:01", 10, ["2026-11-21", "02:01"], id="at a space"),
        pytest.param("1\u2009240\u2009000 of 2", 9, ["1\u2009240\u2009000", "of 2"], id="grouped"),
        pytest.param("", 4, [""], id="empty"),
        pytest.param("abc def", None, ["abc def"], id="no bound"),
    ],
)
def test_where_lines_end(text: str, width: int | None, lines: list[str]) -> None:
    """Lines break at spaces, and never inside a number that fits."""
    assert lines == fold(text, width)


def test_quoted_arguments_stay_whole() -> None:
    """A folded command is equivalent to the unfolded one in a shell."""
    lines = fold_command("kbackup restore --rename 'copy of $0' -t orders", 30)

    assert ["  kbackup restore --rename \\", "    'copy of $0' -t orders"] == lines


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_what_the_demo_says_of_its_sample_fits(topic: SampleTopic) -> None:
    """In 80 columns no word is broken, and what is said of a topic hangs beneath."""
    lead, about = filled_topic(Filled(topic, 400_000, 397_894))
    lines = hang(lead, about, 80).splitlines()

    assert [] == [line for line in lines if cell_len(line) > 80]
    assert about.split() == " ".join(line[len(lead) :] for line in lines).split()
