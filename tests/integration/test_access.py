"""ACLs and SCRAM users of one cluster, added to others, on real brokers."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)

from tests.integration.product import Acl, KafkaSettings, LocalKafka, ScramUser, free_ports
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup

pytestmark = [pytest.mark.integration, pytest.mark.in_process]

PASSWORD = "p=a:s's word"


class GuardedKafka(LocalKafka):
    """A broker that looks into its ACLs, with a second listener for SCRAM."""

    def __init__(self) -> None:
        plain, scram, self._controller = free_ports(3)
        self.plain, self.scram = (f"127.0.0.1:{port}" for port in (plain, scram))
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        super().__init__(
            {
                "listeners": f"PLAINTEXT://{self.plain},SCRAM://{self.scram},"
                f"CONTROLLER://127.0.0.1:{self._controller}",
                "listener.security.protocol.map":
                    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SCRAM:SASL_PLAINTEXT",
                "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{module} required;",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
        )  # fmt: skip

    def _quorum(self, controller: int) -> dict[str, str]:  # noqa: ARG002
        return super()._quorum(self._controller)


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedKafka]:
    """A broker for all tests of this file."""
    with GuardedKafka() as found:
        yield found


@pytest.fixture
def source(guarded: GuardedKafka) -> GuardedKafka:
    """The cluster that is backed up; nobody may do anything there yet."""
    return lose(guarded)


def lose(source: GuardedKafka) -> GuardedKafka:
    """Take its ACLs and users from it, and return it as the cluster that comes in its place."""
    admin = AdminClient({"bootstrap.servers": source.plain})
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    for gone in [*admin.delete_acls([every]).values()]:
        gone.result(30)
    users = admin.describe_user_scram_credentials().result(30)
    kind = ScramMechanism.SCRAM_SHA_512
    wanted = [UserScramCredentialDeletion(name, kind) for name in users]
    for done in admin.alter_user_scram_credentials(wanted).values() if wanted else ():
        done.result(30)
    return source


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    """The passwords of the users."""
    path = tmp_path / "passwords"
    path.write_text(f"app:{PASSWORD}\n")
    path.chmod(0o600)
    return path


def test_access_of_a_lost_cluster_is_added_to_another(
    kbackup: Kbackup,
    cluster: TestCluster,
    source: GuardedKafka,
    passwords: Path,
) -> None:
    """Captured, shown, added in order; then users sign in, and a second run changes nothing."""
    orders = TestCluster(source.plain).create(f"orders-{uuid4()}")
    TestCluster(source.plain).write(orders, [Record(None, b"x")])
    reads = Acl("TOPIC", orders, "LITERAL", "User:app", "*", "READ", "ALLOW")
    entries = (
        reads,
        Acl("TOPIC", orders, "LITERAL", "User:eve", "*", "ALL", "DENY"),
        Acl("GROUP", "billing", "LITERAL", "User:app", "10.0.0.1", "READ", "ALLOW"),
        Acl("CLUSTER", "kafka-cluster", "LITERAL", "User:app", "*", "DESCRIBE", "ALLOW"),
        Acl("TRANSACTIONAL_ID", "tx", "LITERAL", "User:app", "*", "WRITE", "ALLOW"),
    )
    there = KafkaSettings(source.plain).access()
    there.add(entries)
    there.set_password(ScramUser("app", "SCRAM-SHA-512", 8192), b"secret")
    captured, users = there.acls(), there.users()
    there.close()

    run = ("sink", "-k", source.plain, "-t", orders, "--cluster-capture")
    stored = kbackup.json(*run), kbackup.json(*run)
    target = lose(source)
    words = ("restore", "access", "-t", orders, "--rename-prefix", "copy_of_")
    planned = kbackup.json(*words, "-k", target.plain, "--dry-run", expect=3)
    unasked = kbackup.json(*words, "-k", target.plain, expect=4)
    nobody = kbackup.json(*words, "-k", target.plain, "--yes", expect=3)
    added = kbackup.json(*words, "-k", target.plain, "--passwords", str(passwords), "--yes")
    again = kbackup.json(*words, "-k", target.plain)
    refused = kbackup.json(*words, "-k", cluster.servers, "--yes", expect=4)

    assert [0, 0] == [each.summary["exit_code"] for each in stored]
    assert tuple(sorted(entries)) == captured
    assert (ScramUser("app", "SCRAM-SHA-512", 8192),) == users
    assert ["DENY", *["ALLOW"] * 4] == [each["permission"] for each in planned.of("acl")]
    assert "not confirmed" in unasked.summary["errors"][0]["why"]
    assert ({"remaining_users": 1}, 5) == (nobody.summary["skipped"], nobody.summary["acls"])
    assert (0, 1) == (added.summary["acls"], added.summary["users"])
    assert (0, 0) == (again.summary["acls"], again.summary["users"])
    assert {"there"} == {each["action"] for each in [*again.of("acl"), *again.of("scram_user")]}
    assert "the target keeps no ACLs" == refused.summary["errors"][0]["what"]
    here = KafkaSettings(target.plain).access()
    names = {acl.name for acl in here.acls() or ()}
    here.close()
    assert {f"copy_of_{orders}", "billing", "kafka-cluster", "tx"} == names
    assert PASSWORD not in str([added.stdout, added.stderr])
    signed_in = AdminClient(
        {
            "bootstrap.servers": target.scram, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "app", "sasl.password": PASSWORD,
        }
    )  # fmt: skip
    assert 1 == len(signed_in.list_topics(timeout=20).brokers)


def test_a_sink_that_may_not_ask_backs_up_records_all_the_same(
    kbackup: Kbackup, source: GuardedKafka, tmp_path: Path
) -> None:
    """What it lacks is a warning, and exit 3."""
    orders = TestCluster(source.plain).create(f"orders-{uuid4()}")
    TestCluster(source.plain).write(orders, [Record(None, b"x")])
    keeper = f"keeper-{uuid4()}"
    admin = KafkaSettings(source.plain).access()
    admin.set_password(ScramUser(keeper, "SCRAM-SHA-512", 4096), b"secret")
    for kind, name in (("TOPIC", orders), ("GROUP", "*")):
        admin.add([Acl(kind, name, "LITERAL", f"User:{keeper}", "*", "READ", "ALLOW")])
    admin.close()
    file = tmp_path / "sink.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username={keeper}\nsasl.password=secret\ncluster.capture=true\n"
    )
    file.chmod(0o600)

    words = ("--config", str(file), "-k", source.scram, "-t", orders)
    ended = kbackup.json("sink", *words, expect=3)

    assert (1, {"missing_cluster_parts": 3}) == (ended.summary["records"], ended.summary["skipped"])
    assert "access_not_captured" in [each["code"] for each in ended.summary["warnings"]]
