"""What a slip of the fingers is answered with, by the commands that only look."""

from pathlib import Path

import pytest

from tests.support.invoked import invoke, run


@pytest.fixture
def folder(folder: Path) -> Path:
    """A backup of two topics, with its ledger."""
    assert 0 == run(folder, "sink reindex", json=False).code
    return folder


@pytest.mark.parametrize("line", ["list ordrs", "verify -t ordrs", "cat ordrs:0@1"])
def test_a_topic_that_is_nearly_one_of_the_backup_is_suggested(folder: Path, line: str) -> None:
    """Though the bucket is listed for the name alone that was typed."""
    found = run(folder, f"restore {line}", json=False)

    assert 7 == found.code
    assert "why: its topics: audit, orders\n  do:  did you mean orders?\n" in found.stderr


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("orders:x@y", "its partition is not a number, its offset is not a number"),
        ("orders:x", "its partition is not a number"),
        ("orders:0@", "its offset is not a number"),
        ("orders/x", ""),
    ],
)
def test_a_place_says_which_number_is_none(folder: Path, place: str, why: str) -> None:
    """What stands between a colon and an @ is masked, since it may be a password."""
    found = run(folder, f"restore cat {place}", json=False)

    said = [line.strip() for line in found.stderr.splitlines() if line.startswith("  why:")]
    assert (2, [f"why: {why}"] if why else []) == (found.code, said)
    assert "x@y" not in found.stderr


def test_what_is_typed_and_has_no_effect_is_named(folder: Path, tmp_path: Path) -> None:
    """A file of a run has properties for others; who types one means this command."""
    (file := tmp_path / "sink.properties").write_text("flush.size=3\n")

    read = run(folder, f"restore list --config {file}", json=False)
    typed = run(folder, "restore list -X flush.size=3", json=False)

    told = "warning: flush.size: accepted, but without effect here\n"
    assert ((0, ""), (0, told)) == ((read.code, read.stderr), (typed.code, typed.stderr))


@pytest.mark.parametrize(
    ("line", "do"),
    [
        ("verify orders", "if it is a topic: kbackup restore verify -t orders; else see kbackup"),
        ("list orders audit", "if it is a topic: kbackup restore list -t audit; else see kbackup"),
        ("run orders audit", "if they are topics: kbackup restore run -t orders,audit; else see"),
    ],
)
def test_a_word_too_many_may_be_a_topic(folder: Path, line: str, do: str) -> None:
    """Since ``list`` takes a topic as a word, and the others as an option."""
    found = run(folder, f"restore {line}", json=False)

    assert 2 == found.code
    assert f"  do:  {do}" in found.stderr


@pytest.mark.parametrize(("typed", "meant"), [("-config", "--config"), ("-topics=a", "--topics")])
def test_an_option_with_one_dash_is_not_read_as_letters(typed: str, meant: str) -> None:
    """``-topics a`` would be a topic *opics* and a word too many."""
    found = invoke("restore", "verify", typed, "x")

    assert 2 == found.code
    assert f"has no option {typed.partition('=')[0]}\n  do:  did you mean {meant}?" in found.stderr


def test_an_option_that_is_needed_is_named() -> None:
    """Not by what its value is alone: a word URL would be no option."""
    found = invoke("sink", "copy", "--store-url", "file:///a")

    assert (2, "error: kbackup sink copy needs --to URL") == (
        found.code,
        found.stderr.splitlines()[0],
    )


def test_letters_behind_one_dash_are_read_as_ever(folder: Path) -> None:
    """A short option's value may stand at it."""
    assert 0 == run(folder, "restore verify -torders").code


@pytest.mark.parametrize("name", ["s3://backups", "backups/daily", '"backups"'])
def test_a_bucket_is_named_alone(tmp_path: Path, name: str) -> None:
    """``config check`` says so, and does not put ``s3://`` in front of it."""
    (file := tmp_path / "sink.properties").write_text(f"s3.bucket.name={name}\ntopics=a\n")

    found = invoke("config", "check", "--config", str(file))

    assert 2 == found.code
    assert "expected the bucket's name alone, such as backups" in " ".join(found.stdout.split())


@pytest.mark.parametrize("given", ["s3.bucket.name=${file:/none:x}", "s3.part.size=$part"])
def test_a_placeholder_that_is_not_filled_in_is_one_error(tmp_path: Path, given: str) -> None:
    """What stands for a value is not judged as one."""
    (file := tmp_path / "sink.properties").write_text(f"s3.bucket.name=b\n{given}\ntopics=a\n")

    found = invoke("config", "check", "--config", str(file), "--json")

    failed = [row["name"] for row in found.of("check") if row["level"] == "fail"]
    assert [given.partition("=")[0]] == failed


@pytest.mark.parametrize(
    ("line", "variable", "value", "code"),
    [
        ("restore verify", "KBACKUP_TOPICS", "orders", 0),
        ("restore list", "KBACKUP_PARTITIONS", "0", 0),
        ("restore list", "KBACKUP_PARTITIONS", "9", 7),
        ("restore cat orders:0", "KBACKUP_FROM_TIME", "2030-01-01", 7),
        ("restore cat orders:0", "KBACKUP_TO_TIME", "2030-01-01", 0),
    ],
)
def test_a_variable_that_was_left_is_named_where_no_plan_shows_it(
    folder: Path, line: str, variable: str, value: str, code: int
) -> None:
    """Exit 0 of a verify that looked at one topic alone must not read as that of all."""
    place = ("--store-url", f"file://{folder}")

    found = invoke(*line.split(), *place, **{variable: value})
    typed = invoke(*line.split(), *place, f"--{variable[8:].lower().replace('_', '-')}", value)

    told = f"warning: from the environment: {variable}\n"
    assert (code, code) == (found.code, typed.code)
    assert (True, False) == (told in found.stderr, told in typed.stderr)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("orders:7", "orders:7 has no object in the backup under"),
        ("orders:7", "there are some in partition 0"),
        ("orders --only-format json", "orders has no json object in the backup under"),
    ],
)
def test_a_place_without_an_object_says_what_there_is(folder: Path, line: str, says: str) -> None:
    """A topic that is there is neither denied nor suggested."""
    found = run(folder, f"restore cat {line}", json=False)

    assert (7, True, False) == (found.code, says in found.stderr, "did you mean" in found.stderr)


def test_a_topic_is_listed_beside_those_of_the_option(folder: Path) -> None:
    """As if it had been given by another -t."""
    found = run(folder, "restore list -t orders audit")

    assert ["audit", "orders"] == [row["topic"] for row in found.of("partition")]


def test_an_empty_window_is_refused_before_kafka_is_asked(folder: Path) -> None:
    """Which may be away, and is asked for long."""
    line = "restore run -k localhost:1 --from-offset 5 --to-offset 3"

    found = run(folder, line, json=False)

    assert (2, True) == (found.code, "--to-offset is not after --from-offset" in found.stderr)


@pytest.mark.parametrize(
    ("to", "do"),
    [
        ("/mnt/copy", "for a folder, write --to file:///mnt/copy"),
        ("http://minio:9000", "--to-config FILE with store.url=http://minio:9000"),
        ("copies", "for a bucket, write --to s3://copies"),
        ("s3://bucket/folder", "name the bucket alone"),
    ],
)
def test_what_is_no_place_for_a_copy_says_how_to_write_one(folder: Path, to: str, do: str) -> None:
    """A folder and a server of one's own are what people try."""
    found = run(folder, f"sink copy --to {to}", json=False)

    assert (2, True) == (found.code, do in " ".join(found.stderr.split()))


def test_a_duration_that_is_none_is_told_of_days(folder: Path) -> None:
    """What is to be removed is older than days."""
    found = run(folder, "sink expire --older-than 1y", json=False)

    assert (2, True) == (found.code, "such as 7d" in found.stderr)


@pytest.mark.parametrize(
    ("line", "variable", "value"),
    [
        ("restore cat orders:0", "KBACKUP_TO_OFFSET", "1"),
        ("restore cat orders:0", "KBACKUP_AS_OF", "2001-01-01"),
        ("restore verify", "KBACKUP_TO_OFFSET", "oops"),
        ("sink reindex", "KBACKUP_TO_TIME", "oops"),
    ],
)
def test_a_variable_of_an_option_of_other_commands_changes_nothing(
    folder: Path, line: str, variable: str, value: str
) -> None:
    """It is exported for these: no command does what none of its options can ask it to do."""
    words = (*line.split(), "--store-url", f"file://{folder}")

    plain, found = invoke(*words), invoke(*words, **{variable: value})

    assert (0, plain.stdout, plain.stderr) == (found.code, found.stdout, found.stderr)
