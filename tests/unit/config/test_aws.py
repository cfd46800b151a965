"""Secrets from AWS's stores, against an AWS in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from kbackup.config import loading, sources
from kbackup.errors import ConfigurationError

REGION = "eu-west-1"
VARIABLES = {"AWS_REGION": REGION}
CANARY = "canary-9f3"


@pytest.fixture(scope="module")
def session() -> boto3.Session:
    """AWS's libraries, whose descriptions of services take as long to read as a test."""
    return boto3.Session("testing", "testing")


@pytest.fixture(autouse=True)
def arn(session: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An AWS that has secrets in one region; the ARN of one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        manager: Any = session.client("secretsmanager", REGION)
        text = f'{{"password": "{CANARY}", "port": 9092, "more": {{}}, "nothing": null}}'
        arn = manager.create_secret(Name="kafka/prod", SecretString=text)["ARN"]
        manager.create_secret(Name="plain", SecretString=CANARY)
        manager.create_secret(Name="list", SecretString=f'["{CANARY}"]')
        manager.create_secret(Name="bytes", SecretBinary=CANARY.encode())
        parameters: Any = session.client("ssm", REGION)
        parameters.put_parameter(Name="/kafka/prod", Value=CANARY, Type="SecureString")
        yield arn


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("${secretsmanager:kafka/prod:password}", CANARY, id="a key of a secret"),
        pytest.param("${secretsmanager:kafka%2Fprod:password}", CANARY, id="percent-encoded"),
        pytest.param("${secretsmanager:kafka/prod:password?ttl=60000}", CANARY, id="time to live"),
        pytest.param("h:${secretsmanager:kafka/prod:port}", "h:9092", id="a number, inside"),
        pytest.param("${ssm::/kafka/prod}", CANARY, id="a parameter, decrypted"),
        pytest.param("${ssm:/kafka/prod}", CANARY, id="with one colon"),
    ],
)
def test_secrets_are_read_as_connect_spells_them(text: str, expected: str) -> None:
    """AWS's providers for Kafka Connect and kbackup read the same references."""
    assert expected == sources.resolve_references(text, VARIABLES, Path())


@pytest.mark.parametrize("colon", [":", "%3A"])
def test_an_arn_brings_its_own_region(arn: str, colon: str) -> None:
    """No region has to be set for it; its colons may be as they are."""
    text = f"${{secretsmanager:{arn.replace(':', colon)}:password}}"

    assert CANARY == sources.resolve_references(text, {"AWS_REGION": "us-east-1"}, Path())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("${secretsmanager:gone:password}", "secret gone cannot be read"),
        ("${secretsmanager:kafka/prod:gone}", "has no gone"),
        ("${secretsmanager:kafka/prod:nothing}", "has no nothing"),
        ("${secretsmanager:kafka/prod:more}", "is not text"),
        ("${secretsmanager:kafka/prod}", "expected"),
        ("${secretsmanager:plain:password}", "is not a JSON object"),
        ("${secretsmanager:list:password}", "is not a JSON object"),
        ("${secretsmanager:bytes:password}", "it holds bytes, not text"),
        ("${ssm:gone}", "parameter gone cannot be read"),
        ("${ssm::}", "expected"),
    ],
)
def test_a_secret_that_cannot_be_read_is_an_error_without_it(text: str, why: str) -> None:
    """The reference, the reason and the permission are named; no secret is quoted."""
    with pytest.raises(ConfigurationError) as caught:
        sources.resolve_references(text, VARIABLES, Path())

    said = f"{caught.value} {caught.value.do}"
    assert (2, True, False) == (caught.value.exit_code, why in said, CANARY in said)


def test_without_a_region_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """No region is guessed."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigurationError, match="You must specify a region"):
        sources.resolve_references("${ssm:x}", {}, Path())


def test_a_configuration_has_its_secrets_under_any_alias(tmp_path: Path) -> None:
    """Properties of AWS's providers count: class and region; each secret is asked for once."""
    path = tmp_path / "c.properties"
    path.write_text(
        "config.providers=vault,params\n"
        "config.providers.vault.class=com.amazonaws.kafka.config.providers."
        "SecretsManagerConfigProvider\n"
        f"config.providers.vault.param.region={REGION}\n"
        "config.providers.params.class=com.amazonaws.kafka.config.providers."
        "SsmParamStoreConfigProvider\n"
        f"config.providers.params.param.region={REGION}\n"
        "bootstrap.servers=h:${vault:kafka/prod:port}\ntopics=orders\ns3.bucket.name=b\n"
        "sasl.username=u\nsasl.password=${params::/kafka/prod}\nsecurity.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\naws.access.key.id=k\n"
        "aws.secret.access.key=${vault:kafka/prod:password}\n"
    )
    path.chmod(0o644)

    loaded = loading.load("sink", options={}, files=[path], environ={})

    assert ("h:9092", CANARY, []) == (
        loaded.settings.bootstrap_servers,
        loaded.settings.kafka_consumer["sasl.password"],
        [issue.text for issue in loaded.warnings if issue.code in ("no_effect", "placeholder")],
    )
    assert CANARY not in repr(loaded.settings)


def test_a_file_that_refers_to_secrets_may_be_read_by_all(tmp_path: Path) -> None:
    """It holds none."""
    path = tmp_path / "c.properties"
    path.write_text("sasl.password=${ssm:/kafka/prod}\naws.secret.access.key=${ssm:/kafka/prod}\n")
    path.chmod(0o644)

    found = loading.check([path], VARIABLES).issues

    assert not [issue for issue in found if issue.code in ("readable_credentials", "placeholder")]
    assert CANARY not in repr(found)


def test_a_secret_that_is_not_found_is_an_error_of_its_property(tmp_path: Path) -> None:
    """What has no effect need not be there."""
    path = tmp_path / "c.properties"
    path.write_text(
        "connector.class=io.confluent.connect.s3.S3SinkConnector\n"
        "sasl.password=${ssm:gone}\ntasks.max=${ssm:gone}\n"
    )

    found = [one for one in loading.check([path], VARIABLES).issues if one.code == "placeholder"]

    assert [("error", "sasl.password"), ("warning", "tasks.max")] == [
        (one.level, one.name) for one in found
    ]
