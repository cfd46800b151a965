"""``restore access``: add the ACLs and SCRAM users of the backed-up cluster to the target.

Everything is planned and shown first.  Nothing is taken away or changed: what is missing is added,
entries that deny before those that allow, users last.  Broker settings are compared, never set.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final, Literal

from kbackup.catalog import access
from kbackup.catalog.access import AccessBundle
from kbackup.clock import moment_of, shown_ms
from kbackup.config import Settings
from kbackup.errors import ConfigurationError, KbackupError, RefusedError, counted, some
from kbackup.events import INLINE, Plain, Warned
from kbackup.files import read_private
from kbackup.kafka import Access, Acl, BrokerSetting, Connection, ScramUser
from kbackup.naming.renaming import Rename, is_internal, rename
from kbackup.runs import wiring
from kbackup.runs.context import Agree, confirm
from kbackup.runs.report import Summary
from kbackup.stores import Store

ACLS_LEFT: Final = "remaining_acls"
USERS_LEFT: Final = "remaining_users"
"""Count what was left out, in the summary."""

_EVERYBODY: Final = "allow.everyone.if.no.acl.found"
_MAPPING: Final = "ssl.principal.mapping.rules"
_NOT_KEPT: Final = "not captured: quotas, positions of share groups; the client has no such calls"

Action = Literal["add", "there", "left"]


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """What the command is asked to do.

    The file of *passwords* has a line for each user, ``user:password``; *renamed* is what a
    consumer group is called in the target, None: the same.
    """

    acls: bool = True
    users: bool = True
    passwords: Path | None = None
    renamed: str | None = None


@dataclass(frozen=True, slots=True)
class AclPlanned:
    """An ACL of the backup, by its resource's name in the target; *source* is the original's."""

    HEAD: ClassVar = {"type": "acl"}

    acl: Acl = field(metadata=INLINE)
    source: str
    action: Action
    note: str
    taken: datetime | None


@dataclass(frozen=True, slots=True)
class UserPlanned:
    """A SCRAM user of the backup; as `AclPlanned`."""

    HEAD: ClassVar = {"type": "scram_user"}

    user: ScramUser = field(metadata=INLINE)
    action: Action
    note: str
    taken: datetime | None


@dataclass(frozen=True, slots=True)
class SettingCompared:
    """A broker setting that differs, and is never changed; None: a default, or not shown."""

    HEAD: ClassVar = {"type": "broker_setting"}

    setting: str
    captured: str | None
    here: str | None


_USER: Final = re.compile(r"((?:[^\\:]|\\[\\:]|\\(?![\\:]))+):(.+)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\([\\:])")


def read_passwords(path: Path) -> dict[str, bytes]:
    r"""Return the passwords of a file that its owner alone may read, by user.

    A line is ``user:password``; the first colon divides them, and one in a name is written ``\:``,
    as PostgreSQL has it.  A password is as it stands.  Empty lines count for nothing.

    Raises:
        ConfigurationError: If the file cannot be read, or a line is none.
        RefusedError: If others may read it.
    """
    try:
        text = read_private(path, "these passwords").decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigurationError(f"--passwords {path} cannot be read", why) from None
    found = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not (typed := line.removesuffix("\r")):
            continue
        divided = _USER.fullmatch(typed)
        name = "" if divided is None else _ESCAPED.sub(r"\1", divided[1])
        if divided is None or name in found:
            why = r"it is not user:password (a colon in a name is \:)"
            why = why if divided is None else "the user is listed twice"
            raise ConfigurationError(
                f"--passwords {path}: line {number} is not a user and a password", why
            )
        found[name] = divided[2].encode()
    return found


class AccessRun:
    """One run of the command; *settings* choose and rename topics as the restore did."""

    def __init__(
        self,
        settings: Settings,
        kafka: Connection,
        store: Store,
        summary: Summary,
        agree: Agree | None = None,
    ) -> None:
        self._settings, self._kafka, self._store = settings, kafka, store
        self._summary, self._agree = summary, agree
        self._taken: dict[str, datetime | None] = {}

    def __call__(self, options: AccessOptions) -> Iterator[Plain]:
        """Plan, and add what is missing unless it is a dry run.

        It yields each ACL and user, before anything is added; settings that differ; warnings.
        """
        bundle = self._bundle()
        passwords = {} if options.passwords is None else read_passwords(options.passwords)
        with closing(self._kafka.access()) as target:
            here: Mapping[str, BrokerSetting] | None = None
            with suppress(KbackupError):  # they may not be read
                here = target.settings()
            users = list(self._users(target, bundle, passwords)) if options.users else []
            acls = list(self._acls(target, bundle, options, here, users)) if options.acls else []
            yield from acls
            yield from users
            yield from _compared(bundle, here)
            yield from self._remarks(bundle, options, here, acls, passwords)
            self._summary.skip(ACLS_LEFT, sum(each.action == "left" for each in acls))
            self._summary.skip(USERS_LEFT, sum(each.action == "left" for each in users))
            if not self._settings.dry_run:
                self._summary.facts |= {"acls": 0, "users": 0}
            new_acls = [each.acl for each in acls if each.action == "add"]
            new_users = [each.user for each in users if each.action == "add"]
            if self._settings.dry_run or not (new_acls or new_users):
                return
            new = f"{counted(len(new_acls), 'ACL')}, {counted(len(new_users), 'user')}"
            why = "who may do what would change, and this was not confirmed"
            confirm(
                self._agree, f"{new}: add?", f"{new} were not added", why,
                is_agreed=self._settings.yes,
            )  # fmt: skip
            self._apply(target, new_acls, new_users, passwords)

    def _bundle(self) -> AccessBundle:
        """Return the newest capture; what it lacks comes from the newest that has it."""
        layout, as_of = wiring.layout(self._settings), self._settings.as_of
        found: AccessBundle | None = None
        for each in access.newest_first(self._store, layout, as_of):
            found = each if found is None else found.completed(each)
            for part in access.PARTS:
                if getattr(each, part) is not None:
                    self._taken.setdefault(part, moment_of(each.taken))
            if found.is_whole:
                break
        if found is None:
            then = "" if as_of is None else f" before {shown_ms(as_of)}"
            raise RefusedError(
                f"no sink has captured ACLs and users{then}",
                "a sink captures them only with cluster.capture=true",
                "set it for the next cluster; add these by hand: kafka-acls, kafka-configs",
            )
        return found

    def _acls(
        self,
        target: Access,
        bundle: AccessBundle,
        options: AccessOptions,
        here: Mapping[str, BrokerSetting] | None,
        users: Sequence[UserPlanned],
    ) -> Iterator[AclPlanned]:
        """Yield the ACLs of the backup, those that deny first."""
        there = target.acls()
        if there is None:
            raise RefusedError(
                "the target keeps no ACLs",
                "it has no authorizer (authorizer.class.name)",
                "set one, or add the users alone: --users",
            )
        topics = {one.name for one in bundle.acls or () if one.resource_type == "TOPIC"}
        chosen = {*(choice := self._settings.asked).topics(topics)}
        if choice.pattern is None:
            chosen.update(choice.left_out(topics).internal)
        judge = _Judge(bundle, there, here, users)
        named = [(replace(one, name=self._name(one, options)), one) for one in bundle.acls or ()]
        for acl, source in sorted(named, key=lambda each: (each[0].permission != "DENY", each)):
            is_other = source.resource_type == "TOPIC" and source.pattern == "LITERAL"
            if is_other and source.name not in chosen | {"*"}:
                judge.leave_out(acl, source)
                continue
            action, note = judge(acl, source)
            yield AclPlanned(acl, source.name, action, note, self._taken.get("acls"))

    def _name(self, acl: Acl, options: AccessOptions) -> str:
        """Return what the resource of an ACL is called in the target."""
        if acl.pattern != "LITERAL" or acl.name == "*" or is_internal(acl.name):
            return acl.name
        if acl.resource_type == "TOPIC":
            return rename(acl.name, self._settings.renames)
        if acl.resource_type == "GROUP" and options.renamed is not None:
            return rename(acl.name, [Rename(regex="(?s).+", replacement=options.renamed)])
        return acl.name

    def _users(
        self, target: Access, bundle: AccessBundle, passwords: Mapping[str, bytes]
    ) -> Iterator[UserPlanned]:
        if not bundle.users:
            return
        there = target.users()
        known = {(one.name, one.mechanism): one.iterations for one in there or ()}
        for user in bundle.users:
            action: Action = "left"
            if (iterations := known.get((user.name, user.mechanism))) is not None:
                is_same = iterations == user.iterations
                action, note = "there", "" if is_same else f"with {iterations} iterations"
            elif there is None:
                note = "the target keeps no SCRAM users: add it with the service's own tools"
            elif user.name not in passwords:
                note = "no password: give --passwords"
            else:
                action, note = "add", ""
            yield UserPlanned(user, action, note, self._taken.get("users"))

    def _remarks(
        self,
        bundle: AccessBundle,
        options: AccessOptions,
        here: Mapping[str, BrokerSetting] | None,
        acls: Sequence[AclPlanned],
        passwords: Mapping[str, bytes],
    ) -> Iterator[Warned]:
        warn = self._summary.warn
        yield warn("not_captured", _NOT_KEPT)
        for part, why in bundle.missing.items():
            taken = self._taken.get(part)
            then = "" if taken is None else f": those of {taken:%Y-%m-%dT%H:%M:%SZ} are taken"
            yield warn("access_not_captured", f"{part} are not in the newest capture ({why}){then}")
        if here is None:
            text = "broker settings are not compared: DESCRIBE_CONFIGS on the cluster may be denied"
            yield warn("not_compared", text)
        named = (each.acl for each in acls if _FIRST in each.note)
        first = sorted({f"{acl.resource_type.lower()} {acl.name}" for acl in named})
        if first and (here is None or _is_open(here)):
            text = (
                f"{some(first)}: with {_EVERYBODY}, everybody may use what has no ACLs; the first "
            )
            yield warn("first_acl", text + "one shuts out everybody it does not name")
        captured = {user.name for user in bundle.users or ()}
        if options.users and (strangers := sorted(passwords.keys() - captured)):
            yield warn("unknown_user", f"not in the capture, and not added: {some(strangers)}")

    def _apply(
        self,
        target: Access,
        acls: Sequence[Acl],
        users: Sequence[ScramUser],
        passwords: Mapping[str, bytes],
    ) -> None:
        """Add what denies, then what allows, then users: nobody may do too much meanwhile."""
        facts = self._summary.facts
        for permission in ("DENY", "ALLOW"):
            share = [acl for acl in acls if acl.permission == permission]
            target.add(share)
            facts["acls"] += len(share)
        for user in users:
            target.set_password(user, passwords[user.name])
            facts["users"] += 1


_FIRST: Final = "first ACL of this resource"


class _Judge:
    """Says of each ACL what is done with it, and what a person should look at."""

    def __init__(
        self,
        bundle: AccessBundle,
        there: Sequence[Acl],
        here: Mapping[str, BrokerSetting] | None,
        users: Sequence[UserPlanned],
    ) -> None:
        self._there = there
        # that are left out, by their original names; judged first: what one limits is not allowed
        self._denied: list[Acl] = []
        self._captured = {user.name for user in bundle.users or ()}
        self._known = {each.user.name for each in users if each.action != "left"}
        self._has_users = bool(users)
        rules = (bundle.settings or {}).get(_MAPPING)
        now = None if here is None else here.get(_MAPPING)
        shown = None if now is None or now.is_default else now.value
        self._is_mapped_alike = rules == shown

    def leave_out(self, acl: Acl, source: Acl) -> None:
        """Note an ACL that is not added, and what it was in the original."""
        if acl.permission == "DENY" and not {acl, source}.intersection(self._there):
            self._denied.append(source)

    def __call__(self, acl: Acl, source: Acl) -> tuple[Action, str]:
        """Return what is done with an ACL, once *source*, and what is to be said of it."""
        if acl in self._there:
            return "there", ""
        if "UNKNOWN" in (acl.resource_type, acl.operation, acl.pattern):
            self.leave_out(acl, source)
            return "left", "Kafka's client cannot express it: add it by hand (kafka-acls)"
        if acl.pattern != "LITERAL":
            self.leave_out(acl, source)
            return "left", "a prefixed ACL cannot follow --rename: add it by hand (kafka-acls)"
        if acl.permission == "ALLOW" and any(
            _limits(deny, source) and not self._has(deny, acl) for deny in self._denied
        ):
            return "left", "a DENY that is left out limits it: add that first, then this"
        notes = [*self._doubts(acl)]
        if not any(_covers(one, acl) for one in self._there):
            notes.insert(0, _FIRST)
        return "add", "; ".join(notes)

    def _has(self, deny: Acl, acl: Acl) -> bool:
        """Whether somebody has added what denies, for whatever prefix stands for its own here."""
        alike = [one for one in self._there if replace(one, name=deny.name) == deny]
        return deny.pattern == "PREFIXED" and any(_limits(one, acl) for one in alike)

    def _doubts(self, acl: Acl) -> Iterator[str]:
        """Yield why a host or principal may be none here."""
        if acl.host != "*":
            yield f"is {acl.host} a host of this cluster's clients?"
        kind, _, name = acl.principal.partition(":")
        if kind != "User":
            yield f"{kind} is not a type of Kafka's own: it needs the source's principal.builder"
        elif "=" in name and not self._is_mapped_alike:
            yield f"{_MAPPING} differs here"
        elif self._has_users and name in self._captured - self._known:
            yield "its user is not here"


def _covers(there: Acl, acl: Acl) -> bool:
    """Whether an entry of the target is about the resource of *acl* too."""
    if there.resource_type != acl.resource_type:
        return False
    if there.pattern == "PREFIXED":
        return acl.name.startswith(there.name)
    return there.name in (acl.name, "*")


def _limits(deny: Acl, allow: Acl) -> bool:
    """Whether what is denied is part of what an entry for one name, or all, allows."""
    is_prefix = deny.pattern == "PREFIXED"
    is_named = allow.name.startswith(deny.name) if is_prefix else deny.name in (allow.name, "*")
    is_about = is_named or allow.name == "*"
    pairs = (
        (deny.principal, allow.principal, "User:*"),
        (deny.host, allow.host, "*"),
        (deny.operation, allow.operation, "ALL"),
    )
    is_met = all(one == two or every in (one, two) for one, two, every in pairs)
    return deny.resource_type == allow.resource_type and is_about and is_met


def _is_open(here: Mapping[str, BrokerSetting]) -> bool:
    """Whether all may use what has no ACL."""
    # brokers do not show the value, as it is none of Kafka's: where it was set, it may be true
    setting = here.get(_EVERYBODY)
    return setting is not None and setting.value != "false"


def _compared(
    bundle: AccessBundle, here: Mapping[str, BrokerSetting] | None
) -> Iterator[SettingCompared]:
    """Yield the settings that differ: those that were set there, with what they are here."""
    if here is None or bundle.settings is None:
        return
    own = access.shared(here)
    for name in sorted({*bundle.settings, *own}):
        captured, now = bundle.settings.get(name), here.get(name)
        value = None if now is None else now.value
        is_hidden = captured is None and value is None
        if captured != value or (is_hidden and (name in bundle.settings) != (name in own)):
            yield SettingCompared(name, captured, value)
