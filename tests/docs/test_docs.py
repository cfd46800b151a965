"""The documentation says all there is, says it as the code has it, and stands on its own."""

import ast
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from kbackup import records
from kbackup.batches import LEAST_BYTES
from kbackup.catalog import merging, reading
from kbackup.cli import root
from kbackup.config.files import FILE_BYTES_MAX
from kbackup.config.foreign_names import REFUSALS
from kbackup.formats import parquet_records
from kbackup.kafka import reader, writer
from kbackup.kafka.reader import CALL_BYTES, ROWS_BYTES
from kbackup.pipeline.rotate import OPEN_FILES
from kbackup.restore.task import SIDE_BY_SIDE, SMALL_BYTES
from kbackup.restore.transaction import TRANSACTION_BYTES, TRANSACTION_RECORDS
from kbackup.runs.following import LONGEST_PAUSE_S
from kbackup.runs.locks import STALE_S
from kbackup.runs.metrics import FRESH_S
from kbackup.runs.report import LONG_S
from kbackup.sink.follow import PAUSES
from kbackup.sink.job import SinkJob

CHECKOUT = Path(__file__).parents[2]
DOCS = CHECKOUT / "docs"
REFERENCE = DOCS / "reference"
ROOT_PAGES = [CHECKOUT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
EXAMPLES = sorted(path for path in (CHECKOUT / "examples").rglob("*") if path.is_file())
PAGES = [*ROOT_PAGES, CHECKOUT / "examples" / "README.md", *sorted(DOCS.rglob("*.md"))]
MIB = 2**20
WORDS = 39_400
"""How many words the documentation may have, decisions and benchmarks left out."""
TRANSACTION = [TRANSACTION_RECORDS, TRANSACTION_BYTES / MIB]
LEAST_KIB = [bound / 1024 for bound in LEAST_BYTES]
SPOOL_BYTES = inspect.signature(SinkJob).parameters["spool_bytes"].default


def generator() -> ModuleType:
    """Load the script that writes the generated parts."""
    spec = spec_from_file_location("docs_generate", DOCS / "_generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_what_is_to_be_installed_is_this_project() -> None:
    """Whoever follows an advice to install kbackup, or an extra of it, gets no other project's."""
    own = tomllib.loads(text(CHECKOUT / "pyproject.toml"))["project"]["name"]
    places = [*PAGES, *EXAMPLES, CHECKOUT / "pyproject.toml", *CHECKOUT.glob("kbackup/**/*.py")]
    needed = r"dependencies = \[.*?\b(kbackup[a-z_-]*)\b"
    extras_and_wheels = r"\b(kbackup[a-z_-]*)(?=\[[a-z,]+\]|-[*\d][^ ]*\.whl)"
    named = re.compile(
        rf"{extras_and_wheels}|{needed}|pip install [^\n`]*?(?<![./])\b(kbackup[\w-]*)"
    )

    found = {
        (place.name, name)
        for place in places
        for match in named.finditer(text(place))
        if (name := (match[1] or match[2] or match[3]).replace("_", "-")) != own
    }

    assert not found


def test_contributing_has_the_linters_layers() -> None:
    """The layers in CONTRIBUTING.md are the linter's, line by line."""
    contracts = tomllib.loads(text(CHECKOUT / "pyproject.toml"))["tool"]["importlinter"]
    ours = next(
        each["layers"] for each in contracts["contracts"] if each["name"] == "imports go one way"
    )
    section = text(CHECKOUT / "CONTRIBUTING.md").partition("## Layers")[2]

    written = next(code_blocks(section)).splitlines()

    assert [line.replace("kbackup.", "") for line in ours] == [
        re.split(r"\s{2,}", line)[0] for line in written
    ]


def test_the_architecture_names_files_that_are_there() -> None:
    """Each file that the page on the architecture names is in the package."""
    page = text(DOCS / "explanation" / "architecture.md")

    assert [] == [each for each in re.findall(r"`(\w+/\w+[.]py)`", page)
                  if not (CHECKOUT / "kbackup" / each).exists()]  # fmt: skip


STEPS = re.findall(
    r"^\| [\w ]+ \| `([\w/]+[.]py)` \| (`[^|]+`) \|",
    text(DOCS / "explanation" / "architecture.md"),
    re.MULTILINE,
)  # fmt: skip


@pytest.mark.parametrize(("file", "functions"), [*dict.fromkeys(STEPS)])
def test_each_step_of_a_batch_is_where_the_architecture_says(file: str, functions: str) -> None:
    """The functions that the walk through a sink and a restore names are in the files it names."""
    tree = ast.parse(text(CHECKOUT / "kbackup" / file))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    for dotted in re.findall(r"`([\w.]+)`", functions):
        owner, _, function = dotted.rpartition(".")
        body = classes[owner].body if owner else tree.body
        named = (ast.ClassDef, ast.FunctionDef)
        assert function in {node.name for node in body if isinstance(node, named)}


def test_the_walk_has_all_steps() -> None:
    """Both directions are walked, so the check of the steps checks something."""
    assert {"sink/task.py", "restore/task.py"} <= {file for file, _ in STEPS}
    assert len(STEPS) > 20


def test_the_glossary_is_short_and_in_order() -> None:
    """At most 40 words have a meaning of their own."""
    terms = re.findall(r"^\| ([a-z ]+) \|", text(DOCS / "concepts.md"), re.MULTILINE)[1:]

    assert sorted(terms) == terms
    assert 25 < len(terms) <= 40


def name(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def code_blocks(page: str) -> Iterator[str]:
    """Yield what stands between fences, indented or not, continued lines joined."""
    for _, _, body in re.findall(r"^( *)```(\w*)\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE):
        yield re.sub(r"\\\n\s*", " ", body)


def command_lines(page: str) -> Iterator[str]:
    """Yield every ``kbackup ...`` that is shown to be typed."""
    for block in code_blocks(page):
        for line in block.splitlines():
            found = re.search(r"(?:^|[\s/])kbackup (?=[a-z-])(.*)", line.replace(r"\%", "%"))
            if found is not None and not re.match(r"\s*(#|Usage|\d+ (?!\d)|[A-Z])", line):
                yield found[1]


def words(line: str) -> list[str]:
    """Split a command line as a shell does, up to a comment, a pipe or a redirection."""
    split = shlex.shlex(line.replace("$(date +%u)", "1"), posix=True, punctuation_chars=";|&>")
    split.whitespace_split = True
    found = []
    for word in split:
        if set(word) <= set(";|&>"):
            break
        found.append(word)
    return found


GENERATOR = generator()
LINES = [(name(page), line) for page in PAGES for line in command_lines(text(page))]


@pytest.mark.parametrize("page", [str(path.relative_to(DOCS)) for path in GENERATOR.pages()])
def test_generated_parts_are_up_to_date(page: str) -> None:
    """What the reference says of commands, properties, codes and lines is what the code says."""
    found = text(DOCS / page)

    assert GENERATOR.generated(found) == found, "run python docs/_generate.py"


@pytest.mark.parametrize("part", list(GENERATOR.PARTS))
def test_each_generated_part_has_its_place(part: str) -> None:
    """Every generated part appears on a page."""
    pages = "".join(text(path) for path in GENERATOR.pages())

    assert 1 == pages.count(f"<!-- generated: {part} -->")


@pytest.mark.parametrize(
    "context", [pytest.param(found, id=found.command_path) for found, _ in GENERATOR.leaves()]
)
def test_each_command_and_its_options_are_mentioned(context: Any) -> None:
    """Every command is documented, with its options, or the properties whose names these follow."""
    page = text(REFERENCE / "commands.md")
    properties = {found.attribute: found for found in GENERATOR.PROPERTIES}

    assert f"## {context.command_path}\n" in page
    for parameter in GENERATOR.documented(context.command):
        found = properties.get(parameter.name)
        named = page if found is None else row(found)
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert (
                not option.startswith("-")
                or (found is not None and option in GENERATOR.by_rule(found))
                or f"`{option}`" in named
            )


ROWS = dict(re.findall(r"^[|]`([^`]+)`([|].*)", text(REFERENCE / "configuration.md"), re.MULTILINE))


def row(found: Any) -> str:
    """Return the line of the table that is about a property."""
    return str(ROWS[GENERATOR.table_name(found)])


@pytest.mark.parametrize(
    "found", [pytest.param(each, id=each.name) for each in GENERATOR.PROPERTIES]
)
def test_each_property_is_mentioned_with_its_variable(found: Any) -> None:
    """Every property can be looked up by name; its variable follows from it, or is named."""
    rule = "KBACKUP_" + found.name.upper().replace(".", "_")

    assert {rule} == {found.variable}
    assert [] == [name for name in found.other_variables if f"`{name}`" not in row(found)]


def exit_codes() -> list[int]:
    return sorted({kind.exit_code for kind in GENERATOR.errors().values()} | {0})


@pytest.mark.parametrize("code", exit_codes())
def test_each_exit_code_has_a_meaning_and_a_remedy(code: int) -> None:
    """Every exit code is documented with its meaning and its remedy."""
    assert re.search(rf"^\| {code} \|", text(DOCS / "troubleshoot.md"), re.MULTILINE)
    remedies = text(DOCS / "troubleshoot.md")
    assert re.search(rf"^## {code}\b", remedies, re.MULTILINE)


def line_types() -> list[str]:
    schema = json.loads(text(CHECKOUT / "kbackup" / "cli" / "json_schema.json"))
    return [each["$ref"].rpartition("/")[2] for each in schema["then"]["oneOf"]]


def constants() -> dict[str, str]:
    """Return the texts that modules of the package give a name in capitals."""
    named = re.compile(r'^([A-Z_]+): Final = "([a-z0-9_]+)"$', re.MULTILINE)
    pages = map(text, sorted((CHECKOUT / "kbackup").rglob("*.py")))
    return {match[1]: match[2] for page in pages for match in named.finditer(page)}


CONSTANTS = constants()


def literals(*names: str) -> set[str]:
    """Return the first arguments of calls of *names* in the package, literal or constants."""
    found = set()
    called_in = re.compile(rf"\b(?:{'|'.join(names)})\(")
    for path in sorted((CHECKOUT / "kbackup").rglob("*.py")):
        if not called_in.search(text(path)):
            continue  # each process that runs tests asks this, before the first of them
        for node in ast.walk(ast.parse(text(path))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            first = node.args[0]
            if called in names and isinstance(first, ast.Constant) and isinstance(first.value, str):
                found |= {first.value} if re.fullmatch(r"[a-z0-9_]+", first.value) else set()
            if called in names and isinstance(first, ast.Name) and first.id in CONSTANTS:
                found.add(CONSTANTS[first.id])
    return found


_REFUSED = [GENERATOR.BOTH.sub("*", each.name) for each in REFUSALS if each.is_built_in]
MENTIONED: dict[str, tuple[str, str, Iterable[str]]] = {
    "refused property": ("reference/configuration", "`{}`", _REFUSED),
    "error code": ("troubleshoot", "| `{}` |", GENERATOR.errors()),
    "type of JSON line": ("reference/json-lines", "### {}\n", [*line_types(), "record"]),
    "warning": ("reference/json-lines", "`{}`", literals("warn")),
    "reason for exit code 3": ("troubleshoot", "`{}`", literals("skip")),
    "finding of verify": ("reference/json-lines", "|`{}`|", literals("Finding", "_problem")),
}
"""What can be looked up: on which page, how it stands there, and all that there is of it."""


@pytest.mark.parametrize(
    ("page", "said"),
    [
        pytest.param(page, form.format(name), id=f"{kind}: {name}")
        for kind, (page, form, names) in MENTIONED.items()
        for name in sorted(names)
    ],
)
def test_each_is_mentioned(page: str, said: str) -> None:
    """Every property that is refused, code, type of line, warning and finding is documented."""
    assert said in text(DOCS / f"{page}.md")


@pytest.mark.parametrize(
    ("said", "value"),
    [
        pytest.param("these: fetched ahead | {} MiB", reader.QUEUE_KIB / 1024, id="a"),
        pytest.param("one call to the client | {} MiB +", ROWS_BYTES / MIB, id="batch"),
        pytest.param("one call to the client | 4 MiB + {}", CALL_BYTES / MIB, id="call"),
        pytest.param("for each view | {} MiB and one", parquet_records.BYTES / MIB, id="row group"),
        pytest.param("for each view | 2 \u00d7 {} MiB", SPOOL_BYTES / MIB, id="spool"),
        pytest.param("rows of each | {} MiB", parquet_records.READ_BYTES / MIB, id="read"),
        pytest.param("headers, decoded | {} MiB", reading.HELD_BYTES / MIB, id="held"),
        pytest.param("what is read ahead | {} \u00d7 16", records.DEPTH + 1, id="ahead"),
        pytest.param("what is read ahead | 3 \u00d7 {} MiB", merging.WOVEN_BYTES / MIB, id="woven"),
        pytest.param(
            "not yet acknowledged | {} MiB to one",
            writer.BATCHES * writer.BATCH_BYTES / MIB,
            id="sent",
        ),
        pytest.param("partition, {} MiB to several", writer.SPREAD_BYTES / MIB, id="spread"),
        pytest.param("{} partitions of at most", SIDE_BY_SIDE, id="side by side"),
        pytest.param("of at most {} KiB are restored", SMALL_BYTES / 1024, id="small"),
    ],
)
def test_the_memory_formula_has_the_numbers_of_the_code(said: str, value: float) -> None:
    """The memory formula in the documentation uses the constants in the code."""
    assert said.format(int(value)) in text(DOCS / "explanation" / "architecture.md")


@pytest.mark.parametrize(
    ("page", "said", "values"),
    [
        ("explanation/guarantees", "{:,} records or {} MiB", TRANSACTION),
        ("explanation/guarantees", "after {} minutes, sink, restore", [LONG_S / 60]),
        ("explanation/guarantees", "elsewhere after five minutes", [STALE_S == 300]),
        ("troubleshoot", "for more than {} minutes", [LONG_S / 60]),
        ("how-to/schedule", "1 s to {} min after a fault", [LONGEST_PAUSE_S / 60]),
        ("how-to/schedule", "{} min to 1 h otherwise", [PAUSES.first_rare_s / 60]),
        ("how-to/large-backups", "At most {} are open", [OPEN_FILES]),
        ("how-to/large-backups", "of {} KiB and more, or {} KiB", LEAST_KIB),
        ("reference/metrics", "at most {} seconds old", [FRESH_S]),
        ("reference/configuration", "A file above {} MB", [FILE_BYTES_MAX / 1_000_000]),
    ],
)
def test_a_number_in_a_sentence_is_the_codes(page: str, said: str, values: Sequence[float]) -> None:
    """What an operator counts on, such as when a dead run's lock is free, is what the code does."""
    assert all(values)
    assert said.format(*map(int, values)) in " ".join(text(DOCS / f"{page}.md").split())


@pytest.mark.parametrize(
    "line", [pytest.param(line, id=f"{page}: kbackup {line[:50]}") for page, line in LINES]
)
def test_each_command_line_is_one_that_kbackup_takes(line: str) -> None:
    """Every command line in the documentation is accepted by kbackup."""
    result = CliRunner().invoke(root, [*words(line), "--help"], prog_name="kbackup")

    assert 0 == result.exit_code, result.output


def spans() -> Iterator[tuple[str, str]]:
    """Yield what stands in backquotes on a page that is not generated from the names."""
    for page in [CHECKOUT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        if page.stem not in ("benchmarks", "plugins", "commands", "configuration"):
            prose = re.sub(r"^ *```.*?^ *```", "", text(page), flags=re.DOTALL | re.MULTILINE)
            yield from ((name(page), span) for span in re.findall(r"`([^`\n]+)`", prose))


SPANS = sorted(set(spans()))


def test_each_option_that_is_named_is_one() -> None:
    """Every option that a page names is one of kbackup's."""
    options = {
        option
        for _, command in GENERATOR.leaves()
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }

    named = {
        (page, option) for page, span in SPANS for option in re.findall(r"^--[a-z][a-z0-9-]*", span)
    }
    assert len(named) > 40
    assert set() == {(page, option) for page, option in named if option not in options}


def test_each_file_that_is_named_is_there() -> None:
    """Every file of the checkout that a page names exists."""
    files = {
        (page, span)
        for page, span in SPANS
        if re.fullmatch(r"(?:examples|kbackup|tests|docs)/[\w./-]+", span)
    }

    assert len(files) > 5
    assert set() == {(page, file) for page, file in files if not (CHECKOUT / file).exists()}


def test_each_property_that_is_named_is_known() -> None:
    """Every property that a page names is one that kbackup takes, or refuses by name."""
    known = {
        *(each for found in GENERATOR.PROPERTIES for each in (found.name, *found.aliases)),
        *(refusal.name for refusal in REFUSALS),
        *(GENERATOR.BOTH.sub("*", found.name) for found in GENERATOR.PROPERTIES),
    }
    firsts = {name.split(".")[0] for name in known if "." in name}
    named = {
        (page, span.partition("=")[0])
        for page, span in SPANS
        if re.match(r"[a-z0-9_*]+([.][a-z0-9_]+)+(?:=|$)", span)
        and span.split(".")[0] in firsts
        and not OF_OTHERS.match(span)
        and page != "docs/reference/transforms.md"
    }

    assert len(named) > 40
    assert set() == {(page, found) for page, found in named if found not in known}


OF_OTHERS = re.compile(
    r"(?:sasl|ssl|spark|connect)[.]|max[.](?:message[.]bytes|retries)$|headers[.]list|"
    r"consumer[.]override[.]client[.]rack|format[.]output|store[.]envelope"
)
"""Names of librdkafka, Spark, topics, other tools' sinks, and columns."""


def test_the_documentation_shows_command_lines() -> None:
    """The documentation shows command lines, so the check of them checks something."""
    assert {"README.md", "docs/how-to/schedule.md"} <= {page for page, _ in LINES}


def test_the_readme_begins_with_two_lines_that_set_up_everything() -> None:
    """The README opens with two lines that run the demo and the test suite."""
    lines = [line for line in text(CHECKOUT / "README.md").splitlines() if " -m venv " in line]

    assert [
        "python3 -m venv .venv && .venv/bin/pip install -q '.[demo]' && .venv/bin/kbackup demo",
        "python3 -m venv .venv && .venv/bin/pip install -q -e '.[dev]' && .venv/bin/nox -s ci",
    ] == lines[:2]


def test_the_documentation_can_be_read() -> None:
    """README and documentation have no more words than they may, as ``wc -w`` counts."""
    left_out = {DOCS / "reference" / "benchmarks.md", DOCS / "decisions" / "index.md"}
    pages = {CHECKOUT / "README.md", *DOCS.rglob("*.md")} - left_out

    assert sum(len(text(page).split()) for page in pages) <= WORDS


def test_each_decision_is_short() -> None:
    """A decision has at most 70 words, with its heading."""
    told = re.split(r"\n\n(?=\*\*\d+\.)", text(DOCS / "decisions" / "index.md").strip())[1:]

    assert len(told) > 20
    assert [] == [decision for decision in told if len(decision.split()) > 70]


def test_the_table_of_contents_holds() -> None:
    """Every page of the documentation is in its table of contents."""
    linked = set(re.findall(r"\]\(([^)]+)\)", text(DOCS / "index.md")))

    assert {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"index.md"} == linked


@pytest.mark.parametrize("page", [name(path) for path in PAGES[:4]])
def test_links_outside_of_the_site_lead_somewhere(page: str) -> None:
    """A link in the README works in the checkout."""
    path = CHECKOUT / page
    targets = re.findall(r"\]\(([^)#\s]+)", text(path))

    relative = [target for target in targets if not target.startswith("https://")]
    assert [] == [target for target in relative if not (path.parent / target).exists()]


@pytest.mark.parametrize("page", [name(path) for path in [*PAGES, *EXAMPLES]])
def test_nothing_of_one_machine_is_in_the_documentation(page: str) -> None:
    """No page names a path, or a host, that only one machine has."""
    own = re.compile(r"(?<![\w.])/(?:work|home|root|Users)/|/tmp/|pypi\.|pythonhosted|maven\.org")

    assert [] == own.findall(text(CHECKOUT / page))
