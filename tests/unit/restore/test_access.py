"""ACLs and users of a backup are added to a cluster, and nothing there is changed."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kbackup.catalog import access
from kbackup.catalog.access import AccessBundle
from kbackup.config import loading
from kbackup.errors import ConfigurationError, CorruptObjectError, KafkaError, RefusedError
from kbackup.events import Event, to_json
from kbackup.kafka import Acl, BrokerSetting, ScramUser
from kbackup.naming import Layout
from kbackup.restore.access import AccessOptions, AccessRun, read_passwords
from kbackup.runs.report import Summary
from kbackup.stores import Store, StoreSettings, open_store, put_json
from tests.support.target import FakeTarget

READS = Acl("TOPIC", "orders", "LITERAL", "User:app", "*", "READ", "ALLOW")
DENIES = replace(READS, principal="User:eve", permission="DENY")
ALL_TOPICS = replace(READS, name="*")
PREFIXED = replace(READS, pattern="PREFIXED", name="ord")
OF_GROUP = replace(READS, resource_type="GROUP", name="billing")
APP = ScramUser("app", "SCRAM-SHA-512", 8192)
_HOST = "is 10.1.2.3 a host of this cluster's clients?"
_TEAM = "Team is not a type of Kafka's own: it needs the source's principal.builder"
TAKEN = 1_800_000_000_000


@dataclass
class Restoring:
    """A backup with one bundle, and a cluster."""

    acls: tuple[Acl, ...] | None = (READS, DENIES)
    users: tuple[ScramUser, ...] | None = (APP,)
    settings: dict[str, str | None] | None = field(default_factory=dict)
    cluster: FakeTarget = field(default_factory=FakeTarget)
    url: str = field(default_factory=lambda: f"memory://{uuid4()}")
    summary: Summary = field(default_factory=lambda: Summary("r", "restore access"))

    def __post_init__(self) -> None:
        self.put(AccessBundle(TAKEN, self.acls, self.users, self.settings))

    @property
    def store(self) -> Store:
        """Where the bundle is."""
        return open_store(StoreSettings(self.url))

    def put(self, bundle: AccessBundle) -> None:
        """Store a bundle."""
        access.put(self.store, Layout("topics"), bundle, "r")

    def run(
        self,
        asked: AccessOptions | None = None,
        agree: Callable[[str], bool] | None = None,
        **options: Any,
    ) -> list[Event]:
        """Add what is missing; what was told."""
        given = {"bootstrap_servers": "h:1", "s3_bucket_name": "b", "yes": True, **options}
        settings = loading.load("access", options=given, files=(), environ={}).settings
        kafka: Any = self.cluster
        self.summary = Summary("r", "restore access")
        run = AccessRun(settings, kafka, self.store, self.summary, agree)
        return [to_json(event) for event in run(asked or AccessOptions(users=False))]


def told(events: list[Event], kind: str, *names: str) -> list[tuple[Any, ...]]:
    """Fields of all events of a kind."""
    return [tuple(each[name] for name in names) for each in events if each["type"] == kind]


def notes(events: list[Event]) -> list[str]:
    return [note for (note,) in told(events, "acl", "note")]


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    """A file that its owner alone may read."""
    path = tmp_path / "users"
    path.write_text("\napp:se:cret \nother:x\n")
    path.chmod(0o600)
    return path


def test_what_denies_comes_before_what_allows_and_users_last(passwords: Path) -> None:
    """At no moment may anyone do more than in the end."""
    of = Restoring()
    of.run(AccessOptions(passwords=passwords))

    assert ["DENY", "ALLOW", "app"] == of.cluster.who.done
    assert {"app": b"se:cret "} == of.cluster.who.passwords
    assert (2, 1, 0) == (
        of.summary.facts["acls"], of.summary.facts["users"], of.summary.exit_code(),
    )  # fmt: skip


def test_nothing_is_added_twice(passwords: Path) -> None:
    """The second run finds all of it there, and asks nobody."""
    of = Restoring()
    of.run(AccessOptions(passwords=passwords))
    of.cluster.who.done.clear()
    again = of.run(AccessOptions(), yes=False)

    assert ([], 0) == (of.cluster.who.done, of.summary.exit_code())
    assert {"there"} == {action for (action,) in told(again, "acl", "action")}
    assert [("there",)] == told(again, "scram_user", "action")


def test_an_entry_that_cannot_be_denied_keeps_others_from_being_allowed() -> None:
    """The cluster refuses: nothing that allows is added."""
    of = Restoring()
    of.cluster.who.denied = {"adding"}

    with pytest.raises(KafkaError):
        of.run()
    assert ([], 0) == (of.cluster.who.done, of.summary.facts["acls"])


def test_a_dry_run_adds_nothing() -> None:
    """It shows what would be added."""
    of = Restoring()
    found = of.run(dry_run=True, yes=False)

    assert [("DENY", "add"), ("ALLOW", "add")] == told(found, "acl", "permission", "action")
    assert [] == of.cluster.who.done


@pytest.mark.parametrize("agree", [None, lambda _: False])
def test_what_nobody_has_confirmed_is_refused(agree: Callable[[str], bool] | None) -> None:
    """Who may do what is changed by nobody's silence."""
    of = Restoring()

    with pytest.raises(RefusedError, match="2 ACLs, 0 users were not added"):
        of.run(agree=agree, yes=False)
    assert [] == of.cluster.who.done


def test_literal_entries_follow_renames() -> None:
    """Those of all topics, of internal ones, and of other resources keep their names."""
    internal = replace(READS, name="__consumer_offsets")
    of = Restoring((READS, ALL_TOPICS, internal, OF_GROUP))
    of.run(AccessOptions(users=False), rename_prefix="copy_of_")
    same = {acl.name for acl in of.cluster.who.entries or ()}
    of.run(AccessOptions(users=False, renamed="dr_$0"), rename_prefix="copy_of_")

    assert {"copy_of_orders", "*", "__consumer_offsets", "billing"} == same
    assert "dr_billing" in {acl.name for acl in of.cluster.who.entries or ()}


def test_entries_of_topics_that_are_not_asked_for_are_left_alone() -> None:
    """Those of groups and of all topics are added nevertheless."""
    of = Restoring((READS, replace(READS, name="payments"), OF_GROUP))
    of.run(topics="orders")

    assert {READS, OF_GROUP} == of.cluster.who.entries


def test_prefixed_entries_are_left_to_a_person() -> None:
    """The run exits 3, until someone has added them."""
    of = Restoring((PREFIXED,))
    left = of.run()
    code, skipped = of.summary.exit_code(), of.summary.skipped
    of.cluster.who.entries = {PREFIXED}
    there = of.run()

    assert [("left",)] == told(left, "acl", "action")
    assert (3, {"remaining_acls": 1}) == (code, skipped)
    assert (0, [("there",)]) == (of.summary.exit_code(), told(there, "acl", "action"))


@pytest.mark.parametrize(
    ("allow", "is_limited"),
    [
        (READS, True),
        (ALL_TOPICS, True),
        (replace(READS, operation="ALL"), True),
        (replace(READS, principal="User:*"), True),
        (replace(READS, name="payments"), False),
        (replace(READS, operation="WRITE"), False),
        (replace(READS, principal="User:eve"), False),
        (OF_GROUP, False),
    ],
)
def test_what_a_prefix_is_denied_of_is_not_allowed_before_it(allow: Acl, is_limited: bool) -> None:
    """What denies a prefix is left to a person; until it is there, nobody may do too much."""
    deny = replace(PREFIXED, permission="DENY")
    of = Restoring((deny, allow))
    of.run(rename_prefix="copy_of_")
    added = {one.permission for one in of.cluster.who.entries or ()}

    here = replace(deny, name="copy_of_ord")
    of.cluster.who.entries = {here}
    of.run(rename_prefix="copy_of_")

    assert added == (set() if is_limited else {"ALLOW"})
    assert {"ALLOW", "DENY"} == {one.permission for one in of.cluster.who.entries or ()}


@pytest.mark.parametrize(
    ("deny", "allow", "is_limited"),
    [
        ({}, {}, True),
        ({}, {"principal": "User:*"}, True),
        ({}, {"name": "orders"}, False),
        ({}, {"operation": "WRITE"}, False),
        ({"name": "orders", "operation": "UNKNOWN"}, {"operation": "ALL"}, True),
        ({"name": "orders", "operation": "UNKNOWN"}, {}, False),
        ({"name": "*", "operation": "UNKNOWN"}, {"name": "orders", "operation": "ALL"}, True),
    ],
)
def test_what_is_denied_and_left_out_limits_what_is_allowed(
    deny: dict[str, str], allow: dict[str, str], is_limited: bool
) -> None:
    """Of a topic that was not asked for, or in a word that the client lacks: 3, until it is."""
    denies = replace(READS, **{"name": "secret", "permission": "DENY", **deny})
    allows = replace(ALL_TOPICS, **allow)
    of = Restoring((denies, allows))
    of.run(topics="orders", rename_prefix="copy_of_")
    added, code = {one.permission for one in of.cluster.who.entries or ()}, of.summary.exit_code()

    of.cluster.who.entries = {denies}
    of.run(topics="orders", rename_prefix="copy_of_")

    assert added == (set() if is_limited else {"ALLOW"})
    assert 3 == code or not is_limited
    assert {"ALLOW", "DENY"} == {one.permission for one in of.cluster.who.entries or ()}


def test_what_the_client_has_no_word_for_is_left() -> None:
    """An operation of a later Kafka is not taken for another one."""
    of = Restoring((replace(READS, operation="UNKNOWN"),))
    of.run()

    assert (3, set()) == (of.summary.exit_code(), of.cluster.who.entries)


@pytest.mark.parametrize(
    ("there", "is_first"),
    [
        pytest.param(None, True, id="nothing"),
        pytest.param(replace(READS, principal="User:other"), False, id="the same topic"),
        pytest.param(replace(READS, name="other"), True, id="another topic"),
        pytest.param(replace(OF_GROUP, name="orders"), True, id="another resource"),
        pytest.param(replace(ALL_TOPICS, principal="User:other"), False, id="all topics"),
        pytest.param(PREFIXED, False, id="a prefix"),
    ],
)
@pytest.mark.parametrize("is_open", [True, False])
def test_the_first_entry_of_a_resource_is_named(
    there: Acl | None, is_first: bool, is_open: bool
) -> None:
    """Where all may use what has no ACL, it shuts others out: that is a warning."""
    of = Restoring((READS,))
    of.cluster.who.entries = {there} if there else set()
    if is_open:
        everybody = BrokerSetting(None, is_default=False)
        of.cluster.who.brokers["allow.everyone.if.no.acl.found"] = everybody
    found = of.run()

    assert ["first ACL of this resource" if is_first else ""] == notes(found)
    assert (is_first and is_open) == (("first_acl",) in told(found, "warning", "code"))


@pytest.mark.parametrize(
    ("acl", "note"),
    [
        (replace(READS, host="10.1.2.3", principal="User:x"), _HOST),
        (replace(READS, principal="Team:a"), _TEAM),
        (replace(READS, principal="User:CN=a"), "ssl.principal.mapping.rules differs here"),
        (READS, "its user is not here"),
        (replace(READS, principal="User:other"), ""),
    ],
)  # fmt: skip
def test_hosts_and_principals_that_may_not_fit_are_named(acl: Acl, note: str) -> None:
    """They are added all the same."""
    of = Restoring((acl,), settings={"ssl.principal.mapping.rules": "RULE:x"})
    of.cluster.who.entries = {replace(ALL_TOPICS, principal="User:else")}
    found = of.run(AccessOptions())

    assert [note] == notes(found)
    assert acl in (of.cluster.who.entries or ())


def test_a_cluster_without_an_authoriser_is_refused(passwords: Path) -> None:
    """Nothing is added, no user either; users alone are."""
    of = Restoring()
    of.cluster.who.entries = None
    with pytest.raises(RefusedError, match="keeps no ACLs"):
        of.run(AccessOptions(passwords=passwords))
    before = [*of.cluster.who.done]
    of.run(AccessOptions(acls=False, passwords=passwords))

    assert ([], ["app"]) == (before, of.cluster.who.done)


def test_a_user_without_a_password_is_left_out(passwords: Path) -> None:
    """Others are added, and the run exits 3."""
    of = Restoring(users=(APP, replace(APP, name="nightly")))
    found = of.run(AccessOptions(acls=False, passwords=passwords))

    assert [("app", "add"), ("nightly", "left")] == told(found, "scram_user", "name", "action")
    assert (3, {"remaining_users": 1}) == (of.summary.exit_code(), of.summary.skipped)
    assert {"app": b"se:cret "} == of.cluster.who.passwords


def test_a_user_who_is_there_keeps_password_and_iterations(passwords: Path) -> None:
    """What differs is shown."""
    of = Restoring()
    of.cluster.who.people = {("app", "SCRAM-SHA-512"): 4096}
    found = of.run(AccessOptions(acls=False, passwords=passwords))

    assert [("there", "with 4096 iterations")] == told(found, "scram_user", "action", "note")
    assert {} == of.cluster.who.passwords


def test_a_user_of_another_mechanism_is_added(passwords: Path) -> None:
    """Each mechanism has a credential of its own."""
    of = Restoring()
    of.cluster.who.people = {("app", "SCRAM-SHA-256"): 4096}
    of.run(AccessOptions(acls=False, passwords=passwords))

    assert {("app", "SCRAM-SHA-256"): 4096, ("app", "SCRAM-SHA-512"): 8192} == (
        of.cluster.who.people
    )


def test_a_service_without_users_is_named(passwords: Path) -> None:
    """They are left to the service's own means."""
    of = Restoring()
    of.cluster.who.people = None
    of.run(AccessOptions(acls=False, passwords=passwords))

    assert (3, {}) == (of.summary.exit_code(), of.cluster.who.passwords)


def test_broker_settings_that_differ_are_shown_and_no_passwords(passwords: Path) -> None:
    """A captured value that is the default here is no difference."""
    of = Restoring(settings={"a": "1", "b": "2", "c": "3", "hidden": None})
    of.cluster.who.brokers = {
        "a": BrokerSetting("9", is_default=True),
        "b": BrokerSetting("2", is_default=True),
        "d": BrokerSetting("4", is_default=False),
        "e": BrokerSetting("5", is_default=True),
        "hidden": BrokerSetting(None, is_default=False),
    }
    found = of.run(AccessOptions(passwords=passwords))

    assert [("a", "1", "9"), ("c", "3", None), ("d", None, "4")] == told(
        found, "broker_setting", "setting", "captured", "here"
    )
    assert "se:cret" not in str(found)


def test_what_is_in_no_capture_is_said_each_time(passwords: Path) -> None:
    """Quotas and share groups, a part that could not be captured, a password for nobody."""
    of = Restoring()
    of.put(AccessBundle(TAKEN + 1000, None, (APP,), None, {"acls": "denied", "settings": "no"}))
    of.cluster.who.denied = {"settings"}
    found = of.run(AccessOptions(passwords=passwords))

    codes = [code for (code,) in told(found, "warning", "code")]
    expected = ["not_captured", *["access_not_captured"] * 2, "not_compared", "first_acl"]
    assert [*expected, "unknown_user"] == codes
    assert "2027-01-15T08:00:00Z" in told(found, "warning", "text")[1][0]
    assert {READS, DENIES} == of.cluster.who.entries


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("taken", 10**18), ("taken", "x"), ("acls", [{**asdict(READS), "name": 5}]),
        ("acls", [{**asdict(READS), "operation": None}]),
        ("users", [{**asdict(APP), "iterations": "x"}]),
    ],
)  # fmt: skip
def test_a_capture_that_no_sink_has_written_is_damaged(part: str, said: object) -> None:
    """An entry is added as it is there, so its parts are to be texts."""
    again = Restoring()
    (stored,) = again.store.list("_kbackup/")
    bundle = json.loads(again.store.open(stored.key).read())
    put_json(again.store, stored.key, {**bundle, part: said})

    with pytest.raises(CorruptObjectError, match="holds no capture of ACLs and users"):
        again.run()


def test_a_later_version_may_add_to_entries_of_a_capture() -> None:
    """What this one does not know is left out."""
    again = Restoring(users=())
    (stored,) = again.store.list("_kbackup/")
    bundle = json.loads(again.store.open(stored.key).read())
    put_json(again.store, stored.key, {**bundle, "acls": [{**asdict(READS), "new": 1}]})

    assert [("orders",)] == told(again.run(), "acl", "name")


def test_an_earlier_capture_is_taken_by_time() -> None:
    """What came later counts for nothing; before the first there is none."""
    of = Restoring()
    of.put(AccessBundle(TAKEN + 60_000, (), (), {}))
    newest = of.run()
    then = of.run(as_of="2027-01-15T08:00:30Z")
    with pytest.raises(RefusedError, match="no sink has captured ACLs and users before"):
        of.run(as_of="2027-01-15T07:00:00Z")

    assert (0, 2) == (len(told(newest, "acl")), len(told(then, "acl")))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o700])
def test_passwords_that_others_may_read_are_refused(passwords: Path, mode: int) -> None:
    """They count as known."""
    passwords.chmod(mode)

    with pytest.raises(RefusedError, match=f"has mode 0{mode:o}"):
        read_passwords(passwords)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_passwords_of_the_owner_alone_are_read(passwords: Path, mode: int) -> None:
    """The first colon divides; blanks belong to the password."""
    passwords.chmod(mode)

    assert {"app": b"se:cret ", "other": b"x"} == read_passwords(passwords)


def test_a_colon_in_a_name_is_escaped(passwords: Path) -> None:
    """A password is as it stands, and so is any other backslash."""
    passwords.write_text("a\\:b:c\\:d\na\\\\:e\nDOM\\app:f\n")

    assert {"a:b": rb"c\:d", "a\\": b"e", r"DOM\app": b"f"} == read_passwords(passwords)


@pytest.mark.parametrize(
    "line", ["secretword", "secretword:", ":secretword", "app:secretword", r"app\:secretword"]
)
def test_a_line_that_is_no_password_is_refused_and_not_shown(passwords: Path, line: str) -> None:
    """It may be a password."""
    passwords.write_text(f"app:x\n{line}\n")

    with pytest.raises(ConfigurationError, match="line 2") as caught:
        read_passwords(passwords)
    assert "secretword" not in str(caught.value)
