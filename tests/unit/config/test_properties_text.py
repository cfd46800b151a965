r"""Java ``.properties`` text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.config import files
from kbackup.config.files import FileProperty


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a=b", [FileProperty("a", "b", 1)], id="equals sign"),
        pytest.param("a:b", [FileProperty("a", "b", 1)], id="colon"),
        pytest.param("a b", [FileProperty("a", "b", 1)], id="blank"),
        pytest.param("a \t=  b", [FileProperty("a", "b", 1)], id="blanks around the sign"),
        pytest.param("a==b", [FileProperty("a", "=b", 1)], id="only the first sign parts"),
        pytest.param("a=b c ", [FileProperty("a", "b c ", 1)], id="blanks at the end stay"),
        pytest.param("a", [FileProperty("a", "", 1)], id="a name alone"),
        pytest.param(
            "a=\nb=1", [FileProperty("a", "", 1), FileProperty("b", "1", 2)], id="empty value"
        ),
        pytest.param(
            "# c\n! d\n\n  a=b", [FileProperty("a", "b", 4)], id="comments and empty lines"
        ),
        pytest.param("a=x#y", [FileProperty("a", "x#y", 1)], id="no comment behind a value"),
        pytest.param(
            "a=x,\\\n   y\nb=1",
            [FileProperty("a", "x,y", 1), FileProperty("b", "1", 3)],
            id="goes on",
        ),
        pytest.param(
            "a=x\\\\\nb=1",
            [FileProperty("a", "x\\", 1), FileProperty("b", "1", 2)],
            id="two backslash",
        ),
        pytest.param(
            "a=x\\\n# y", [FileProperty("a", "x# y", 1)], id="no comment in a continuation"
        ),
        pytest.param("a=x\\", [FileProperty("a", "x", 1)], id="goes on into nothing"),
        pytest.param("a\\ b\\==c", [FileProperty("a b=", "c", 1)], id="escapes in a name"),
        pytest.param("a=\\u0041\\t\\q", [FileProperty("a", "A\tq", 1)], id="escapes"),
        pytest.param(
            "a=\\ud83d\\ude00", [FileProperty("a", "\U0001f600", 1)], id="two escapes, one sign"
        ),
        pytest.param(
            "a=1\r\nb=2\rc=3",
            [FileProperty("a", "1", 1), FileProperty("b", "2", 2), FileProperty("c", "3", 3)],
            id="line ends",
        ),
        pytest.param(
            "a=1\na=2", [FileProperty("a", "1", 1), FileProperty("a", "2", 2)], id="a name twice"
        ),
    ],
)
def test_text_reads_as_java_reads_it(text: str, expected: list[FileProperty]) -> None:
    """A connector's file means here what it meant to the connector."""
    assert expected == list(files.parse_properties(text))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x=1\na=\\u00g1", id="not hexadecimal"),
        pytest.param("x=1\na=\\u12", id="cut short"),
        pytest.param("x=1\na=\\ud83d", id="half a character"),
    ],
)
def test_a_bad_escape_is_an_error_with_its_line(text: str) -> None:
    """What Java cannot read is named, with the line it stands on."""
    with pytest.raises(ValueError, match="line 2"):
        list(files.parse_properties(text))


def _units(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_escaped_comes_back(pairs: dict[str, str]) -> None:
    """Any name and value can be written to a properties file and read back."""
    lines = [
        "=".join("".join(f"\\u{unit:04x}" for unit in _units(part)) for part in pair)
        for pair in pairs.items()
    ]

    assert pairs == {e.name: e.text for e in files.parse_properties("\n".join(lines))}


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text, however odd, ends in anything but entries or an error that says why."""
    said = "line"
    lines = [1]
    try:
        lines += [entry.line for entry in files.parse_properties(text)]
    except ValueError as error:
        said = str(error)

    assert "line" in said
    assert lines == sorted(lines)
