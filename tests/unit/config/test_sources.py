"""Options, variables and files to one value each."""

import itertools
from pathlib import Path

import pytest

from kbackup.config import sources
from kbackup.config.issues import Value
from tests.support.configurations import WHOLE, errors


def _merge(
    tmp_path: Path,
    *texts: str,
    options: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    extra: tuple[str, ...] = (),
) -> sources.Merged:
    paths = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.properties"
        path.write_text(text)
        path.chmod(0o600)
        paths.append(path)
    return sources.merge(options or {}, paths, environ or {}, extra)


SOURCES = ("option", "env", "file 2", "file 1")


@pytest.mark.parametrize(("higher", "lower"), list(itertools.combinations(SOURCES, 2)))
def test_the_nearer_source_wins(tmp_path: Path, higher: str, lower: str) -> None:
    """Option before variable before the later file before the earlier one."""
    pair = (higher, lower)

    merged = _merge(
        tmp_path,
        f"flush.size={'file 1' if 'file 1' in pair else ''}",
        "flush.size=file 2" if "file 2" in pair else "",
        environ={"KBACKUP_FLUSH_SIZE": "env"} if "env" in pair else {},
        options={"flush_size": "option"} if "option" in pair else {},
    )

    assert higher == merged.values["flush.size"].text


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        pytest.param("KBACKUP_FLUSH_SIZE", "flush.size", id="ours"),
        pytest.param("KBACKUP_S3_PATH_STYLE_ACCESS", "s3.path.style.access.enabled", id="alias"),
        pytest.param(
            "KBACKUP_ROTATE_SCHEDULE_INTERVAL_MS", "rotate.schedule.interval.ms", id="a connector's"
        ),
        pytest.param("KBACKUP_SASL_KERBEROS_KEYTAB", "sasl.kerberos.keytab", id="Kafka's"),
        pytest.param(
            "KBACKUP_VALUE_CONVERTER_SCHEMAS_ENABLE",
            "value.converter.schemas.enable",
            id="a converter's",
        ),
        pytest.param("KBACKUP_LOCK_DIR", "lock.dir", id="no option"),
    ],
)
def test_a_variable_sets_its_property(tmp_path: Path, variable: str, name: str) -> None:
    """``KBACKUP_A_B_C`` is ``a.b.c``, for every name a file may have."""
    merged = _merge(tmp_path, environ={variable: "x", "KBACKUP_CONFIG": "f", "OTHER": "y"})

    assert {name: "x"} == {name: value.text for name, value in merged.values.items()}
    assert [] == merged.issues


@pytest.mark.parametrize(("text", "expected"), [("one", []), ("", []), ("two", ["error"])])
def test_two_variables_of_one_property_agree(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    """Which of two buckets is meant, only the operator knows."""
    environ = {"KBACKUP_BUCKET": text, "KBACKUP_S3_BUCKET_NAME": "one"}

    merged = _merge(tmp_path, environ=environ)

    assert expected == [issue.level for issue in merged.issues]
    assert "one" == merged.values["s3.bucket.name"].text


@pytest.mark.parametrize(
    ("name", "do"),
    [
        ("KBACKUP_FLUSH_SIZ", "did you mean KBACKUP_FLUSH_SIZE?"),
        ("KBACKUP_FOO_BAR", "kbackup config show --all lists all names"),
    ],
)
def test_an_unknown_variable_is_named_with_what_may_be_meant(
    tmp_path: Path, name: str, do: str
) -> None:
    """A misspelt variable is reported with the name that is like it, where one is."""
    [issue] = _merge(tmp_path, environ={name: "3"}).issues

    assert ("warning", "unknown_name", do) == (issue.level, issue.code, issue.do)


def test_an_alias_stands_behind_the_name(tmp_path: Path) -> None:
    """Where a file has both spellings, the proper one counts."""
    merged = _merge(tmp_path, "s3.path.style.access.enabled=true\ns3.path.style.access=false")

    assert "true" == merged.values["s3.path.style.access.enabled"].text


def test_a_name_twice_is_said(tmp_path: Path) -> None:
    """A property that is set twice causes a warning; Java silently takes the last one."""
    merged = _merge(tmp_path, "topics=a\ntopics=b")

    assert "b" == merged.values["topics"].text
    assert ["repeated"] == [issue.code for issue in merged.issues]


def test_only_a_value_that_counts_is_resolved(tmp_path: Path) -> None:
    """An option in place of an unresolved placeholder is enough."""
    text = "s3.bucket.name=${env:GONE}\ntopics=$TOPICS\ns3.region=${env:REGION}"

    merged = _merge(
        tmp_path,
        text,
        environ={"REGION": "$x"},
        options={"s3_bucket_name": "b", "topics": "t"},
    )

    assert [] == merged.issues
    assert "$x" == merged.values["s3.region"].text


@pytest.mark.parametrize("name", ["aws.secret.access.key", "consumer.override.sasl.jaas.config"])
def test_a_secret_on_the_command_line_is_refused(name: str, tmp_path: Path) -> None:
    """Everybody on the machine can read it there; the refusal does not repeat it."""
    merged = _merge(tmp_path, extra=(f"{name}=CANARY",))

    assert [("error", "secret")] == [(issue.level, issue.code) for issue in merged.issues]
    assert "CANARY" not in repr(merged.issues)


@pytest.mark.parametrize("pair", [
    "spark.ssl.keyPassword=CANARY two", "spark.hadoop.fs.s3a.access.key=CANARY", "my.Token=CANARY",
])  # fmt: skip
def test_a_secret_for_spark_on_the_command_line_is_refused(pair: str, tmp_path: Path) -> None:
    """By its option and by -X alike; from a file or a variable it is taken."""
    name = pair.partition("=")[0]
    given = ("spark.executor.memory=2g", pair)

    for merged in (
        _merge(tmp_path, options={"spark_conf": given}),
        _merge(tmp_path, extra=(f"spark.conf={pair}",)),
    ):
        assert [("error", "secret")] == [(one.level, one.code) for one in merged.issues]
        assert f"spark.conf={name}=********" in str(merged.issues[0])
        assert "KBACKUP_SPARK_CONF" in merged.issues[0].do
        assert "CANARY" not in repr(merged.issues)
    assert [] == _merge(tmp_path, environ={"KBACKUP_SPARK_CONF": pair}).issues
    assert [] == _merge(tmp_path, options={"spark_conf": given[:1]}).issues


def test_an_option_is_not_resolved(tmp_path: Path) -> None:
    """References in options are errors: the shell expands options."""
    merged = _merge(tmp_path, options={"s3_region": "${env:HOME}"}, environ={"HOME": "x"})

    assert ["placeholder"] == [issue.code for issue in merged.issues]


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        pytest.param("aws.secret.access.key=x", 0o644, ["readable_credentials"], id="for all"),
        pytest.param(
            "sasl.password=x\nssl.key.password=y",
            0o644,
            ["readable_credentials"],
            id="one warning a file",
        ),
        pytest.param("aws.secret.access.key=x", 0o640, [], id="for the group"),
        pytest.param("aws.secret.access.key=", 0o644, [], id="blank"),
        pytest.param("aws.secret.access.key=${env:A}", 0o644, [], id="elsewhere"),
        pytest.param("topics=x", 0o644, [], id="no credentials"),
    ],
)
def test_credentials_that_any_user_can_read_are_said(
    tmp_path: Path, text: str, mode: int, expected: list[str]
) -> None:
    """A file with credentials that others can read gets one warning."""
    path = tmp_path / "a.properties"
    path.write_text(text)
    path.chmod(mode)

    merged = sources.merge({}, [path], {"A": "x"}, ())

    assert expected == [issue.code for issue in merged.issues]


def test_minus_x_wants_a_pair(tmp_path: Path) -> None:
    """A slip at -X is named, and its text, which may be a secret, is not repeated."""
    [issue] = _merge(tmp_path, extra=("hunter2",)).issues

    assert "error" == issue.level
    assert "hunter2" not in issue.text + issue.do


def test_a_value_does_not_show_in_its_repr() -> None:
    """A value's repr never shows what may be a secret."""
    [value] = sources.merge({"sasl.password": "hunter2"}, [], {}, ()).values.values()

    assert isinstance(value, Value)
    assert "hunter2" not in repr(value)


@pytest.mark.parametrize(
    "given",
    [{"bootstrap_servers": "\udcff:1"}, {"ssl_ca_location": "/ca\udcff"}, {"group": "\ud800"}],
)
def test_what_is_not_text_is_refused_by_name(given: dict[str, str]) -> None:
    """Bytes that are not UTF-8, on the command line or in the environment, are exit 2."""
    (name,) = given
    found = errors("sink", **(WHOLE | given))

    assert {name.replace("_", "."): "it holds bytes that are not UTF-8"} == found
