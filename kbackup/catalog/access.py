"""Keep the ACLs, users and broker settings of a cluster as bundles: ``_kbackup/cluster/``.

A bundle is a small JSON object named by the time it was taken, and is stored only where it differs
from the one before, so that there are few.  Nothing is replaced or deleted.  Names, addresses and
permissions lie readable in the bucket; passwords are in no bundle: no cluster tells them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from kbackup import __version__
from kbackup.catalog.ledger.stream import folder
from kbackup.clock import moment_of, rfc3339_ms
from kbackup.errors import KbackupError
from kbackup.events import known_fields
from kbackup.kafka import Access, Acl, BrokerSetting, ScramUser
from kbackup.naming import Layout
from kbackup.stores import Store, parse_json, put_json
from kbackup.stores.encrypted import check_open

VERSION: Final = 1

PARTS: Final = ("acls", "users", "settings")

_NOT_OFFERED: Final = {
    "acls": "the cluster has no authorizer",
    "users": "the cluster does not report SCRAM users",
}

_OF_ONE_BROKER: Final = (
    "advertised.", "broker.", "controller.listener.", "controller.quorum.", "host.name",
    "inter.broker.listener", "listener", "log.dir", "metadata.log.dir", "node.id", "port",
    "process.roles", "reserved.broker.", "ssl.keystore.", "ssl.truststore.", "zookeeper.",
)  # fmt: skip
"""How settings begin that say where one broker is, not how its cluster works."""


@dataclass(frozen=True, slots=True)
class AccessBundle:
    """One capture, in three parts; None where the cluster did not give one, *missing* says why.

    Of the *settings* of a broker those that somebody has set for the whole cluster; None for a
    value that it does not show.
    """

    taken: int
    acls: tuple[Acl, ...] | None
    users: tuple[ScramUser, ...] | None
    settings: Mapping[str, str | None] | None
    missing: Mapping[str, str] = field(default_factory=dict)

    def says_as(self, other: "AccessBundle") -> bool:
        """Whether both say the same, at whatever time."""
        return replace(self, taken=0, missing={}) == replace(other, taken=0, missing={})

    def completed(self, older: "AccessBundle") -> "AccessBundle":
        """Return this with the parts of an older one where it has none."""
        found = {
            name: getattr(older, name)
            for name in PARTS
            if getattr(self, name) is None and getattr(older, name) is not None
        }
        return replace(self, **found)

    @property
    def is_whole(self) -> bool:
        """Whether it has all parts."""
        return all(getattr(self, name) is not None for name in PARTS)


def shared(settings: Mapping[str, BrokerSetting]) -> dict[str, str | None]:
    """Return what somebody has set that is not about one broker alone."""
    return {
        name: setting.value
        for name, setting in sorted(settings.items())
        if not setting.is_default and not name.startswith(_OF_ONE_BROKER)
    }


def take_bundle(access: Access, now_ms: int) -> tuple[AccessBundle, dict[str, str]]:
    """Return what a cluster says, and why parts failed that it should have."""
    found, missing, failures = dict[str, Any](), dict[str, str](), dict[str, str]()
    asks: Mapping[str, Callable[[], Any]] = {
        "acls": access.acls,
        "users": access.users,
        "settings": lambda: shared(access.settings()),
    }
    for part, ask in asks.items():
        try:
            found[part] = ask()
        except KbackupError as error:
            found[part], failures[part] = None, str(error)
        if found[part] is None:
            missing[part] = failures.get(part) or _NOT_OFFERED[part]
    return AccessBundle(now_ms, **found, missing=missing), failures


def bundles_folder(layout: Layout) -> str:
    """Return the folder of a backup's bundles; ends with ``/``."""
    return folder(layout, "cluster")


def put(store: Store, layout: Layout, bundle: AccessBundle, run: str) -> None:
    """Store a bundle."""
    more = {"v": VERSION, "version": __version__, "run": run}
    put_json(store, _key(layout, bundle.taken), more | asdict(bundle))


def newest_first(
    store: Store, layout: Layout, before_ms: int | None = None
) -> Iterator[AccessBundle]:
    """Yield the bundles of a backup, those that were taken later than *before_ms* left out.

    A damaged one raises `CorruptObjectError`, one of a later version `NewerVersionError`.
    """
    keys = sorted((entry.key for entry in store.list(bundles_folder(layout))), reverse=True)
    last = None if before_ms is None else _key(layout, before_ms)
    for key in keys:
        if last is None or key <= last:
            yield _load(store, key)


def _load(store: Store, key: str) -> AccessBundle:
    with store.open(key) as body:
        check_open(key, body)
        do = "restore the object from a copy, or choose an earlier one: --as-of"
        return parse_json(key, body.read(), _bundle, "capture of ACLs and users", do)


def _bundle(said: Mapping[str, Any]) -> AccessBundle:
    acls, users, settings = (said[name] for name in PARTS)
    taken = known_fields(AccessBundle, said)["taken"]
    if moment_of(taken) is None:
        raise ValueError(f"no calendar has the time of the capture, {taken}")
    if acls is not None:
        acls = tuple(Acl(**known_fields(Acl, each)) for each in acls)
    if users is not None:
        users = tuple(ScramUser(**known_fields(ScramUser, each)) for each in users)
    if settings is not None:
        settings = {name: None if one is None else str(one) for name, one in settings.items()}
    return AccessBundle(taken, acls, users, settings, dict(said["missing"]))


def _key(layout: Layout, taken: int) -> str:
    moment = moment_of(taken)
    assert moment is not None  # noqa: S101  (a clock's)
    return f"{bundles_folder(layout)}{rfc3339_ms(moment)}.json"
