"""Java client properties to librdkafka's."""

import sys
from pathlib import Path

import pytest

from kbackup.config import foreign_names
from kbackup.config.issues import Origin, Value

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        pytest.param("security.protocol", "sasl_ssl", {"security.protocol": "SASL_SSL"}, id="case"),
        pytest.param("sasl.mechanism", "PLAIN", {"sasl.mechanisms": "PLAIN"}, id="mechanism"),
        pytest.param("kafka.client.id", "x", {"client.id": "x"}, id="for all clients"),
        pytest.param(
            "consumer.override.fetch.max.wait.ms",
            "5",
            {"fetch.wait.max.ms": "5"},
            id="another name",
        ),
        pytest.param(
            "consumer.override.fetch.min.bytes", "5", {"fetch.min.bytes": "5"}, id="the same name"
        ),
        pytest.param(
            "kafka.session.timeout.ms", "2m", {"session.timeout.ms": "120000"}, id="its unit"
        ),
        pytest.param("consumer.override.max.poll.records", "5", {}, id="no such thing here"),
        pytest.param("producer.override.linger.ms", "5", {}, id="the other client's"),
        pytest.param(
            "ssl.endpoint.identification.algorithm",
            "",
            {"ssl.endpoint.identification.algorithm": "none"},
            id="empty means off",
        ),
        pytest.param("ssl.truststore.certificates", "PEM", {"ssl.ca.pem": "PEM"}, id="PEM"),
        pytest.param("ssl.truststore.type", "PEM", {}, id="PEM is what we read"),
        pytest.param("ssl.key.password", "", {}, id="blank is not given"),
        pytest.param(
            "sasl.jaas.config",
            f'{PLAIN} required username="u" password="p\\"w;";',
            {"sasl.username": "u", "sasl.password": 'p"w;'},
            id="PLAIN",
        ),
        pytest.param(
            "sasl.jaas.config",
            f"{SCRAM} required\n username=u\n password=p;",
            {"sasl.username": "u", "sasl.password": "p"},
            id="SCRAM without quotes",
        ),
        pytest.param(
            "sasl.jaas.config",
            f'{IAM} required awsProfileName="a b" awsRoleArn="arn:aws:iam::1:role/r" '
            "awsRoleSessionName=s awsStsRegion=eu-west-1 awsDebugCreds=true;",
            {
                "awsProfileName": "a b",
                "awsRoleArn": "arn:aws:iam::1:role/r",
                "awsRoleSessionName": "s",
                "awsStsRegion": "eu-west-1",
            },
            id="MSK IAM",
        ),
        pytest.param("sasl.jaas.config", f"{IAM} required;", {}, id="MSK IAM without options"),
        pytest.param(
            "sasl.client.callback.handler.class",
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
            {},
            id="what MSK IAM comes with",
        ),
    ],
)
def test_a_java_property_is_said_in_librdkafkas_words(
    name: str, text: str, expected: dict[str, str]
) -> None:
    """A connector's client settings work unchanged."""
    found = foreign_names.translate({name: Value(text, Origin("option"))})

    assert [] == found.issues
    assert expected == found.properties["consumer"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        pytest.param("ssl.truststore.location", "/t.jks", "ssl.ca.location", id="trust store"),
        pytest.param("ssl.keystore.type", "JKS", "pkcs12", id="key store"),
        pytest.param("sasl.mechanism", "AWS_IAM", "correct", id="no mechanism"),
        pytest.param(
            "sasl.jaas.config", f"{IAM} required awsRoleAccessKeyId=AKIA;", "profile", id="a key"
        ),
        pytest.param("security.protocol", "TLS", "correct", id="no protocol"),
        pytest.param("sasl.login.callback.handler.class", "x.Y", "remove", id="Java class"),
        pytest.param("sasl.jaas.config", "com.sun.Krb5LoginModule required;", "keytab", id="krb5"),
        pytest.param(
            "sasl.jaas.config", f'{PLAIN} required username="u";', "sasl.password", id="no password"
        ),
        pytest.param("consumer.override.enable.auto.commit", "true", "remove", id="ours to set"),
        pytest.param("producer.override.transactional.id", "x", "remove", id="ours too"),
    ],
)
def test_what_cannot_be_said_is_refused_with_a_way_out(name: str, text: str, says: str) -> None:
    """No client setting is dropped in silence."""
    [issue] = foreign_names.translate({name: Value(text, Origin("option"))}).issues

    assert "error" == issue.level
    assert name == issue.name
    assert says in issue.do


def test_the_nearer_name_wins() -> None:
    """The more specific prefix wins: one client's, then kafka., then the plain name."""
    found = foreign_names.translate(
        {
            name: Value(text, Origin("option"))
            for name, text in {
                "producer.override.ssl.ca.location": "p",
                "consumer.override.ssl.ca.location": "c",
                "kafka.ssl.ca.location": "k",
                "ssl.ca.location": "s",
            }.items()
        }
    )

    expected = {"consumer": "c", "producer": "p", "admin": "k"}
    assert expected == {name: pairs["ssl.ca.location"] for name, pairs in found.properties.items()}


def test_user_and_password_stand_before_a_jaas_config() -> None:
    """An explicit user name and password win over a JAAS configuration."""
    found = foreign_names.translate(
        {
            "sasl.username": Value("plain", Origin("option")),
            "sasl.jaas.config": Value(f"{PLAIN} required username=u password=p;", Origin("option")),
        }
    )

    assert "plain" == found.properties["admin"]["sasl.username"]


def test_what_has_no_effect_is_named() -> None:
    """Settings that only Java knows are listed and not passed on."""
    name = "consumer.override.max.poll.records"

    assert [name] == foreign_names.translate({name: Value("5", Origin("option"))}).without_effect


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("kafka.timeout", False, id="ours"),
        pytest.param("kafka.client.id", True, id="Kafka's"),
        pytest.param("security.protocol", True, id="no prefix"),
        pytest.param("topics", False, id="another"),
    ],
)
def test_only_kafkas_properties_go_to_its_clients(name: str, expected: bool) -> None:
    """kbackup's own properties are not passed to the client."""
    assert expected == foreign_names.is_client_property(name)


@pytest.mark.parametrize("is_installed", [True, False])
def test_the_extra_for_msk_is_looked_for(
    is_installed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether AWS's signer is installed is said by every check, and nobody is asked for a token."""
    if is_installed:
        (tmp_path / "aws_msk_iam_sasl_signer.py").write_text("raise RuntimeError")
    path = [str(tmp_path), *(folder for folder in sys.path if "site-packages" not in folder)]
    monkeypatch.setattr(sys, "path", path)
    for name in [name for name in sys.modules if name.startswith("aws_msk_iam_sasl_signer")]:
        monkeypatch.delitem(sys.modules, name)

    found = foreign_names.translate({"sasl.mechanism": Value("AWS_MSK_IAM", Origin("option"))})

    assert ({"sasl.mechanisms": "AWS_MSK_IAM"}, is_installed) == (
        found.properties["admin"],
        not found.issues,
    )
    assert is_installed or "[msk]" in found.issues[0].do
