"""Where the S3 store takes credentials from; nothing is asked over the network."""

from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest
from botocore.session import get_session

from kbackup.errors import ConfigurationError
from kbackup.stores.s3 import S3Store
from kbackup.stores.s3.requests import is_anonymous, session_of

PROVIDER = "s3.credentials.provider.class"
ROLE = "s3.credentials.provider.sts.role."


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials but those of the test."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = of-profile\naws_secret_access_key = s\n"
    )


def access_key(options: Mapping[str, Any]) -> str | None:
    found = session_of(get_session(), options).get_credentials()
    return None if found is None else found.access_key


def test_keys_in_the_settings_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials in the settings are used, whatever the provider chain would find."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")

    assert "mine" == access_key({"aws.access.key.id": "mine", "aws.secret.access.key": "s"})


@pytest.mark.parametrize("lone", ["aws.access.key.id", "aws.secret.access.key"])
def test_half_a_pair_leaves_the_credentials_to_the_chain(lone: str) -> None:
    """One key without the other is ignored, as by the connectors."""
    assert "of-profile" == access_key({lone: "mine"})


def test_the_variables_of_the_first_java_sdk_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS_ACCESS_KEY and AWS_SECRET_KEY count where AWS_ACCESS_KEY_ID is not set."""
    monkeypatch.setenv("AWS_ACCESS_KEY", "old")
    monkeypatch.setenv("AWS_SECRET_KEY", "s")
    alone = access_key({})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")

    assert ("old", "new") == (alone, access_key({}))


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("com.amazonaws.auth.DefaultAWSCredentialsProviderChain", "of-environment"),
        ("software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider", "of-environment"),
        ("com.amazonaws.auth.EnvironmentVariableCredentialsProvider", "of-environment"),
        ("com.amazonaws.auth.profile.ProfileCredentialsProvider", "of-profile"),
        ("software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider", "of-profile"),
        ("software.amazon.awssdk.auth.credentials.ContainerCredentialsProvider", None),
    ],
)
def test_a_java_provider_stands_for_the_same_source(
    provider: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the SDK's version 1 and 2; and for that source alone."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")

    assert expected == access_key({PROVIDER: provider})


def test_anonymous_requests_are_not_signed() -> None:
    """A public bucket can be read without credentials."""
    assert is_anonymous(
        {PROVIDER: "software.amazon.awssdk.auth.credentials.AnonymousCredentialsProvider"}
    )
    assert not is_anonymous({})


@pytest.mark.parametrize(
    "options",
    [
        {PROVIDER: "com.amazonaws.auth.AWSStaticCredentialsProvider"},
        {PROVIDER: "io.confluent.connect.s3.auth.AwsAssumeRoleCredentialsProvider"},
    ],
)
def test_a_provider_without_what_it_needs_is_refused(options: dict[str, str]) -> None:
    """A credential provider that lacks what it needs is refused, and none is used in its place."""
    with pytest.raises(ConfigurationError, match="there are no credentials"):
        session_of(get_session(), options)


class Sts:
    """A security token service that gives out one role, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self.signed_by: list[str] = []
        sts = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                sts.asked.append(parse_qs(body.decode()))
                sts.signed_by.append(self.headers["Authorization"])
                answer = (
                    b"<AssumeRoleResponse><AssumeRoleResult><Credentials>"
                    b"<AccessKeyId>of-role</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
                    b"<SessionToken>t</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration>"
                    b"</Credentials></AssumeRoleResult></AssumeRoleResponse>"
                )
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sts]:
    found = Sts()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{found.server.server_port}")
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.mark.parametrize(
    ("keys", "signer"),
    [
        ({}, "of-profile"),
        ({"aws.access.key.id": "mine", "aws.secret.access.key": "s"}, "mine"),
    ],
    ids=["of the chain", "of the settings"],
)
def test_a_role_is_assumed_with_the_other_credentials(
    keys: dict[str, str], signer: str, sts: Sts
) -> None:
    """With session name, external id and region as they are given."""
    options = {
        ROLE + "arn": "arn:aws:iam::1:role/backup", ROLE + "session.name": "nightly",
        ROLE + "external.id": "ours", "s3.credentials.provider.sts.region": "eu-west-1",
    }  # fmt: skip

    assert "of-role" == access_key({**options, **keys})
    [asked] = sts.asked
    assert ["arn:aws:iam::1:role/backup", "nightly", "ours"] == [
        asked[name][0] for name in ("RoleArn", "RoleSessionName", "ExternalId")
    ]
    assert f"Credential={signer}/" in sts.signed_by[0]
    assert "/eu-west-1/sts/" in sts.signed_by[0]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"s3.sse.kms.key.id": "k", "s3.ssea.name": "AES256"}, "s3.sse.kms.key.id"),
        ({"s3.sse.customer.key": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
          "s3.ssea.name": "aws:kms"}, "s3.sse.customer.key"),
        ({"s3.wan.mode": True, "s3.path.style.access.enabled": True}, "s3.wan.mode"),
        ({"s3.proxy.url": "ftp://p"}, "s3.proxy.url"),
        ({"s3.object.tagging.key.value.pairs": ("team",)}, "s3.object.tagging.key.value.pairs"),
    ],
)  # fmt: skip
def test_options_that_cannot_go_together_are_refused_by_name(
    options: dict[str, Any], name: str
) -> None:
    """Credential options that contradict each other are refused by name."""
    with pytest.raises(ConfigurationError) as caught:
        S3Store.check_options(options)

    assert name == caught.value.place["property"], str(caught.value.issue())
