"""JSON and YAML files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup.config import files
from kbackup.config.files import FileProperty


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"a": "b"}', [FileProperty("a", "b", 1)], id="bare map"),
        pytest.param(
            '{\n"name": "n",\n"config": {\n"a": "b"}}',
            [FileProperty("name", "n", 2), FileProperty("a", "b", 4)],
            id="envelope",
        ),
        pytest.param(
            '{"name": "n", "config": {"name": "n"}, "type": "sink",'
            ' "tasks": [{"connector": "n", "task": 0}]}',
            [FileProperty("name", "n", 1)],
            id="answer of the REST API",
        ),
        pytest.param(
            '{"config": {"name": "x"}, "name": "n"}', [FileProperty("name", "x", 1)], id="inner"
        ),
        pytest.param(
            '{"a": 3, "b": true}',
            [FileProperty("a", "3", 1), FileProperty("b", "true", 1)],
            id="bare",
        ),
        pytest.param(
            '{"a": 12345678901234567890123}',
            [FileProperty("a", "12345678901234567890123", 1)],
            id="a number as it is written",
        ),
        pytest.param('{"a": null, "b": ""}', [FileProperty("b", "", 1)], id="null is not there"),
        pytest.param('{"a": {"b": "c"}}', [FileProperty("a.b", "c", 1)], id="nested"),
        pytest.param('{"a": ["x", "y"]}', [FileProperty("a", "x,y", 1)], id="list"),
    ],
)
def test_json_becomes_flat_text(text: str, expected: list[FileProperty]) -> None:
    """Both JSON forms of a connector's configuration are read, with values as written."""
    assert expected == list(files.parse_json(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("flush.size: 3", [FileProperty("flush.size", "3", 1)], id="flat"),
        pytest.param(
            "\ns3:\n  bucket:\n    name: b", [FileProperty("s3.bucket.name", "b", 4)], id="nested"
        ),
        pytest.param(
            "a: no\nb: 010\nc: 1_0",
            [FileProperty("a", "no", 1), FileProperty("b", "010", 2), FileProperty("c", "1_0", 3)],
            id="as written",
        ),
        pytest.param("a: ~\nb: ''", [FileProperty("b", "", 2)], id="null is not there"),
        pytest.param("topics: [a, b]", [FileProperty("topics", "a,b", 1)], id="list"),
        pytest.param(
            "name: n\nconfig:\n  a: b",
            [FileProperty("name", "n", 1), FileProperty("a", "b", 3)],
            id="envelope",
        ),
        pytest.param(
            "a: &x b\nc: *x", [FileProperty("a", "b", 1), FileProperty("c", "b", 1)], id="alias"
        ),
        pytest.param("", [], id="empty"),
    ],
)
def test_yaml_becomes_flat_text(text: str, expected: list[FileProperty]) -> None:
    """YAML values are taken as written, without YAML's type guessing."""
    found = list(files.parse_yaml(text))

    assert [(e.name, e.text) for e in expected] == [(e.name, e.text) for e in found]


def test_yaml_lines_are_those_of_the_names() -> None:
    """An error can name the line of a value, nested or not."""
    text = "a:\n  b: 1\n\nc: 2\n"

    assert [2, 4] == [entry.line for entry in files.parse_yaml(text)]


BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("parse", "text", "says"),
    [
        pytest.param(files.parse_json, '{"a": 1, "a": 2}', "twice", id="name twice"),
        pytest.param(files.parse_json, '{"a.b": 1, "a": {"b": 2}}', "twice", id="twice flat"),
        pytest.param(files.parse_json, "[1]", "mapping", id="no object"),
        pytest.param(files.parse_json, '{"config": [1]}', "mapping", id="odd envelope"),
        pytest.param(files.parse_json, '{"a": NaN}', "NaN", id="not JSON"),
        pytest.param(files.parse_json, '{"a": }', "Expecting", id="syntax"),
        pytest.param(files.parse_json, '{"a":' * 90_000, "deep", id="deep"),
        pytest.param(files.parse_json, '{"a": ["x,y"]}', "commas", id="comma in a list"),
        pytest.param(files.parse_json, '{"a": [{"b": 1}]}', "commas", id="map in a list"),
        pytest.param(files.parse_yaml, "a: 1\na: 2", "twice", id="yaml name twice"),
        pytest.param(files.parse_yaml, "- a", "mapping", id="yaml list"),
        pytest.param(files.parse_yaml, "a: [", "expected", id="yaml syntax"),
        pytest.param(files.parse_yaml, BOMB, "too many", id="yaml bomb"),
        pytest.param(files.parse_yaml, "a: &x [*x]", "deep", id="yaml that holds itself"),
        pytest.param(files.parse_yaml, "a: &x {b: *x}", "deep", id="yaml map in itself"),
        pytest.param(files.parse_yaml, "[" * 5_000, "deep", id="yaml deep"),
        pytest.param(files.parse_yaml, "a: " + "[" * 21, "deep", id="yaml as deep as need be"),
        pytest.param(files.parse_yaml, "? [a]\n: b", "plain name", id="yaml odd name"),
        pytest.param(files.parse_yaml, "a: 1\n---\nb: 2", "document", id="yaml two documents"),
    ],
)
def test_what_is_no_configuration_says_so(parse, text: str, says: str) -> None:  # type: ignore[no-untyped-def]
    """An ambiguous file is refused with the reason, quickly and in bounded memory."""
    with pytest.raises(ValueError, match=says):
        list(parse(text))


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [echo]", "!mine x"])
def test_a_yaml_tag_is_refused(tag: str) -> None:
    """No file can execute code, and unknown tags are refused."""
    with pytest.raises(ValueError, match="line 1: tags are not supported"):
        list(files.parse_yaml(f"a: {tag}"))


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """Any file yields entries or a ValueError."""
    for parse in (files.parse_json, files.parse_yaml):
        said = "entries"
        try:
            list(parse(text))
        except ValueError as error:
            said = str(error)

        assert said
