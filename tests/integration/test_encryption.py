"""A backup that is encrypted before it leaves the host, against a real Kafka and an S3 server."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.support.backup import Backup
from tests.support.cluster import Record, TestCluster, varied
from tests.support.command import Kbackup

pytestmark = [pytest.mark.integration, pytest.mark.in_process]

COPY = "copy_of_$0"


@dataclass(frozen=True)
class Hosts:
    """A sink's host, which has public keys alone, and others that have a private key."""

    sink: Kbackup
    reader: Kbackup
    stranger: Kbackup

    def with_environment(self, **more: str) -> "Hosts":
        """The same, with further variables."""
        sink, reader, stranger = (
            host.with_environment(**more) for host in (self.sink, self.reader, self.stranger)
        )
        return Hosts(sink, reader, stranger)


def new_key(path: Path) -> str:
    """Write a private key; return the public one as a recipient is written."""
    key = X25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem.decode().splitlines()[1]


@pytest.fixture
def hosts(kbackup: Kbackup, tmp_path: Path) -> Hosts:
    recipients = [new_key(tmp_path / f"{name}.pem") for name in ("one", "two")]
    new_key(tmp_path / "stranger.pem")
    sink = kbackup.with_environment(
        KBACKUP_ENCRYPTION_RECIPIENTS=",".join(recipients),
        KBACKUP_ENCRYPTION_KEY_FILE=str(tmp_path / "backup.key"),
    )
    reader, stranger = (
        kbackup.with_environment(KBACKUP_ENCRYPTION_IDENTITY_FILE=str(tmp_path / f"{name}.pem"))
        for name in ("two", "stranger")
    )
    return Hosts(sink, reader, stranger)


def _filled(cluster: TestCluster, topic: str, count: int = 700) -> list[Record]:
    cluster.create(topic)
    records = varied(count)
    cluster.write(topic, records)
    return records


def _objects(backup: Backup) -> list[str]:
    return sorted(key for key in backup.keys("topics/") if "/partition=" in key)


@pytest.mark.parametrize("store", ["S3", "a folder"])
@pytest.mark.parametrize("form", ["parquet", "log"])
def test_another_host_restores_it_with_a_private_key_alone(
    hosts: Hosts, cluster: TestCluster, topic: str, tmp_path: Path, form: str, store: str
) -> None:
    """The sink's host writes what it cannot read; who has a private key reads all of it."""
    if store == "a folder":
        (tmp_path / "lake").mkdir()
        url = (tmp_path / "lake").as_uri()
        hosts = hosts.with_environment(KBACKUP_STORE_URL=url, KBACKUP_S3_BUCKET_NAME="")
    records = _filled(cluster, topic)
    format_ = ("--format", form) if form == "log" else ()

    done = hosts.sink.json("sink", "-t", topic, *format_)
    hosts.reader.json("restore", "--rename", COPY)
    deep = hosts.reader("restore", "verify", "--deep", "--json")
    against = hosts.reader("restore", "verify", "--against", "source", "--json")

    assert len(records) == done.summary["records"]
    assert records == cluster.read(f"copy_of_{topic}")
    assert [0, 0] == [deep.code, against.code]


def test_who_has_public_keys_alone_reads_nothing_and_goes_on(
    hosts: Hosts, cluster: TestCluster, topic: str, backup: Backup
) -> None:
    """A sink's host shows no record and restores none, before anything is done; it sinks on."""
    _filled(cluster, topic)
    hosts.sink.json("sink", "-t", topic)
    cluster.write(topic, varied(100, seed=5))

    refused = [
        hosts.sink("restore", "cat", f"{topic}:0").code,
        hosts.sink("restore", "--rename", COPY).code,
        hosts.sink("restore", "verify", "--deep").code,
        hosts.stranger("restore", "--rename", COPY).code,
        hosts.stranger("restore", "cat", f"{topic}:0").code,
    ]
    again = hosts.sink.json("sink", "-t", topic)
    listed = hosts.sink("restore", "verify")

    assert [2] * 5 == refused
    admin = AdminClient({"bootstrap.servers": hosts.sink.environment["KBACKUP_BOOTSTRAP_SERVERS"]})
    assert f"copy_of_{topic}" not in admin.list_topics(timeout=30).topics
    assert 100 == again.summary["records"]
    assert 0 == listed.code
    assert {b"KBE1"} == {backup.body(key)[:4] for key in _objects(backup)}


def test_a_passphrase_opens_what_it_has_closed(
    kbackup: Kbackup, cluster: TestCluster, topic: str, tmp_path: Path
) -> None:
    """Who knows the passphrase reads the backup; a wrong one is noticed before anything is read."""
    records = _filled(cluster, topic, 50)
    (tmp_path / "right").write_text("correct horse\n")
    (tmp_path / "wrong").write_text("incorrect horse\n")
    for name in ("right", "wrong"):
        (tmp_path / name).chmod(0o600)
    right, wrong = (
        kbackup.with_environment(KBACKUP_ENCRYPTION_PHRASE_FILE=str(tmp_path / name))
        for name in ("right", "wrong")
    )

    right.json("sink", "-t", topic)
    right.json("restore", "--rename", COPY)

    assert records == cluster.read(f"copy_of_{topic}")
    assert 2 == wrong("restore", "cat", f"{topic}:0").code
    assert 2 == wrong("sink", "-t", topic).code


def test_a_sink_without_keys_is_refused_unless_told(
    hosts: Hosts, kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """An encrypted backup gets no object that anybody can read, unless that is said."""
    records = _filled(cluster, topic, 50)
    hosts.sink.json("sink", "-t", topic)
    cluster.write(topic, more := varied(20, seed=9))
    mixed = {"KBACKUP_ENCRYPTION_MIXED": "true"}

    assert 2 == kbackup("sink", "-t", topic).code
    kbackup.with_environment(**mixed).json("sink", "-t", topic)
    assert 7 == hosts.reader("restore", "--rename", COPY).code
    hosts.reader.with_environment(**mixed).json("restore", "--rename", "again_$0")

    assert records + more == cluster.read(f"again_{topic}")


def test_a_backup_that_is_not_encrypted_does_not_become_so_unnoticed(
    hosts: Hosts, kbackup: Kbackup, cluster: TestCluster, topic: str
) -> None:
    """Encryption begins in an empty folder, or where it is said that older objects are plain."""
    records = _filled(cluster, topic, 50)
    kbackup.json("sink", "-t", topic)
    cluster.write(topic, more := varied(20, seed=9))

    refused = hosts.sink("sink", "-t", topic)
    mixed = hosts.with_environment(KBACKUP_ENCRYPTION_MIXED="true")
    mixed.sink.json("sink", "-t", topic)
    mixed.reader.json("restore", "--rename", COPY)

    assert (4, True) == (refused.code, "encryption.mixed" in refused.stderr)
    assert records + more == cluster.read(f"copy_of_{topic}")


Attack = Callable[[Backup, list[str]], None]


def _put(backup: Backup, key: str, body: bytes, source: str | None = None) -> None:
    """Put what an attacker would, with all that is beside an object."""
    client = backup.client
    metadata = client.head_object(Bucket=backup.bucket, Key=source or key)["Metadata"]
    metadata["sha256"] = sha256(body).hexdigest()
    client.put_object(Bucket=backup.bucket, Key=key, Body=body, Metadata=metadata)


def _swap(backup: Backup, keys: list[str]) -> None:
    bodies = [backup.body(key) for key in keys[:2]]
    _put(backup, keys[0], bodies[1])
    _put(backup, keys[1], bodies[0])


def _move(backup: Backup, keys: list[str]) -> None:
    moved = keys[0].replace("0000000000", "0000000500")
    _put(backup, moved, backup.body(keys[0]), keys[0])
    backup.client.delete_object(Bucket=backup.bucket, Key=keys[0])


ATTACKS = {"swapped": _swap, "moved": _move}
"""Each object is whole, but not in its place; other attacks: tests/contract/test_encrypted.py."""


@pytest.mark.parametrize("attack", [pytest.param(each, id=name) for name, each in ATTACKS.items()])
def test_what_was_altered_is_named(
    hosts: Hosts, cluster: TestCluster, topic: str, backup: Backup, attack: Attack
) -> None:
    """Who can write to the bucket, but has no key, alters nothing that is not noticed."""
    _filled(cluster, topic)
    hosts.sink.json("sink", "-t", topic, "--flush-size", "300")
    keys = _objects(backup)

    attack(backup, keys)

    deep = hosts.reader("restore", "verify", "--deep", "--json")
    restored = hosts.reader("restore", "--rename", COPY, "--json")
    assert [7, 7] == [deep.code, restored.code]
    assert keys[0] in deep.stdout


def test_siblings_do_not_stand_in_for_each_other(
    hosts: Hosts, cluster: TestCluster, topic: str, backup: Backup
) -> None:
    """Values and keys of one set, both text, are read each in its own place alone."""
    cluster.create(topic)
    cluster.write(topic, [Record(b"k%d" % n, b"v%d" % n) for n in range(20)])
    text = "org.apache.kafka.connect.storage.StringConverter"
    layout = ("--format", "json", "--value-converter", text, "--flush-size", "20")
    more = {
        "KBACKUP_STORE_KAFKA_KEYS": "true", "KBACKUP_KEYS_FORMAT_CLASS": "json",
        "KBACKUP_KEY_CONVERTER": text,
    }  # fmt: skip
    hosts = hosts.with_environment(**more)
    hosts.sink.json("sink", "-t", topic, *layout)
    assert 0 == hosts.reader("restore", "verify", "--deep").code

    _swap(backup, keys := _objects(backup))

    deep = hosts.reader("restore", "verify", "--deep", "--json")
    assert (2, 7) == (len(keys), deep.code)
    assert re.search("does not decrypt in this place", deep.stdout)


@pytest.mark.parametrize("form", ["parquet", "log"])
def test_a_sink_that_died_knows_its_own_objects_again(
    hosts: Hosts, cluster: TestCluster, topic: str, backup: Backup, form: str
) -> None:
    """What was stored and not committed is stored again without being read: it has one data key."""
    format_ = ("--format", form) if form == "log" else ()
    records = _filled(cluster, topic, 500)
    group = hosts.sink.json("sink", "-t", topic, *format_).summary["group"]
    admin = AdminClient({"bootstrap.servers": hosts.sink.environment["KBACKUP_BOOTSTRAP_SERVERS"]})
    stored = backup.keys("topics/")

    def forget() -> None:
        admin.delete_consumer_groups([group])[group].result()
        for key in backup.keys("_kbackup/ledger/"):
            backup.client.delete_object(Bucket=backup.bucket, Key=key)

    forget()
    hosts.sink.json("sink", "-t", topic, *format_)
    assert stored == backup.keys("topics/")

    forget()
    cluster.write(topic, more := varied(100, seed=4))
    grown = hosts.sink("sink", "-t", topic, *format_, "--json")

    assert 0 == grown.code
    hosts.reader.json("restore", "--rename", COPY)
    assert records + more == cluster.read(f"copy_of_{topic}")
    assert 0 == hosts.reader("restore", "verify", "--deep").code


def test_rotating_a_key_writes_keys_alone(
    hosts: Hosts, cluster: TestCluster, topic: str, backup: Backup, tmp_path: Path
) -> None:
    """No object is touched, and the new recipient restores."""
    records = _filled(cluster, topic, 60)
    hosts.sink.json("sink", "-t", topic)
    old = hosts.sink.environment["KBACKUP_ENCRYPTION_RECIPIENTS"].split(",")[1]
    (tmp_path / "new.pub").write_text(
        f"-----BEGIN PUBLIC KEY-----\n{new_key(tmp_path / 'new.pem')}\n-----END PUBLIC KEY-----\n"
    )
    before = {key: tag for key, tag in backup.keys().items() if "/keys/" not in key}

    hosts.reader.json("keys", "rotate", old, str(tmp_path / "new.pub"))
    listed = hosts.reader("keys", "list", "--json")

    assert before == {key: tag for key, tag in backup.keys().items() if "/keys/" not in key}
    assert ["current", "current", "removed"] == sorted(
        row["state"] for row in listed.of("recipient")
    )
    new = hosts.reader.with_environment(KBACKUP_ENCRYPTION_IDENTITY_FILE=str(tmp_path / "new.pem"))
    new.json("restore", "--rename", COPY)
    assert records == cluster.read(f"copy_of_{topic}")
    assert (2, 4) == (
        hosts.reader("restore", "cat", f"{topic}:0").code,
        hosts.sink("sink", "-t", topic).code,
    )
