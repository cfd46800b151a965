"""Configurations for the connectors: a few of each kind here, and a collection from life.

The collection, which people wrote and published, is read where it is beside the checkout.
"""

import json
import re
from pathlib import Path

import pytest

from tests.conformance.product import ConfigurationError, files, loading, variable

OURS = sorted((Path(__file__).parent / "configs").iterdir())
FOLDER = Path(__file__).parents[2] / ".." / "shared" / "interop" / "configs"
COLLECTION = sorted(FOLDER.glob("[0-9]*-*.*"))
RUNNABLE = {
    "block-gzip-sink.properties",
    "bytes-sink.properties",
    "credentials-sink.properties",
    "json-sink.json",
    "source.json",
    "006-source.json",
    "008-sink.json",
    "014-sink.json",
    "015-sink.json",
    "016-sink.json",
    "017-sink.json",
    "018-sink.json",
    "019-sink.json",
    "023-sink.json",
    "024-sink.json",
    "025-sink.json",
    "027-sink.properties",
    "029-sink.json",
    "030-sink.json",
    "034-sink.json",
    "037-source.json",
    "040-sink.json",
    "045-sink.json",
    "071-sink.json",
}

PLACES = {"s3.bucket.name", "topics", "topics.dir", "store.url", "s3.region"}

OWN_NAMES = {"schema.registry.url", "schema.registry.basic.auth.user.info"}
"""Names that no connector has but kbackup does: the registry whose schemas a backup keeps."""

EACH = pytest.mark.parametrize("path", OURS + COLLECTION, ids=lambda path: path.name)


def _unknown_names() -> set[str]:
    """The names that neither a connector nor kbackup knows, here and in the collection's table."""
    ours = {"task.max", "s3.schema.compatibility", "flush.sise"}
    if not COLLECTION:
        return ours
    text = (FOLDER / "frequency.md").read_text()
    table = re.findall(r"^\| `([^`]+)` \|[^|]+\|[^|]+\| \*\*unknown", text, re.MULTILINE)
    return ours.union(table) - OWN_NAMES


def test_every_kind_of_configuration_is_there() -> None:
    """The parameters are not empty, so the tests below really test something."""
    assert (7, True) == (len(OURS), len(COLLECTION) in (0, 72))


@EACH
def test_unknown_names_are_reported_once_each(path: Path) -> None:
    """A property that no connector has is reported, with a real one where that is like it."""
    names = {entry.name for entry in files.read(path)}
    doubts = [doubt for doubt in loading.check([path], {}).issues if doubt.code == "unknown_name"]

    assert sorted(names & _unknown_names()) == sorted(doubt.name for doubt in doubts)
    advice = ("known name is", "did you mean", "kbackup config show --all lists all names")
    assert all(any(words in doubt.do for words in advice) for doubt in doubts)


@EACH
def test_what_a_connector_ignores_is_no_error(path: Path) -> None:
    """An unknown name is a warning in a connector's file, but for a slip of kbackup's own name."""
    doubts = [doubt for doubt in loading.check([path], {}).issues if doubt.code == "unknown_name"]

    errors = {doubt.name for doubt in doubts if doubt.level == "error"}
    assert ({"flush.sise"} if path.name == "unknown-names-sink.properties" else set()) == errors


@EACH
def test_placeholders_are_reported_as_unresolved(path: Path) -> None:
    """An unresolved placeholder is never a bucket's name; where it is not read, it is a warning."""
    expected = {
        entry.name.replace("s3.credentials.provider.aws.", "aws.")
        for entry in files.read(path)
        if re.search(r"(^|\.)\$[A-Za-z_]|<[A-Z]|\$\{\w+\}", entry.text)
    }
    doubts = loading.check([path], {}).issues
    found = [doubt for doubt in doubts if doubt.code == "placeholder"]
    unread = [doubt.name for doubt in doubts if doubt.code in ("no_effect", "unknown_name")]
    idle = {name for names in unread for name in names.split(", ")}

    assert sorted(expected) == sorted(doubt.name for doubt in found)
    errors = {doubt.name for doubt in found if doubt.level == "error"}
    assert errors.isdisjoint(idle)
    assert PLACES & expected <= errors | idle


@EACH
def test_no_credential_is_repeated(path: Path) -> None:
    """No message about a file repeats its credentials."""
    text = json.dumps([str(doubt) for doubt in loading.check([path], {}).issues])

    assert "REDACTED" not in text


@EACH
@pytest.mark.parametrize("command", ["sink", "restore"])
def test_a_run_with_it_is_a_configuration_or_an_error_of_one(
    path: Path, command: loading.Command
) -> None:
    """Every file either runs or is refused with a reason."""
    exit_code = 0
    try:
        loading.load(command, options={"bootstrap_servers": "h:1"}, files=[path], environ={})
    except ConfigurationError as error:
        exit_code = error.exit_code

    assert exit_code in (0, 2)


PLACEHOLDER = re.compile(r"(^|\.)\$[A-Za-z_]|<[A-Z]|\$\{[\w:./-]+\}|^SCHEMA_REGISTRY$")
FILLED_IN = {
    "store.url": "http://localhost:9000",
    "timezone": "UTC",
    "schema.registry.url": "http://registry:8081",
    "value.converter.schema.registry.url": "http://registry:8081",
}
SCHEMATIC = ("AvroFormat", "ParquetFormat")
"""Formats that need schemas: where a file leaves the converter to its worker, it leaves the
registry to it too, which then has to be given."""
RUN_AT_LEAST = 51
"""Sinks of the collection's 62 that run once their placeholders are filled in."""


def filled_in(path: Path) -> dict[str, str]:
    """Return a configuration with something sensible in the place of each placeholder."""
    found = {entry.name: entry.text for entry in files.read(path)}
    for name, text in found.items():
        if name.endswith("basic.auth.user.info"):  # what stands there is no user:password
            found[name] = "user:password"
        elif PLACEHOLDER.search(text):
            is_number = name.endswith((".ms", ".size", "tasks.max"))
            found[name] = "6000000" if is_number else FILLED_IN.get(name, "filled-in")
    return found


@pytest.mark.skipif(not COLLECTION, reason="the collection is not beside the checkout")
def test_each_sink_of_the_collection_runs_or_names_what_it_is_refused_for(tmp_path: Path) -> None:
    """A refusal is of a property that the file has, or that it lacks; the table says which (-s)."""
    runs, table = [], {}
    for path in COLLECTION:
        if "-sink" not in path.name:
            continue
        given = filled_in(path)
        whole = tmp_path / "connector.json"
        whole.write_text(json.dumps(given))
        options = {"s3.bucket.name": "b", "topics": "t", "flush.size": "3"}
        if "value.converter" not in given and given.get("format.class", "").endswith(SCHEMATIC):
            options["value.converter.schema.registry.url"] = "http://registry:8081"
        missing = {
            variable(name): value
            for name, value in options.items()
            if name not in given and f"{name}.regex" not in given
        }
        doubts = [
            doubt for doubt in loading.check([whole], missing).issues if doubt.level == "error"
        ]
        table[path.name] = sorted({doubt.name for doubt in doubts})
        assert all(doubt.name and doubt.why for doubt in doubts)
        runs += [path.name] * (not doubts)

    for name, refused in table.items():
        print(f"{name:24} {', '.join(refused) or 'runs'}")  # noqa: T201
    assert len(runs) >= RUN_AT_LEAST


@EACH
def test_what_this_version_can_do_is_accepted(path: Path) -> None:
    """A configuration without a special S3 request header runs unchanged, transforms included."""
    has_error = any(doubt.level == "error" for doubt in loading.check([path], {}).issues)

    assert has_error != (path.name in RUNNABLE)
