"""JSON and YAML files."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.config import files
from kbackup.config.files import Entry


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"a": "b"}', [Entry("a", "b", 1)], id="bare map"),
        pytest.param(
            '{\n"name": "n",\n"config": {\n"a": "b"}}',
            [Entry("name", "n", 2), Entry("a", "b", 4)],
            id="envelope",
        ),
        pytest.param('{"config": {"name": "x"}, "name": "n"}', [Entry("name", "x", 1)], id="inner"),
        pytest.param('{"a": 3, "b": true}', [Entry("a", "3", 1), Entry("b", "true", 1)], id="bare"),
        pytest.param(
            '{"a": 12345678901234567890123}',
            [Entry("a", "12345678901234567890123", 1)],
            id="a number as it is written",
        ),
        pytest.param('{"a": null, "b": ""}', [Entry("b", "", 1)], id="null is not there"),
        pytest.param('{"a": {"b": "c"}}', [Entry("a.b", "c", 1)], id="nested"),
        pytest.param('{"a": ["x", "y"]}', [Entry("a", "x,y", 1)], id="list"),
    ],
)
def test_json_becomes_flat_text(text: str, expected: list[Entry]) -> None:
    """
    Both JSON forms of a connector's configuration are read, with values as written.
    """
    assert expected == list(files.parse_json(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("flush.size: 3", [Entry("flush.size", "3", 1)], id="flat"),
        pytest.param(
            "\ns3:\n  bucket:\n    name: b", [Entry("s3.bucket.name", "b", 4)], id="nested"
        ),
        pytest.param(
            "a: no\nb: 010\nc: 1_0",
            [Entry("a", "no", 1), Entry("b", "010", 2), Entry("c", "1_0", 3)],
            id="as written",
        ),
        pytest.param("a: ~\nb: ''", [Entry("b", "", 2)], id="null is not there"),
        pytest.param("topics: [a, b]", [Entry("topics", "a,b", 1)], id="list"),
        pytest.param(
            "name: n\nconfig:\n  a: b", [Entry("name", "n", 1), Entry("a", "b", 3)], id="envelope"
        ),
        pytest.param("a: &x b\nc: *x", [Entry("a", "b", 1), Entry("c", "b", 1)], id="alias"),
        pytest.param("", [], id="empty"),
    ],
)
def test_yaml_becomes_flat_text(text: str, expected: list[Entry]) -> None:
    """
    YAML values are taken as written, without YAML's type guessing.
    """
    found = list(files.parse_yaml(text))

    assert [(e.name, e.text) for e in expected] == [(e.name, e.text) for e in found]


def test_yaml_lines_are_those_of_the_names() -> None:
    """
    An error can name the line of a value, nested or not.
    """
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
        pytest.param(files.parse_yaml, "? [a]\n: b", "plain name", id="yaml odd name"),
        pytest.param(files.parse_yaml, "a: 1\n---\nb: 2", "document", id="yaml two documents"),
    ],
)
def test_what_is_no_configuration_says_so(parse, text: str, says: str) -> None:  # type: ignore[no-untyped-def]
    """
    An ambiguous file is refused with the reason, quickly and in bounded memory.
    """
    with pytest.raises(ValueError, match=says):
        list(parse(text))


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [echo]", "!mine x"])
def test_a_yaml_tag_is_refused(tag: str) -> None:
    """
    No file can execute code, and unknown tags are refused.
    """
    with pytest.raises(ValueError, match="line 1: tags are not supported"):
        list(files.parse_yaml(f"a: {tag}"))


@given(st.text())
@settings(deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    """
    Any file yields entries or a ValueError.
    """
    for parse in (files.parse_json, files.parse_yaml):
        said = "entries"
        try:
            list(parse(text))
        except ValueError as error:
            said = str(error)

        assert said
