"""References in values, and what only looks like one."""

from pathlib import Path

import pytest

from kbackup.config import loading, sources
from kbackup.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("${env:A}", "x", id="variable"),
        pytest.param("s3-${env:A}-${env:B}", "s3-x-$HOME", id="inside, and not looked at again"),
        pytest.param("${file:s.properties:key}", "secret", id="file"),
        pytest.param("${file:aws:key}", "secret", id="file of any name, as Connect reads it"),
        pytest.param("$A ${A}", "$A ${A}", id="nothing else"),
    ],
)
def test_references_are_replaced(tmp_path: Path, text: str, expected: str) -> None:
    """Variables and keys of other files can stand in a value; what comes out is taken as it is."""
    for name in ("s.properties", "aws"):
        (tmp_path / name).write_text("key=secret")

    assert expected == sources.resolve_references(text, {"A": "x", "B": "$HOME"}, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "${env:GONE}",
        "${env:}",
        "${file:gone.properties:key}",
        "${file:s.properties:gone}",
        "${file:s.properties}",
        "${file::}",
    ],
)
def test_a_reference_to_nothing_is_an_error(tmp_path: Path, text: str) -> None:
    """A reference that leads nowhere never becomes part of a name."""
    (tmp_path / "s.properties").write_text("key=secret")

    with pytest.raises(ConfigurationError):
        sources.resolve_references(text, {}, tmp_path)


def test_a_variable_that_is_no_text_is_named() -> None:
    """Bytes that are not UTF-8 are the variable's fault, not the property's."""
    with pytest.raises(ConfigurationError, match="variable X holds bytes that are not UTF-8"):
        sources.resolve_references("${env:X}", {"X": "\udcff"}, Path())


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("s3.region", "$AWS_REGION", "$AWS_REGION", id="shell"),
        pytest.param("topics", "<TOPIC_NAME>", "<TOPIC_NAME>", id="angle brackets"),
        pytest.param("topics", "${topic_name}", "${topic_name}", id="braces"),
        pytest.param("topics", "a,{{ .Values.t }}", "{{ .Values.t }}", id="chart"),
        pytest.param("x", "s3.$AWS_REGION.amazonaws.com", "$AWS_REGION", id="inside"),
        pytest.param("flush.size", "$flush", "$flush", id="small letters"),
        pytest.param("rename", "copy_of_$0", None, id="replacement"),
        pytest.param("rename", "${env}_$1", None, id="named group"),
        pytest.param("rename.regex", "(?<env>.*)", None, id="pattern"),
        pytest.param("transforms.a.regex", "(?<env>.*)$", None, id="pattern in a file"),
        pytest.param("transforms.a.type", "org.apache.InsertField$Value", None, id="Java class"),
        pytest.param("topics.regex", "a$|<b>", None, id="pattern of topics"),
        pytest.param("s3.bucket.name", "price-5$", None, id="a dollar sign alone"),
        pytest.param("format.bytearray.separator", "<EOL>", None, id="separator"),
    ],
)
def test_what_nobody_filled_in_is_found(name: str, text: str, expected: str | None) -> None:
    """An unfilled template is detected, and a pattern is not mistaken for one."""
    assert expected == sources.unfilled(name, text, is_secret=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("$AWS_SECRET_ACCESS_KEY", True, id="variable"),
        pytest.param("<SECRET>", True, id="angle brackets"),
        pytest.param("${vault:kafka:key}", True, id="of a provider"),
        pytest.param('Login required password="${vault:kafka:key}";', True, id="in a login"),
        pytest.param("pa${S}WORD:x", False, id="braces inside a password"),
        pytest.param("pa$SWORD<x>", False, id="inside a password"),
        pytest.param("$ecret", False, id="small letters"),
    ],
)
def test_a_password_may_hold_any_character(text: str, expected: bool) -> None:
    """Only a secret that is a placeholder as a whole counts as one, or names a provider."""
    found = sources.unfilled("sasl.password", text, is_secret=True)

    assert expected == (found is not None)


@pytest.mark.parametrize(
    ("class_name", "text", "expected"),
    [
        pytest.param("FileConfigProvider", "${mine:s.properties:key}", "secret", id="file"),
        pytest.param("DirectoryConfigProvider", "${mine:d:key}", "of a file\n", id="directory"),
        pytest.param("EnvVarConfigProvider", "${mine:A}", "x", id="variable"),
        pytest.param("EnvVarConfigProvider", "${mine::A}", "x", id="variable, no path"),
        pytest.param("EnvVarConfigProvider", "${other:A}", "${other:A}", id="another alias"),
    ],
)
def test_kafkas_providers_are_known_under_any_alias(
    tmp_path: Path, class_name: str, text: str, expected: str
) -> None:
    """Configuration providers have the aliases that config.providers gives them."""
    (tmp_path / "s.properties").write_text("key=secret")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "key").write_text("of a file\n")
    kind = sources.provider_kind(f"org.apache.kafka.common.config.provider.{class_name}")

    assert expected == sources.resolve_references(text, {"A": "x"}, tmp_path, {"mine": kind})


def test_a_file_names_its_providers(tmp_path: Path) -> None:
    """Aliases count for the whole file; a provider in Java alone is refused by name."""
    path = tmp_path / "c.properties"
    path.write_text(
        "config.providers=vars, vault\n"
        "config.providers.vars.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "config.providers.vault.class=com.acme.VaultConfigProvider\n"
        "s3.region=${vars:REGION}\ns3.bucket.name=${vault:bucket}\n"
    )
    found = loading.check([path], {"REGION": "eu-west-1"}).issues

    errors = [(issue.code, issue.name) for issue in found if issue.level == "error"]
    assert ("unsupported", "config.providers.vault.class") in errors
    assert ("placeholder", "s3.bucket.name") in errors
    assert not [issue for issue in found if issue.name in ("s3.region", "config.providers")]


def test_no_provider_is_passed_over_beside_one_that_is_known(tmp_path: Path) -> None:
    """Of two references in one value, the one that nothing reads is named."""
    path = tmp_path / "c.properties"
    path.write_text(
        'sasl.jaas.config=X required username="${env:USER}" password="${vault:a:b}";\n'
        "s3.bucket.name=${env:USER}-${vault:a:b}\n"
    )
    path.chmod(0o600)

    found = loading.check([path], {"USER": "keeper"}).issues

    names = [issue.name for issue in found if issue.code == "placeholder"]
    assert ["s3.bucket.name", "sasl.jaas.config"] == sorted(names)


def test_a_placeholder_in_what_is_not_read_is_a_warning(tmp_path: Path) -> None:
    """Nobody has to fill in what has no effect: Connect's own, another plugin's, unknown names."""
    path = tmp_path / "c.properties"
    path.write_text(
        "connector.class=io.confluent.connect.s3.S3SinkConnector\ntasks.max=$tasks\n"
        "path.format=$path\nmy.own=${unset}\nflush.size=3\ntopics=t\nname=n\ns3.bucket.name=b\n"
        "format.class=io.confluent.connect.s3.format.json.JsonFormat\ns3.region=$region\n"
    )

    found = [issue for issue in loading.check([path], {}).issues if issue.code == "placeholder"]

    assert {
        ("tasks.max", "warning"), ("path.format", "warning"), ("my.own", "warning"),
        ("s3.region", "error"),
    } == {(issue.name, issue.level) for issue in found}  # fmt: skip
