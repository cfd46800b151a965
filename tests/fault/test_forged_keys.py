"""A key that others call the backup's own, in a bucket in which nobody deletes a version."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kbackup.catalog import identity, keys
from kbackup.catalog.ledger.rows import table
from kbackup.catalog.recipients import PrivateKey
from kbackup.clock import SystemClock
from kbackup.errors import NoKeyError
from kbackup.local import LocalS3
from kbackup.naming import Layout
from kbackup.stores import StoreSettings, open_store
from kbackup.testing.stores import open_bytes, put_bytes
from tests.support.truth import client_of
from tests.unit.catalog.test_keys import KEY, private_key, readers, run, sinks

LAYOUT, CLOCK = Layout(), SystemClock()


@pytest.mark.parametrize("is_over", [False, True], ids=["beside the true one", "over it"])
def test_what_the_error_says_to_do_is_all_it_takes(
    s3_server: LocalS3, tmp_path: Path, is_over: bool
) -> None:
    """It ends each run (2), for as long as its file is there; a later version ends that."""
    bucket, client = f"locked-{uuid4().hex[:8]}", client_of(s3_server)
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    options: dict[str, Any] = {
        "aws.access.key.id": s3_server.access_key_id, "s3.region": s3_server.region,
        "aws.secret.access.key": s3_server.secret_access_key, "s3.object.lock.mode": "COMPLIANCE",
        "s3.object.lock.days": 1,
    }  # fmt: skip
    store = open_store(StoreSettings(f"s3://{bucket}", s3_server.endpoint_url, options))
    identity.ensure(store, LAYOUT, "here", CLOCK.now())
    one, mallory = (private_key(tmp_path / name) for name in ("one", "mallory"))
    put_bytes(run(sinks(tmp_path, one), store), KEY, b"orders")
    stream = keys.recipients_stream(store, LAYOUT, CLOCK)
    (true,) = (each.key for each in store.list(stream.prefix))
    theirs = keys.Keyring(identity.read(store, LAYOUT, "").id, LAYOUT, bytes(32))
    row = keys.wrapped_for(theirs, PrivateKey.read(mallory), keys.own_id(bytes(32)), bytes(32))
    stream.adopt(table([replace(row, counter=0)], keys.KEYS))
    (forged,) = (each.key for each in store.list(stream.prefix) if each.key != true)
    first: Any = {"Bucket": bucket, "Key": true}
    if is_over:
        first["VersionId"] = client.head_object(Bucket=bucket, Key=true)["VersionId"]
        client.copy_object(Bucket=bucket, Key=true, CopySource={"Bucket": bucket, "Key": forged})
        client.delete_object(Bucket=bucket, Key=forged)

    with pytest.raises(NoKeyError) as caught:
        sinks(tmp_path, one).wrap(store)

    assert caught.value.exit_code == 2
    if is_over:
        assert f"{stream.prefix}: put back their earlier versions" in caught.value.do
        client.copy_object(Bucket=bucket, Key=true, CopySource=first)
    else:
        assert f"move {forged} away" in caught.value.do
        client.delete_object(Bucket=bucket, Key=forged)
    assert b"orders" == open_bytes(readers(one).wrap(store), KEY)
    run(sinks(tmp_path, one), store)
