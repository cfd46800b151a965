"""Values that are probably not what was meant."""

import sys
from pathlib import Path

import pytest

from kbackup.config import loading
from kbackup.config.loading import Command
from kbackup.errors import ConfigurationError
from tests.support.configurations import SINK, WHOLE, Write, load


def timed(path: str = "YYYY", locale: str = "en") -> str:
    """Return the properties of a partitioner by time."""
    return (
        "partitioner.class=io.confluent.connect.storage.partitioner.TimeBasedPartitioner\n"
        "partition.duration.ms=3600000\ntimezone=UTC\ntimestamp.extractor=Record\n"
        f"path.format={path}\nlocale={locale}\n"
    )


@pytest.mark.parametrize(
    ("text", "code", "name"),
    [
        pytest.param(
            "filename.offset.zero.pad.width=0",
            "suspicious",
            "filename.offset.zero.pad.width",
            id="the connector dies of it",
        ),
        pytest.param(timed(locale="en-US"), "suspicious", "locale", id="region"),
        pytest.param(timed("'year'=YYYY/'month'=mm"), "suspicious", "path.format", id="mm"),
        pytest.param(timed("YYYY/MM/DD"), "suspicious", "path.format", id="DD"),
        pytest.param(timed("YYYY-ww"), "suspicious", "path.format", id="weeks"),
        pytest.param(timed("'year=YYYY"), "suspicious", "path.format", id="open quote"),
        pytest.param(
            "s3.object.tagging.key.value.pairs=a:b:c",
            "suspicious",
            "s3.object.tagging.key.value.pairs",
            id="colons",
        ),
        pytest.param(
            "s3.object.tagging.key.value.pairs=startOffset:1",
            "suspicious",
            "s3.object.tagging.key.value.pairs",
            id="a tag that is there twice",
        ),
        pytest.param(
            "s3.object.tagging.key.value.pairs=a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1",
            "suspicious",
            "s3.object.tagging.key.value.pairs",
            id="eleven tags",
        ),
        pytest.param(
            "store.kafka.headers=true", "assumed", "header.converter", id="text of headers"
        ),
        pytest.param("rotate.interval.ms=60000", "ignored", "rotate.interval.ms", id="no time"),
        pytest.param("rotate.interval.ms=1m", "ignored", "rotate.interval.ms", id="with its unit"),
        pytest.param("store.url=file:///tmp/x", "suspicious", "s3.bucket.name", id="two places"),
    ],
)
def test_what_is_probably_not_meant_is_said_once(
    write: Write, text: str, code: str, name: str
) -> None:
    """A value with a surprising effect causes a warning, and the run goes on."""
    loaded = load("sink", write(SINK + text), bootstrap_servers="h:1")

    found = [(issue.code, issue.name) for issue in loaded.warnings if issue.code != "no_effect"]
    assert [(code, name)] == found


@pytest.mark.parametrize(
    ("rename", "is_suspected"),
    [
        pytest.param("copy_of_$0", False, id="as it should be"),
        pytest.param("copy_of_orders", False, id="one topic"),
        pytest.param("copy_of_fresh", False, id="a word that ends alike"),
        pytest.param("copy_of_bash", True, id="bash"),
        pytest.param("copy_of_-zsh", True, id="a login shell"),
        pytest.param("copy_of_sh", True, id="sh"),
        pytest.param("copy_of_fish", True, id="this user's"),
    ],
)
def test_a_name_that_a_shell_has_written_is_suspected(
    rename: str, is_suspected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In double quotes $0 becomes the shell's name, which topics may have."""
    monkeypatch.setenv("SHELL", "/usr/bin/fish")

    loaded = load("restore", bootstrap_servers="h:1", s3_bucket_name="b", rename=rename)

    assert is_suspected == any("single quotes" in found.do for found in loaded.warnings)


def test_what_has_no_effect_is_not_suspected_of_another(write: Write) -> None:
    """A surprising pattern that the partitioner does not use causes one warning, not two."""
    loaded = load("sink", write(SINK + "path.format=YYYY/DD"), bootstrap_servers="h:1")

    assert [("no_effect", "path.format")] == [
        (issue.code, issue.name.rpartition(", ")[2]) for issue in loaded.warnings
    ]


def test_a_bucket_that_is_not_used_is_said_once() -> None:
    """A bucket beside another store, as one left in the environment, causes one warning."""
    loaded = load("sink", **WHOLE, store_url="file:///tmp/x")

    assert [("suspicious", "s3.bucket.name")] == [(one.code, one.name) for one in loaded.warnings]


@pytest.mark.parametrize(
    "text",
    [
        "schema.compatibility=NONE",
        "locale=en",
        "path.format='year'=YYYY/'month'=MM/'day'=dd/'hour'=HH/mm",
        "path.format='DD mm'/MM",
        "path.format='o''clock'HH",
        "rotate.interval.ms=-1",
        "aws.access.key.id=x\naws.secret.access.key=y",
        "s3.object.tagging.key.value.pairs=a:b,c:d",
        "store.kafka.headers=true\nheader.converter=StringConverter",
    ],
)
def test_what_is_meant_is_not_doubted(write: Write, text: str) -> None:
    """Correct settings cause no warning, so that warnings are rare enough to be read."""
    loaded = load("sink", write(SINK + text), bootstrap_servers="h:1")

    assert [] == [issue for issue in loaded.warnings if issue.code != "no_effect"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "partitioner.class=x.Y\nrotate.interval.ms=1\ntimezone=UTC",
            id="partitioner",
        ),
        pytest.param(
            "s3.credentials.provider.class=x.Y\ns3.credentials.provider.sts.role.arn=z",
            id="credentials",
        ),
        pytest.param("transforms=a\ntransforms.a.type=x.Y\ntransforms.a.b=c", id="transforms"),
    ],
)
def test_what_belongs_to_a_refused_property_is_not_said_to_have_no_effect(
    write: Write, text: str
) -> None:
    """Only the root error is reported, not its consequences."""
    given = {line.partition("=")[0] for line in text.splitlines()}
    issues = loading.check([write(SINK + text)], {}).issues

    named = {name for issue in issues for name in issue.name.split(", ")}
    assert 1 == len(given & named)


def test_pad_width_zero_acts_as_one(write: Write) -> None:
    """A pad width of zero, which kills the connector, acts as one."""
    text = SINK + "filename.offset.zero.pad.width=0"

    settings = load("sink", write(text), bootstrap_servers="h:1").settings

    assert 1 == settings.filename_offset_zero_pad_width


@pytest.mark.parametrize(
    ("command", "option", "text"),
    [
        ("restore", "topics", ("",)),
        ("restore", "topics", (" , ",)),
        ("restore", "topics_regex", ""),
        ("restore", "partitions", " "),
        ("restore", "to_time", ""),
        ("restore", "from_offset", ""),
        ("restore", "rename", ""),
        ("restore", "rename_regex", ""),
        ("restore", "summary_file", ""),
        ("restore", "metrics_file", ""),
        ("restore", "metrics_listen", ""),
        ("restore", "log_file", ""),
        ("restore", "encryption_identity_file", ""),
        ("sink", "encryption_recipients", ("",)),
        ("sink", "encryption_recipients_file", ""),
        ("sink", "encryption_key_file", ""),
        ("sink", "encryption_phrase_file", ""),
        ("sink", "encryption_kms_key", ""),
        ("sink", "topics", ("",)),
        ("sink", "s3_bucket_name", ""),
        ("sink", "bootstrap_servers", ""),
    ],
)
def test_an_empty_option_is_named_once_and_as_empty(
    command: Command, option: str, text: object
) -> None:
    """A variable that nobody set restores not all there is, and stores nothing unencrypted."""
    given = {"bootstrap_servers": "h:1", "s3_bucket_name": "b"}
    given |= {"topics": "t"} if command == "sink" else {}
    with pytest.raises(ConfigurationError) as caught:
        load(command, **given | {option: text})

    (found,) = caught.value.place["errors"]
    assert (option.replace("_", "."), "it is empty") == (found["name"], found["why"])


def test_nothing_in_a_file_stands_for_not_set(write: Write) -> None:
    """A file may name a property and leave it empty, as the connectors' files do."""
    loaded = load("restore", write("topics=\ns3.bucket.name=b\n"), bootstrap_servers="h:1")

    assert loaded.settings.topics == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("parse.error.topic.prefix=a b\nbehavior.on.error=log", "value", id="space"),
        pytest.param(
            "parse.error.topic.prefix=a\nname=b c\nbehavior.on.error=log", "value", id="name"
        ),
        pytest.param("parse.error.topic.prefix=a\nbehavior.on.error=fail", "no_effect", id="fail"),
        pytest.param("parse.error.topic.prefix=a", "no_effect", id="fail by default"),
        pytest.param("parse.error.topic.prefix=a\nbehavior.on.error=Log", None, id="used"),
        pytest.param("parse.error.topic.prefix=", None, id="not set"),
    ],
)
def test_a_topic_that_nothing_can_be_written_to_is_doubted(
    write: Write, text: str, expected: str | None
) -> None:
    """A topic for what cannot be read is checked before the restore, and not when it is needed."""
    issues = loading.check([write(f"s3.bucket.name=b\ntopics=orders\n{text}")], {}).issues

    found = [issue.code for issue in issues if issue.name == "parse.error.topic.prefix"]
    assert ([] if expected is None else [expected]) == found


def test_an_extra_that_is_not_installed_is_found_before_a_run(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A converter that needs a registry needs its client, which is an extra."""
    monkeypatch.setitem(sys.modules, "authlib", None)
    path = write(
        "format.class=avro\nvalue.converter=io.confluent.connect.avro.AvroConverter\n"
        "value.converter.schema.registry.url=http://127.0.0.1:9\n"
    )

    [found] = [each for each in loading.check([path], {}).issues if each.level == "error"]

    assert "value.converter" == found.name
    assert "authlib" in found.text


SMT = "org.apache.kafka.connect.transforms"
OURS = SINK.replace("connector.class=io.confluent.connect.s3.S3SinkConnector\n", "")


@pytest.mark.parametrize(
    ("text", "name", "why", "do"),
    [
        pytest.param(
            "topic.dir=t", "topic.dir", "no such property", "did you mean topics.dir?",
            id="misspelt",
        ),
        pytest.param(
            "task.max=1", "task.max", "no such property", "did you mean tasks.max?",
            id="misspelt by many",
        ),
        pytest.param(
            "offset.storage.topic=t", "offset.storage.topic", "no such property",
            "kbackup config show --all lists all names", id="unlike any",
        ),
        pytest.param(
            "json=true", "json", "it is an option, not a property of a file",
            "give it on the command line", id="an option, no property",
        ),
        pytest.param(
            f"transforms=m\ntransforms.m.type={SMT}.MaskField$Value\n"
            "transforms.m.fields=a\ntransforms.m.replacment=x",
            "transforms.m.replacment", "mask_field has no such option",
            "its options are fields, replacement, replace.null.with.default",
            id="an option of a transform",
        ),
    ],
)  # fmt: skip
def test_a_name_that_there_is_not_is_an_error_in_a_file_of_kbackup(
    write: Write, text: str, name: str, why: str, do: str
) -> None:
    """A misspelt property would be left out in silence: nothing is run, and the name is shown."""
    with pytest.raises(ConfigurationError) as caught:
        load("sink", write(OURS + text), bootstrap_servers="h:1")

    (found,) = caught.value.place["errors"]
    assert (2, "unknown_name", name, why, do) == (
        caught.value.exit_code, found["code"], found["name"], found["why"], found["do"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param("task.max=1", "task.max", id="many have it"),
        pytest.param("group.id=g", "group.id", id="of another kind"),
        pytest.param("offset.storage.topic=t", "offset.storage.topic", id="the worker's"),
        pytest.param("status.storage.partitions=1", "status.storage.partitions", id="a bit alike"),
    ],
)
def test_what_a_connector_ignores_is_a_warning_in_its_file(
    write: Write, text: str, name: str
) -> None:
    """Files of connectors that run have names that nobody knows; they run here too."""
    loaded = load("sink", write(SINK + text), bootstrap_servers="h:1")

    found = [issue for issue in loaded.warnings if issue.code == "unknown_name"]
    assert [name] == [issue.name for issue in found]
    assert found[0].why.endswith("; it has no effect")


@pytest.mark.parametrize("text", ["rotate.bites=9", "s3.part.retry=9", "json=true"])
def test_a_slip_of_kbackups_own_names_is_an_error_in_a_connectors_file(
    write: Write, text: str
) -> None:
    """Whoever added it to the connector's file meant kbackup."""
    with pytest.raises(ConfigurationError) as caught:
        load("sink", write(SINK + text), bootstrap_servers="h:1")

    assert ["unknown_name"] == [each["code"] for each in caught.value.place["errors"]]


def test_each_file_is_a_connectors_or_kbackups_own(tmp_path: Path) -> None:
    """A file beside a connector's one is read as strictly as alone; so is ``-X``."""
    theirs, ours = tmp_path / "connector.properties", tmp_path / "ours.properties"
    theirs.write_text(SINK + "reporter.topic=t\n")
    ours.write_text("quite.another=1\n")

    with pytest.raises(ConfigurationError) as caught:
        loading.load(
            "sink", options={"bootstrap_servers": "h:1"}, files=[theirs, ours], environ={},
            extra=["some.more=2"],
        )  # fmt: skip

    errors = caught.value.place["errors"]
    assert ["quite.another", "some.more"] == [each["name"] for each in errors]
