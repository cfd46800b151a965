"""A key of AWS KMS as a recipient, against an AWS in memory."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from kbackup.catalog.keys import Encryption
from kbackup.catalog.recipients import KeyOptions, KmsKey
from kbackup.catalog.rekeying import KeyKeeper, recipient_of
from kbackup.errors import NoKeyError, StoreError
from kbackup.stores import Store
from kbackup.testing.stores import open_bytes, put_bytes
from tests.unit.catalog.test_keys import (
    CLOCK,
    KEY,
    LAYOUT,
    private_key,
    readers,
    run,
    sinks,
    store,
)

__all__ = ["store"]

REGION = "eu-west-1"


@pytest.fixture(autouse=True)
def arns(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two keys of an AWS."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        client: Any = boto3.client("kms", REGION)
        yield [client.create_key()["KeyMetadata"]["Arn"] for _ in range(2)]


def hosts(arn: str, own: Path | None = None) -> Encryption:
    """Return what a host has that may use a key."""
    options = KeyOptions(kms_key=arn, own_file=None if own is None else str(own))
    return Encryption(options, LAYOUT, CLOCK)


def test_a_key_of_kms_encrypts_and_decrypts(store: Store, arns: list[str]) -> None:
    """Who may use it reads what runs have stored; tasks take it along."""
    put_bytes(run(hosts(arns[0]), store), KEY, b"orders")

    there = hosts(arns[0])
    there.wrap(store)
    assert b"orders" == open_bytes(pickle.loads(pickle.dumps(there)).wrap(store), KEY)
    with pytest.raises(NoKeyError, match="no key was given that opens it"):
        hosts(arns[1]).wrap(store)


def test_a_sink_does_without_the_right_to_decrypt(
    store: Store, arns: list[str], tmp_path: Path
) -> None:
    """With the backup's own key beside it, a run asks KMS to encrypt alone."""
    put_bytes(run(hosts(arns[0], tmp_path / "own"), store), KEY, b"first")

    with patch.object(KmsKey, "unwrap", side_effect=AssertionError):
        later = KEY.replace("0000000000", "0000000001")
        put_bytes(run(hosts(arns[0], tmp_path / "own"), store), later, b"second")
    assert b"second" == open_bytes(hosts(arns[0]).wrap(store), later)


def test_a_key_of_kms_is_added_to_public_keys(
    store: Store, arns: list[str], tmp_path: Path
) -> None:
    """It opens what was stored before, too; the sinks' hosts need not name it."""
    one = private_key(tmp_path / "one")
    put_bytes(run(sinks(tmp_path, one), store), KEY, b"first")
    assert [] == list(KeyKeeper(store, readers(one)).add([recipient_of(arns[1])]))
    later = KEY.replace("0000000000", "0000000001")
    put_bytes(run(sinks(tmp_path, one), store), later, b"second")

    there = hosts(arns[1]).wrap(store)
    assert (b"first", b"second") == (open_bytes(there, KEY), open_bytes(there, later))


def test_a_wrapped_key_is_of_one_purpose_and_one_key(arns: list[str]) -> None:
    """Nothing else is unwrapped, though KMS would."""
    one, other = map(KmsKey, arns)
    wrapped = one.wrap(bytes(32), b"kbackup key 1 of a")

    assert bytes(32) == one.unwrap(wrapped, b"kbackup key 1 of a")
    with pytest.raises(ValueError, match="another KMS key"):
        one.unwrap(wrapped, b"kbackup key 1 of b")
    with pytest.raises((ValueError, NoKeyError)):
        other.unwrap(wrapped, b"kbackup key 1 of a")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param("AccessDeniedException", NoKeyError, id="not allowed"),
        pytest.param("KMSInternalException", StoreError, id="KMS has failed"),
        pytest.param(None, StoreError, id="KMS does not answer"),
    ],
)
def test_what_kms_refuses_is_said(
    arns: list[str], error: str | None, expected: type[Exception]
) -> None:
    """The right that is missing is a configuration error, a service that fails is not."""
    raised: Exception = EndpointConnectionError(endpoint_url="https://kms")
    if error is not None:
        raised = ClientError({"Error": {"Code": error, "Message": "no"}}, "Decrypt")
    call = "botocore.client.BaseClient._make_api_call"
    with (
        patch(call, side_effect=raised),
        pytest.raises(expected, match=r"kms:Decrypt with arn:"),
    ):
        KmsKey(arns[0]).unwrap(b"", b"")


def test_a_key_that_is_not_there_is_said() -> None:
    """A mistyped ARN ends the run before it stores anything."""
    with pytest.raises(NoKeyError, match="kms:Encrypt with"):
        KmsKey(f"arn:aws:kms:{REGION}:123456789012:key/none").wrap(b"", b"")
