import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.cli.escape import escape

NAUGHTY = Path(__file__).parents[4].joinpath("shared/interop/strings/blns.txt")
HARMFUL = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def harmful(text: str) -> list[str]:
    """Return the characters a terminal might obey."""
    return [c for c in text if unicodedata.category(c) in HARMFUL]


@given(st.text(st.characters() | st.characters(categories=sorted(HARMFUL))))
@settings(deadline=None)
def test_no_harmful_character_comes_through(text: str) -> None:
    """
    Whatever is in a name, a terminal only ever sees it.
    """
    assert [] == harmful(escape(text))


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
@settings(deadline=None)
def test_readable_text_stays(text: str) -> None:
    """
    Letters, digits and signs of any script are shown as they are.
    """
    assert text == escape(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\x1b[2J\x07", "\\x1b[2J\\x07", id="clears the screen"),
        pytest.param("a\r\nb\tc", "a\\r\\nb\\tc", id="lines"),
        pytest.param("user\u202etxt.exe", "user\\u202etxt.exe", id="right to left"),
        pytest.param("\u2066abc\u2069\u200f", "\\u2066abc\\u2069\\u200f", id="isolates"),
        pytest.param("\x9b31m", "\\x9b31m", id="eight-bit control sequence"),
        pytest.param("pay\u200bpal", "pay\\u200bpal", id="zero width"),
        pytest.param("\ufeff\U000e0041", "\\ufeff\\U000e0041", id="byte order mark and tag"),
        pytest.param("\udcff", "\\udcff", id="byte that is not UTF-8"),
        pytest.param("a\u2028b", "a\\u2028b", id="line separator"),
        pytest.param("田中さん 🐱 ñ\u00a0", "田中さん 🐱 ñ\u00a0", id="harmless"),
        pytest.param("[bold]\\[/bold] :smile:", "[bold]\\[/bold] :smile:", id="markup"),
    ],
)
def test_tricky_strings(text: str, shown: str) -> None:
    """
    What a terminal would obey is shown as its escape, all else as it is.
    """
    assert shown == escape(text)


@pytest.mark.skipif(not NAUGHTY.exists(), reason="needs the list of naughty strings")
def test_naughty_strings() -> None:
    """
    The strings that have broken other programs do not get through.
    """
    lines = NAUGHTY.read_text("utf-8", errors="surrogateescape").split("\n")

    assert [] == [line for line in lines if harmful(escape(line))]
