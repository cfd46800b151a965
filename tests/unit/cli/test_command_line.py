"""The command line as a whole: its words, options, help and imports."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from kbackup.catalog import identity
from kbackup.cli import main, root
from kbackup.cli.options import GroupedCommand
from kbackup.config import PROPERTIES
from kbackup.naming import Layout
from tests.support.invoked import invoke
from tests.support.json_lines import LINES

POOL = "ARROW_DEFAULT_MEMORY_POOL"
HEAVY = ("pyspark", "py4j", "boto3", "botocore", "confluent_kafka", "moto")

EACH = """\
import json, sys
def refuse(event, args):
    if event in ("socket.connect", "socket.bind"):
        raise RuntimeError(f"{event} {args}")
sys.addaudithook(refuse)
from kbackup.cli import main
heavy, lines, found = *map(json.loads, sys.argv[1:]), []
for words in lines:
    sys.argv = ["kbackup", *words]
    try:
        main()
    except SystemExit as end:
        found.append([end.code, [name for name in heavy if name in sys.modules]])
print(json.dumps(found))
"""
"""Runs one command after the other, none of which may open a connection; its last line: of each
the exit code, and the packages that had been imported by then."""


def commands(
    command: click.Command = root, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command with the words that call it."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            found = command.get_command(context, word)
            assert found is not None
            yield from commands(found, (*words, word))


ALL = dict(commands())


def ran(*lines: Sequence[str]) -> list[list[object]]:
    """Return exit code and heavy packages of commands that run in a process of their own."""
    line = [sys.executable, "-c", EACH, json.dumps(HEAVY), json.dumps(lines)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    found: list[list[object]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_help_imports_no_client_and_connects_to_nothing() -> None:
    """Every help page works, whatever is installed, broken or unreachable."""
    found = ran(*((*words, "--help") for words in ALL))

    assert {words: [0, []] for words in ALL} == dict(zip(ALL, found, strict=True))


@pytest.mark.parametrize("words", [(), ("sink",), ("restore",), ("doctor",)], ids=" ".join)
def test_help_takes_less_than_a_second(words: tuple[str, ...]) -> None:
    """Help is fast, by processor time, the least of three: a busy machine makes it seem slow."""
    took = []
    # what is installed is compiled, at the latest by the first of them
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(3):
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "kbackup", *words, "--help"], capture_output=True, check=True,
            env=environment,
        )  # fmt: skip
        after = os.times()
        took.append(
            after.children_user
            - before.children_user
            + (after.children_system - before.children_system)
        )

    assert min(took) < 1


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--version"], id="version"),
        pytest.param(["plugins"], id="plugins"),
        pytest.param(["config", "show", "--all", "-f", "json"], id="config show"),
        pytest.param(["config", "check"], id="config check"),
    ],
)
def test_commands_that_look_import_no_spark(words: list[str]) -> None:
    """Commands that only look import no Spark."""
    loads = ["confluent_kafka"] if words == ["--version"] else []  # for its C library

    assert [[0, loads]] == ran(words)


@pytest.mark.parametrize(
    ("given", "taken"),
    [pytest.param({}, "system", id="ours"), pytest.param({POOL: "mimalloc"}, "mimalloc", id="own")],
)
def test_arrow_gives_memory_back_unless_another_pool_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], taken: str
) -> None:
    """The driver, and the workers it starts, take memory from the C library."""
    monkeypatch.setattr(os, "environ", {**given})
    monkeypatch.setattr(sys, "argv", ["kbackup", "--version"])

    with pytest.raises(SystemExit):
        main()

    assert taken == os.environ[POOL]


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        pytest.param(["snik"], "did you mean kbackup sink?", id="command"),
        pytest.param(["sink", "staus"], "did you mean kbackup sink status?", id="subcommand"),
        pytest.param(
            ["restore", "verfy"], "did you mean kbackup restore verify?", id="subcommand of restore"
        ),
        pytest.param(
            ["config", "shwo"], "did you mean kbackup config show?", id="subcommand of config"
        ),
        pytest.param(
            ["sink", "orders"],
            "knows: run, status, repair, reindex, accept, expire, copy, abort-uploads, ddl",
            id="no word is taken for a topic",
        ),
        pytest.param(
            ["sink", "orders"], "do: if it is a topic: kbackup sink -t orders; else", id="topic"
        ),
        pytest.param(["sink", "verify"], "did you mean kbackup restore verify?", id="other group"),
        pytest.param(["help"], "did you mean kbackup --help?", id="help as a word"),
        pytest.param(["restore", "-h"], "did you mean --help?", id="help in one letter"),
        pytest.param(["sink", "--flush-sise", "1"], "did you mean --flush-size?", id="option"),
        pytest.param(
            ["restore", "--rename-regx", "x"], "did you mean --rename-regex?", id="of restore"
        ),
        pytest.param(["doctor", "--write-prob"], "did you mean --write-probe?", id="own option"),
        pytest.param(
            ["sink", "ddl", "--dialect", "hive"],
            "kbackup sink ddl --help-all lists what it has",
            id="near by its dashes alone",
        ),
        pytest.param(
            ["restore", "list", "--part", "1/7"],
            "why: it is an option of kbackup restore verify do: kbackup restore list --help",
            id="of another command",
        ),
        pytest.param(
            ["sink", "--deep"],
            "option of kbackup restore list and kbackup restore verify do: kbackup sink run --help",
            id="of two others",
        ),
        pytest.param(
            ["sink", "reindex", "--dry-run"],
            "option of kbackup sink run, kbackup sink repair, kbackup sink expire and 9 more do:",
            id="of many others",
        ),
        pytest.param(
            ["sink", "status", "--flush-size", "3"],
            "may stay in a configuration file do: kbackup sink status --help",
            id="a property of others",
        ),
    ],
)
def test_a_mistyped_word_or_option_is_suggested(words: list[str], suggested: str) -> None:
    """A mistyped command or option is answered with the nearest one, and nothing is started."""
    result = invoke(*words)

    assert (2, "") == (result.code, result.stdout)
    assert suggested in " ".join(result.stderr.split())


@pytest.mark.parametrize(("words", "why"), [
    (["demo", "--records", "0"], "0 is less than 1000"),
    (["restore", "cat", "orders", "-c", "0"], "0 is not between 1 and 2147483647"),
    (["restore", "cat", "orders", "-c", "ten"], "'ten' is not a whole number"),
])  # fmt: skip
def test_a_range_is_said_in_words(words: list[str], why: str) -> None:
    """Neither errors nor help have inequalities."""
    assert f"why: {why}" in invoke(*words).stderr
    assert "x>=" not in invoke(*words[:-1], "--help-all").stdout


MISTYPED = [
    pytest.param(["snik"], "kbackup", id="command"),
    pytest.param(["restore", "verfy"], "restore", id="subcommand"),
    pytest.param(["sink", "--flush-sise", "1"], "sink", id="option"),
    pytest.param(["sink", "run", "orders"], "sink", id="a word too many"),
    pytest.param(["restore", "list", "--part", "1/7"], "restore list", id="of another command"),
    pytest.param(["restore", "verify", "--kafka-timeout", "1"], "restore verify", id="no effect"),
    pytest.param(
        ["restore", "verify", "--against", "source", "--rename", "a"],
        "restore verify",
        id="no effect on this side",
    ),
    pytest.param(
        ["restore", "access", "--acls", "--passwords", "f"], "restore access", id="no users"
    ),
    pytest.param(["plugins", "--quite"], "plugins", id="output option"),
]
"""Lines that click refuses, and the command that their summary names."""


@pytest.mark.parametrize(("words", "command"), MISTYPED)
def test_a_mistyped_line_has_a_summary_under_json(words: list[str], command: str) -> None:
    """With --json even a mistyped command ends with a summary line."""
    result = invoke(*words, "--json")

    assert [(2, "failed", 2, command)] == [
        (result.code, line["result"], line["exit_code"], line["command"]) for line in result.lines
    ]
    LINES.validate(result.lines[0])


@pytest.mark.parametrize("quiet", [[], ["-q"], ["--json"]], ids=["plain", "quiet", "json"])
@pytest.mark.parametrize(
    "words",
    [
        *(param.values[0] for param in MISTYPED),
        ["restore", "cat"],
        ["restore", "cat", "a", "-c0"],
    ],
    ids=" ".join,
)
def test_a_mistyped_line_is_an_error_in_three_parts(words: list[str], quiet: list[str]) -> None:
    """A usage error has the form of any other: what, why if there is more, and what to do."""
    said = invoke(*words, *quiet).stderr.splitlines()

    heads = [line[:7] for line in said if line[:7] in ("error: ", "  why: ", "  do:  ")]
    assert ("error: ", "  do:  ") == (heads[0], heads[-1])
    assert quiet != [] or said[-1].startswith("exit 2: ")
    assert quiet == [] or "exit 2" not in said[-1]


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        (["access", "--acls", "--passwords", "f"], "--passwords"),
        (["groups", "--undo", "5c1e", "billing"], "billing"),
        (["groups", "--undo", "5c1e", "--where", "a:0@1"], "--where"),
        (["drill", "--check", "--rto", "1h", "--sign", "f"], "--rto, --sign"),
        (["drill", "--public-key", "f"], "--public-key"),
    ],
)
def test_what_another_option_leaves_without_effect_is_refused(words: list[str], idle: str) -> None:
    """Who names one group beside --undo does not want all of that run to be set back."""
    result = invoke("restore", *words, "-b", "b", "-k", "h:1")

    assert 2 == result.code
    assert f"error: {idle}: without effect here" in result.stderr


@pytest.mark.parametrize(
    "words", [["list", "--html"], ["drill", "--sign"], ["access", "--passwords"]]
)
def test_a_file_without_a_name_is_refused(words: list[str]) -> None:
    """An unset shell variable leaves one: a page was to be written over the folder."""
    result = invoke("restore", *words, "")

    assert 2 == result.code
    assert "why: it is empty" in result.stderr


def test_an_option_without_its_value_is_of_the_command_that_was_typed() -> None:
    """If a command line ends too early, the command is recognised by its first words."""
    line = invoke("restore", "verify", "--json", "--part").lines[-1]

    assert ("restore verify", 2) == (line["command"], line["exit_code"])


def test_a_mistyped_line_reaches_the_summary_file(tmp_path: Path) -> None:
    """A monitor that reads the file alone learns that nothing ran."""
    place = tmp_path / "summary.json"

    invoke("sink", "--flush-sise", "1", f"--summary-file={place}")

    assert ("failed", 2) == tuple(json.loads(place.read_text())[n] for n in ("result", "exit_code"))


@pytest.mark.parametrize("command", ["sink", "restore"])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--config", "missing.properties"], id="file"),
        pytest.param(["--kafka-timeout", "soon", "-k", "h:1"], id="wrong value"),
    ],
)
def test_run_is_what_is_meant_when_no_word_is_given(command: str, options: list[str]) -> None:
    """``kbackup sink --config f`` is ``kbackup sink run --config f``."""
    assert invoke(command, "run", *options) == invoke(command, *options)


@pytest.mark.parametrize(("command", "is_help"), [("sink", False), ("restore", True)])
def test_a_restore_takes_more_than_its_name(command: str, is_help: bool) -> None:
    """What the environment configures would be restored, all of it: the help is shown instead."""
    shown = invoke(command, KBACKUP_CONFIG="missing.properties")

    assert (2, is_help) == (shown.code, "Usage: kbackup restore" in shown.stdout + shown.stderr)


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        pytest.param([], "kbackup COMMAND [OPTIONS]", id="kbackup"),
        pytest.param(["sink"], "kbackup sink [COMMAND] [OPTIONS]", id="sink"),
        pytest.param(["restore"], "kbackup restore [COMMAND] [OPTIONS]", id="restore"),
        pytest.param(["sink", "-k", "h:1"], "kbackup sink run [OPTIONS]", id="after an option"),
        pytest.param(["config"], "kbackup config COMMAND [OPTIONS]", id="config"),
    ],
)
def test_the_usage_line_can_be_typed(words: list[str], usage: str) -> None:
    """Help shows the words in the order in which they are taken."""
    shown = " ".join(invoke(*words, "--help").stdout.partition("\n\n")[0].split())
    assert f"Usage: {usage}" == shown


HELP_LINES_MAX = 45
COLUMNS = 80


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "kbackup")
def test_help_fits_a_screen(words: tuple[str, ...]) -> None:
    """No help is longer than a screen, and no line wider."""
    lines = invoke(*words, "--help", COLUMNS=str(COLUMNS)).stdout.splitlines()

    assert len(lines) <= HELP_LINES_MAX
    assert [] == [line for line in lines if len(line) > COLUMNS]


CHOSEN = {
    words: command
    for words, command in ALL.items()
    if isinstance(command, GroupedCommand) and command.common
}


@pytest.mark.parametrize("words", CHOSEN, ids=" ".join)
def test_help_shows_what_people_use_most_used_first(words: tuple[str, ...]) -> None:
    """A help has 12 to 25 options; those that nearly every line has stand at its top."""
    shown = [each.opts[0] for each in CHOSEN[words].options()]

    assert 12 <= len(shown) <= 25
    assert sorted(set(shown)) == sorted(shown)
    assert "--config" in shown[:3]
    assert "-b" in shown[:5]


@pytest.mark.parametrize("word", ["sink", "restore"])
def test_a_groups_help_shows_its_commands_and_the_options_used_most(word: str) -> None:
    """Who types ``kbackup restore --help`` learns what there is, and how to begin."""
    shown = invoke(word, "--help", COLUMNS="80").stdout

    meant = CHOSEN[word, "run"]
    lines = [each.line.strip() for each in meant.options()[:12]]
    assert [True] * 12 == [line in shown for line in lines]
    assert meant.options()[12].line not in shown
    assert "-t" in next(line for line in shown.splitlines() if line.startswith("  kbackup"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("sink", "run"), "--follow/--once               Run until stopped [off]"),
        (("sink", "run"), "--rotate-interval-ms DURATION  Record time after which a file is"),
        (
            ("restore", "thaw"),
            "--days DAYS                   How many days the objects stay readab",
        ),
        (("doctor",), "--[no-]spark                  Start Spark and run a trial task [on]"),
        (("restore", "query"), "--output table|csv|json|parquet  Format of the result [table]"),
        (("restore", "list"), "--store-url URL               URL of another S3 server"),
        (("sink", "run"), "--summary-file FILE           Write the summary to this file"),
        (("sink", "run"), "-k, --bootstrap-servers LIST  Brokers: HOST:PORT, separated by c"),
        (("demo",), "--keep                        Keep Kafka and S3 running until Ctrl-C [off]"),
    ],
)
def test_an_option_is_one_line_with_its_default(words: tuple[str, ...], line: str) -> None:
    """Defaults are seen, those of flags too."""
    assert line in invoke(*words, "--help", COLUMNS="80").stdout


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "kbackup")
def test_help_all_has_every_option(words: tuple[str, ...]) -> None:
    """What ``--help`` leaves out is found in ``--help-all``, of a group as well."""
    text = invoke(*words, "--help-all", COLUMNS="80").stdout
    shown = set(text.replace(",", " ").replace("--[no-]", "--").split())

    meant = ALL.get((*words, "run"), ALL[words])
    names = {
        name
        for each in meant.params
        if isinstance(each, click.Option) and not each.hidden
        for name in each.opts
    }
    assert set() == names - shown
    assert [] == [line for line in text.splitlines() if len(line) > 80]


def test_help_all_has_the_order_of_the_reference() -> None:
    """Groups of options stand in the order in which the reference describes them."""
    shown = invoke("restore", "run", "--help-all").stdout

    titles = list(dict.fromkeys(found.group for found in PROPERTIES if "restore" in found.commands))
    assert titles == sorted(titles, key=lambda title: shown.index(f"\n{title}:\n"))


def test_converters_and_registries_are_seen_in_help_all_alone() -> None:
    """Hundreds of properties do not stand between people and the twenty that they need."""
    all_of_it = invoke("sink", "run", "--help-all").stdout

    assert set() == {"Converters", "Schema Registry"} & {
        each.group for command in CHOSEN.values() for each in command.options()
    }
    assert "--value-converter-" in all_of_it
    assert "--schema-registry-url" in all_of_it


def test_an_option_has_one_help_text_wherever_it_appears() -> None:
    """An option has the same help text in every command."""
    texts: dict[str, set[str | None]] = defaultdict(set)
    for command in ALL.values():
        for parameter in command.params:
            for name in parameter.opts if isinstance(parameter, click.Option) else ():
                texts[name].add(parameter.help)

    assert {} == {name: found for name, found in texts.items() if len(found) > 1}


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "kbackup")
def test_every_command_says_what_it_does_and_how_it_ends(words: tuple[str, ...]) -> None:
    """Help opens with a sentence, and ends with the exit codes."""
    shown = invoke(*words, "--help")

    paragraphs = [text.strip() for text in shown.stdout.split("\n\n")]
    assert paragraphs[0].startswith("Usage: kbackup")
    assert paragraphs[1].partition("\n")[0][0].isupper()
    assert paragraphs[-1].startswith("Exit: 0 done")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("sink", ("sink", "run")),
        ("sink", ("sink", "repair")),
        ("restore", ("restore", "run")),
        ("doctor", ("doctor",)),
        ("config", ("config", "show")),
    ],
    ids=" ".join,
)
def test_a_command_has_an_option_for_each_of_its_properties(
    command: str, words: tuple[str, ...]
) -> None:
    """What a command uses can be typed; credentials, which would show in ``ps``, cannot."""
    typed = {name for parameter in ALL[words].params for name in parameter.opts}

    mine = [found for found in PROPERTIES if command in found.commands]
    expected = {name.partition("/")[0] for found in mine for name in found.option_names}
    assert expected <= typed
    assert not typed.intersection({"--aws-secret-access-key", "--sasl-password"})


WITHOUT = {
    "sink run": ["--yes", "--behavior-on-error", "--max-record-bytes"],
    "sink status": ["-f", "--behavior-on-error", "--max-record-bytes", "--master", "--yes"],
    "restore list": ["--behavior-on-error", "--master", "--kafka-timeout"],
    "restore verify": ["--flush-size", "--yes"],
    "restore cat": ["-t", "--topics-regex", "--partitions", "--behavior-on-error", "--master"],
}
"""Options that would do nothing."""

WITH = {
    "sink status": ["-t", "--topics-regex", "--partitions", "--max-age"],
    "restore list": ["-f", "-t", "--topics-regex", "--partitions"],
    "restore verify": ["-f", "--master", "--spark-conf", "--stop-timeout", "--partitions"],
    "restore cat": ["-f", "--value-converter"],
}


@pytest.mark.parametrize("words", WITHOUT)
def test_a_command_has_no_option_that_does_nothing(words: str) -> None:
    """A command refuses options that it does not use; in a file they may serve other commands."""
    command = ALL[tuple(words.split())]
    typed = {name for parameter in command.params for name in parameter.opts}

    assert set() == typed & set(WITHOUT[words])
    assert set(WITH.get(words, ())) <= typed


@pytest.mark.parametrize("words", ["sink status", "restore list", "restore cat orders"])
def test_a_file_may_keep_what_a_command_does_not_use(words: str, tmp_path: Path) -> None:
    """One file serves all commands: what only others use is passed over without a word."""
    path = tmp_path / "all.properties"
    path.write_text(
        f"bootstrap.servers=h:1\ntopics=orders\nstore.url=file://{tmp_path}\n"
        "behavior.on.error=log\nmaster=local[1]\nflush.size=3\npartitions=0\n"
    )

    result = invoke(*words.split(), "--config", str(path), "--json")

    assert 7 == result.code, result.stderr
    assert "no_effect" not in result.stdout + result.stderr


def test_verify_passes_its_options_on_to_spark(tmp_path: Path) -> None:
    """`verify --deep` passes Spark options on to Spark."""
    refused = invoke(
        "restore", "verify", "--deep", "--store-url", f"file://{tmp_path}",
        "--spark-conf", "spark.speculation=true",
    )  # fmt: skip

    assert 2 == refused.code
    assert "spark.speculation=true" in refused.stderr


@pytest.mark.parametrize("body", ["", "[]", '{"id": null}', '{"id": 7}'])
def test_verify_names_an_id_of_the_backup_that_cannot_be_read(body: str, tmp_path: Path) -> None:
    """No restore goes on from such a backup, so it is not called healthy."""
    key = identity.key(Layout())
    path = tmp_path / key
    path.parent.mkdir(parents=True)
    path.write_text(body)

    summary = invoke("restore", "verify", "--store-url", f"file://{tmp_path}", "--json").lines[-1]

    assert 7 == summary["exit_code"]
    assert f"{key} does not hold the backup's id" in [one["what"] for one in summary["errors"]]


@pytest.mark.parametrize(("chosen", "code"), [("default", 0), ("bare", 2)])
def test_a_plugin_without_traits_hinders_only_who_chooses_it(
    tmp_path: Path, chosen: str, code: int
) -> None:
    """One of another version is found by every command, which reads what plugins declare."""
    (tmp_path / "bare.py").write_text("class Bare: pass\n")
    (about := tmp_path / "bare-1.0.dist-info").mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bare\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[kbackup.partitioners]\nbare = bare:Bare\n")
    (file := tmp_path / "sink.properties").write_text(
        f"s3.bucket.name=b\ntopics=t\npartitioner.class={chosen}\n"
    )

    done = subprocess.run(
        [sys.executable, "-m", "kbackup", "config", "check", "--config", str(file)],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "400"},
    )  # fmt: skip

    assert (code, "") == (done.returncode, done.stderr.partition("exit 2")[0])
    assert ("partitioner 'bare' has no traits" in done.stdout) == (code == 2)
