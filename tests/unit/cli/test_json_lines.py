import json
from typing import Any

import jsonschema
import pytest

from kbackup.cli.output import json_line, schema
from tests.support.json_lines import LINES


def test_the_schema_is_a_schema() -> None:
    """Scripts can rely on any validator of JSON Schema."""
    jsonschema.Draft202012Validator.check_schema(schema())

    assert "https://json-schema.org/draft/2020-12/schema" == schema()["$schema"]


def test_every_line_fulfils_the_schema(any_told: Any, show: Any) -> None:
    """Every line that --json prints conforms to the published schema."""
    shown = show(any_told.command, any_told.events, any_told.ended(), json=True)

    printed = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [] == [error.message for line in printed for error in LINES.iter_errors(line)]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param({"type": "unheard_of"}, id="unknown type"),
        pytest.param({"topic": "t", "partition": 0, "offset": 0}, id="neither event nor record"),
        pytest.param(
            {"type": "setting", "name": "", "value": None, "origin": None}, id="empty name"
        ),
        pytest.param(
            {"type": "finding", "level": "error", "code": "gap", "key": "", "offsets": None},
            id="unknown as empty text",
        ),
        pytest.param(
            {"type": "partition", "topic": "t", "partition": 0, "objects": 1, "first": "0",
             "last": 0, "records": 1, "bytes": 1},
            id="offset as text",
        ),
        pytest.param(
            {"type": "summary", "v": 2, "run": None, "command": "sink", "result": "ok",
             "exit_code": 0, "errors": []},
            id="another version",
        ),
    ],
)  # fmt: skip
def test_the_schema_refuses(line: dict[str, Any]) -> None:
    """The schema is strict enough to notice a broken contract."""
    assert not LINES.is_valid(line)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="null"),
        pytest.param("", id="empty"),
        pytest.param({"$base64": "AAECAw=="}, id="binary"),
    ],
)
def test_a_peeked_record_fulfils_the_schema(value: Any) -> None:
    """Records use kcat's names, without a type; null, empty and binary are distinct."""
    record = {"topic": "t", "partition": 0, "offset": 7, "tstype": "create", "ts": -1,
              "headers": [["a", value], ["a", None]], "key": value, "payload": value}  # fmt: skip

    assert LINES.is_valid(record)


def test_a_line_is_ascii() -> None:
    """A line survives every encoding and terminal."""
    line = json_line({"type": "object", "key": "\u202e\x1b\ud800\n"})

    assert '{"type":"object","key":"\\u202e\\u001b\\ud800\\n"}' == line


def test_what_an_error_does_not_know_is_null(told: Any, show: Any) -> None:
    """What an error does not know is null in JSON, never an empty text."""
    each = told("sink,configuration")

    shown = show(each.command, each.events, each.ended(), json=True)

    assert None is json.loads(shown.stdout)["errors"][0]["why"]


def test_progress_says_how_long_it_took(told: Any, show: Any) -> None:
    """Each progress line carries the seconds since the command began."""
    each = told("sink,skipped")

    shown = show(each.command, each.events, each.ended(), json=True)

    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [True] == [0 <= line["seconds"] < 60 for line in lines if line["type"] == "progress"]
