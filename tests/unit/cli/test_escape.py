import unicodedata
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.cli.terminal import escape

NAUGHTY = Path(__file__).parents[4].joinpath("shared/interop/strings/blns.txt")
HARMFUL = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def harmful(text: str) -> list[str]:
    """Return the characters a terminal might obey."""
    return [c for c in text if unicodedata.category(c) in HARMFUL]


@given(st.text(st.characters() | st.characters(categories=cast("Any", sorted(HARMFUL)))))
def test_no_harmful_character_comes_through(text: str) -> None:
    """A terminal receives only harmless characters, whatever a name contains."""
    assert [] == harmful(escape(text))


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_readable_text_stays(text: str) -> None:
    """Letters, digits and signs of any script are shown as they are."""
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
    """Control characters are shown as escapes and everything else unchanged."""
    assert shown == escape(text)


KNOWN = (
    "\x00 \x01\x02\x1b \x7f\x80\x85\x9f\xad",  # controls of both blocks, a soft hyphen
    "\x1b]0;title\x07 \x1b[31mred\x1b[0m \x1bc \x9b2J \x90+q\x9c",  # sequences of terminals
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c\u200e\u200f",  # direction
    "\u200b\u200c\u200d\u2060\u180e\ufeff\ufffe\U000e0001\U000e0041",  # no width, marks, tags
    "\u2028 \u2029 \x0b \x0c \x1c \x1d \x1e \r",  # what somebody takes for a line's end
    "\ud800 \udfff \udc80",  # halves of pairs
    "\ue000 \uf8ff \U0010fffd \u0378",  # private, not assigned
    "a\u0300\u0301\u0302\u0303" * 40,  # marks upon marks
    "undefined nil NULL ''; DROP TABLE topics; -- ${jndi:ldap://x} %n%s {0} $(touch x) `x`",
    "Ω≈ç√∫µ 田中さん ﷽ 👨\u200d👩\u200d👧 ١٢٣ ᚛ᚄᚓ",
)
"""Text that terminals, logs and parsers have tripped over."""


def test_naughty_strings() -> None:
    """Strings known to break programs are shown safely."""
    lines = [*KNOWN]
    if NAUGHTY.exists():  # a collection of five hundred more, beside the checkout
        lines += NAUGHTY.read_text("utf-8", errors="surrogateescape").split("\n")

    assert [] == [line for line in lines if harmful(escape(line))]
    assert {True} == {bool(harmful(line)) for line in KNOWN[:6]}
