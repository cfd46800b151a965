"""Tokens for Amazon MSK, by AWS's own signer; no request is made."""

import base64
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from kbackup.errors import ConfigurationError, KafkaError
from kbackup.kafka import KafkaSettings, msk
from kbackup.kafka.cluster import check_properties

pytest.importorskip("aws_msk_iam_sasl_signer", reason="the extra msk is not installed")

BROKER = "b-1.orders.abc.c2.kafka.eu-west-1.amazonaws.com:9098"
IAM = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "AWS_MSK_IAM"}


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys in the environment, others in a profile, and no machine that would have some."""
    profile = "[backup]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = s\n"
    (tmp_path / "credentials").write_text(profile)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    msk._credentials.cache_clear()  # what another test has found


def query(token: str) -> dict[str, list[str]]:
    """What a token says: it is a signed address."""
    address = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    return parse_qs(urlsplit(address).query)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        pytest.param(BROKER, "eu-west-1", id="provisioned"),
        pytest.param(
            "boot-x.c1.kafka-serverless.us-gov-west-1.amazonaws.com:9098", "us-gov-west-1",
            id="serverless",
        ),
        pytest.param("b-1.x.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1", id="China"),
        pytest.param("broker.example.com:9098", "ap-south-1", id="of the environment"),
    ],
)  # fmt: skip
def test_a_token_is_for_the_region_of_the_cluster(
    servers: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers' names say the region, and only where they do not, the environment does."""
    monkeypatch.setenv("AWS_REGION", "ap-south-1")

    callback = KafkaSettings(servers).properties({}, IAM)["oauth_cb"]
    token, expires_s = callback(None)

    assert expected in query(token)["X-Amz-Credential"][0].split("/")
    assert 800 < expires_s - time.time() <= 900


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, "AKIAENV", id="environment"),
        pytest.param({"awsProfileName": "backup"}, "AKIAPROFILE", id="profile"),
        pytest.param(
            {"awsProfileName": "backup", "awsRoleArn": "arn:aws:iam::1:role/r"}, "AKIAPROFILE",
            id="a profile comes before a role",
        ),
    ],
)  # fmt: skip
def test_a_token_is_of_whom_the_login_module_would_take(
    options: dict[str, str], expected: str
) -> None:
    """A profile counts before all else, as in Java; nothing of the options reaches librdkafka."""
    found = KafkaSettings(BROKER).properties({}, IAM | options)

    assert query(found["oauth_cb"](None)[0])["X-Amz-Credential"][0].startswith(expected)
    assert {} == {name: text for name, text in found.items() if name in options}
    assert "OAUTHBEARER" == found["sasl.mechanisms"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param({}, "no AWS credentials", id="none"),
        pytest.param({"awsProfileName": "none"}, "none", id="no such profile"),
    ],
)
def test_credentials_that_are_not_there_are_said_at_once(
    options: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without credentials no client is made, which would say after 10 s that it has no token."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    with pytest.raises(KafkaError, match=says) as caught:
        KafkaSettings(BROKER).properties({}, IAM | options)

    assert "credentials" in caught.value.do


def test_a_cluster_whose_region_nobody_says_is_refused() -> None:
    """A guess would be signed, and refused by the broker without a reason."""
    with pytest.raises(ConfigurationError) as caught:
        KafkaSettings("broker:9098").properties({}, IAM)

    assert "AWS_REGION" in caught.value.do


def test_properties_are_checked_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of the configuration asks nobody for a token."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    settings = KafkaSettings(BROKER, admin=IAM, consumer=IAM, producer=IAM)

    check_properties(settings)

    assert "oauth_cb" not in settings.properties({}, IAM, connects=False)
