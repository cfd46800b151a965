"""Keep the reports of drills, and lists of the topics and groups that each is to delete.

::

    _kbackup/drills/5a3c11d2/00000007.json             the seventh report
    _kbackup/drills/5a3c11d2/00000007.sig              its Ed25519 signature, 64 bytes
    _kbackup/drills/5a3c11d2/scratch/5c1e09ab.json     topics and groups that a drill is to delete

Each report has the SHA-256 of the one before it, and its number is taken by a create-only put, so
of two drills that end at once one comes after the other.  So it is found if one was altered, or
taken out of the middle: `check`.  That the newest ones are gone, nothing here can tell.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from kbackup import __version__
from kbackup.catalog.ledger.stream import folder
from kbackup.clock import moment_of
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    DrillError,
    Issue,
    KbackupError,
    ObjectNotFoundError,
    StoreError,
    with_extra,
)
from kbackup.events import INLINE, known_fields, to_json
from kbackup.files import read_private
from kbackup.naming import Layout
from kbackup.records import TopicPartition
from kbackup.stores import Store, parse_json, put_bytes, put_json

VERSION: Final = 1

PREFIX: Final = "drill_"
"""How topics and groups of a drill begin, with its id behind it."""

Sign = Callable[[bytes], bytes]
"""Returns the signature of a report's bytes."""

Proves = Callable[[bytes, bytes], bool]
"""Whether a signature, the second, is that of a report's bytes."""

_NAME: Final = re.compile(r"(\d{8})\.(json|sig)", re.ASCII)
_SCRATCH: Final = re.compile(r"scratch/([0-9a-z]{1,32})\.json", re.ASCII)
_TRIES: Final = 16
_EXTRA: Final = "sign"
_COPY: Final = "compare the reports with those of a copy of the bucket"


@dataclass(frozen=True, slots=True)
class DrillTopic:
    """What a drill has found of one topic.

    Attributes:
        topic: The topic, as it is called in the bucket.
        copy: What the drill called its own.
        records: How many were restored and compared.
        size_bytes: Of the objects that were read.
        is_whole: Whether all that is stored was; else a sample of the newest.
        differences: How many records are not what the backup says.
        verdict: In a word, as ``restore verify --against`` has it.
    """

    topic: str
    copy: str
    partitions: int
    records: int
    size_bytes: int
    is_whole: bool
    differences: int
    verdict: str


@dataclass(frozen=True, slots=True)
class DrillGroup:
    """What a drill has found of one consumer group.

    *copy* is what the drill called its own, which it set in so many *partitions*; *is_equal* says
    whether the record at each position is the backup's.
    """

    group: str
    copy: str
    partitions: int
    is_equal: bool


@dataclass(frozen=True, slots=True)
class DrillAge:
    """How old the backup of one partition was, when the drill began.

    Attributes:
        partition: The partition, as it is called in the bucket.
        complete_up_to_ms: All that was written before then is stored, in ms since the epoch; None
            where nothing says so.
        rpo_s: The age of that in seconds: what would be lost; None likewise.
        newest_record_ms: The highest timestamp of its records; None where nothing says so.
    """

    partition: TopicPartition = field(metadata=INLINE)
    complete_up_to_ms: int | None
    rpo_s: float | None
    newest_record_ms: int | None


@dataclass(frozen=True, slots=True)
class DrillReport:
    """One drill.

    Attributes:
        id: Random; its topics and groups are named by it.
        sample_bytes: How much of each topic was asked for; None for all.
        seconds: How long each phase took, in their order.
        rto_s: How long it took until the last group was set.
        rto_whole_s: An estimate of that for all that is stored; None where nothing tells.
        rto_limit_s: What it was to be at most; None for no limit.
        previous: SHA-256 of the stored bytes of the report before it; None for the first.
            `store_report` fills it in.
    """

    HEAD: ClassVar = {"v": VERSION, "version": __version__}

    id: str
    backup_id: str
    began_ms: int
    ended_ms: int
    sample_bytes: int | None
    topics: tuple[DrillTopic, ...]
    groups: tuple[DrillGroup, ...]
    ages: tuple[DrillAge, ...]
    seconds: Mapping[str, float]
    rto_s: float
    rto_whole_s: float | None
    rto_limit_s: float | None
    rpo_limit_s: float | None
    issues: tuple[Issue, ...]
    exit_code: int
    previous: str | None = None

    @property
    def has_passed(self) -> bool:
        """Whether all of it was restored, compared, equal, and in time."""
        return self.exit_code == 0

    @property
    def rpo_s(self) -> float | None:
        """The age of the partition whose backup was oldest; None if that of one is not known."""
        known = [one.rpo_s for one in self.ages if one.rpo_s is not None]
        return max(known) if known and len(known) == len(self.ages) else None

    def exceeded(self) -> Iterator[KbackupError]:
        """Yield an error for each limit that is exceeded; an age that is not known exceeds any.

        Where a sample was taken, the estimate for all that is stored counts too.
        """
        most, whole_s = self.rto_limit_s, self.rto_whole_s or 0.0
        if most is not None and max(self.rto_s, whole_s) > most:
            took = f"it took {self.rto_s:.0f} s"
            if whole_s > self.rto_s:
                took = f"{took}, and all that is stored would take an estimated {whole_s:.0f}"
            do = "more cores, or several machines, restore faster: kbackup restore --master"
            yield DrillError("a recovery takes too long", f"{took}; --rto allows {most:.0f} s", do)
        if self.rpo_limit_s is None:
            return
        do = "run the sink more often; kbackup sink status shows its last runs"
        unknown = next((one.partition for one in self.ages if one.rpo_s is None), None)
        if unknown is not None:
            what = f"how old the backup of {unknown} is, is not known"
            yield DrillError(
                what, "no sink run has recorded up to when it is complete", do, **unknown.place
            )
        oldest = max(self.ages, key=lambda one: one.rpo_s or 0.0, default=None)
        if oldest is not None and (lost_s := oldest.rpo_s or 0.0) > self.rpo_limit_s:
            why = f"{lost_s:.0f} s would be lost; --rpo allows {self.rpo_limit_s:.0f} s"
            where = oldest.partition
            yield DrillError(f"the backup of {where} is too old", why, do, **where.place)

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Self:
        """Read what `to_json` made of it; what this version does not know is left out."""
        given = known_fields(cls, said)
        if moment_of(given["ended_ms"]) is None:
            raise ValueError(f"no calendar has the end of the drill, {given['ended_ms']}")
        ages = [
            DrillAge(**{**known_fields(DrillAge, one), "partition": TopicPartition(**place)})
            for one in given["ages"]
            for place in [known_fields(TopicPartition, one)]
        ]
        parts = {
            "topics": tuple(DrillTopic(**known_fields(DrillTopic, one)) for one in given["topics"]),
            "groups": tuple(DrillGroup(**known_fields(DrillGroup, one)) for one in given["groups"]),
            "ages": tuple(ages),
            "issues": tuple(map(Issue.from_dict, given["issues"])),
            "seconds": {str(name): float(s) for name, s in given["seconds"].items()},
        }
        return cls(**{**given, **parts})


def store_report(
    store: Store, layout: Layout, report: DrillReport, *, key: Sign | None = None
) -> str:
    """Store a report behind the newest one, signed by *key* if there is one; return its key."""
    for _ in range(_TRIES):
        last = max(_numbers(store, layout, "json"), default=0)
        previous = _stored_sha256(store, _key(layout, last)) if last else None
        said = replace(report, previous=previous)
        # an error may quote what is no text
        body = json.dumps(to_json(said), ensure_ascii=False, indent=1).encode(errors="replace")
        name = _key(layout, last + 1)
        if put_bytes(store, name, body, if_absent=True):
            if key is not None:
                put_bytes(store, _signature(name), key(body))
            return name
    raise StoreError(
        f"the report of drill {report.id} cannot be stored",
        f"{_TRIES} others took its name, {name}, first",
        "run the drill again",
    )


def newest_first(store: Store, layout: Layout) -> Iterator[DrillReport]:
    """Yield the reports of a backup; one that cannot be read is left out, `check` names it."""
    for number in sorted(_numbers(store, layout, "json"), reverse=True):
        name = _key(layout, number)
        try:
            yield _parsed(name, _read(store, name))
        except (CorruptObjectError, ObjectNotFoundError, ConfigurationError):
            continue


_LOOKED: Final = 50
"""How many reports are looked through for one of a drill that has passed."""


@dataclass(frozen=True, slots=True)
class LastDrill:
    """How the newest drill has ended.

    Attributes:
        rto_s: How long a recovery takes: for all that is stored, an estimate where the drill took a
            sample.
        rpo_s: How old the backup of its oldest partition was; None where that is not known.
        passed: When the newest drill has ended that has passed; None if none of late has.
    """

    id: str
    ended: datetime
    exit_code: int
    rto_s: float
    rpo_s: float | None
    passed: datetime | None


def last(store: Store, layout: Layout) -> LastDrill | None:
    """Return how the newest drill has ended; None if none has left a report."""
    reports = islice(newest_first(store, layout), _LOOKED)
    newest = next(reports, None)
    if newest is None:
        return None
    passed = next((one for one in chain([newest], reports) if one.has_passed), None)
    rto_s = newest.rto_s if newest.rto_whole_s is None else newest.rto_whole_s
    return LastDrill(
        newest.id, _time(newest.ended_ms), newest.exit_code, rto_s, newest.rpo_s,
        None if passed is None else _time(passed.ended_ms),
    )  # fmt: skip


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class DrillChecked:
    """A report, and what is wrong with it.

    Attributes:
        number: Its place in the chain, from 1.
        report: What it says; None where it cannot be read, or is gone.
        signature: ``right``, ``wrong``, ``none``, or ``not checked`` without a key.
    """

    HEAD: ClassVar = {"type": "drill_report"}

    number: int
    report: DrillReport | None
    signature: str
    issues: tuple[Issue, ...]


def check(
    store: Store, layout: Layout, backup_id: str, *, key: Proves | None = None
) -> list[DrillChecked]:
    """Return the reports of a backup, the oldest first, each with what is wrong with it.

    A report vouches for the one before it, whose digest it has: one without a signature is as good
    as signed if a later one is.  Signatures must be those of *key*; None: they are not checked.
    """
    there = _numbers(store, layout, "json")
    signed = _numbers(store, layout, "sig")
    found: list[DrillChecked] = []
    is_linked: list[bool] = []
    before: str | None = None
    for number in range(1, max(there | signed, default=0) + 1):
        name, body = _key(layout, number), None
        signature = ("not checked" if key is None else "wrong") if number in signed else "none"
        issues: list[Issue] = []
        report = None
        try:
            body = _read(store, name)
            if key is not None and number in signed:
                if key(body, _read(store, _signature(name))):
                    signature = "right"
                else:
                    why = "it was made with another key, or the report was altered"
                    issues.append(_issue(f"the signature of {name} is wrong", why))
            report = _parsed(name, body)
            if backup_id and report.backup_id and report.backup_id != backup_id:
                why = f"it is of the backup {report.backup_id}, and this is {backup_id}"
                issues.append(_issue(f"{name} is not of this backup", why))
        except ObjectNotFoundError:
            why = "later reports exist, or its signature does"
            issues.append(_issue(f"{name} has been removed", why))
        except KbackupError as error:
            if isinstance(error, StoreError):
                raise
            issues.append(error.issue())
        is_next = report is not None and report.previous == before
        if report is not None and not is_next and (number == 1 or found[-1].report is not None):
            earlier = _key(layout, number - 1) if number > 1 else "no report"
            why = (
                "it was altered or replaced" if signature == "right" else "one of them was altered"
            )
            issues.append(_issue(f"{name} was not made after {earlier}", why))
        found.append(DrillChecked(number, report, signature, tuple(issues)))
        is_linked.append(is_next)
        before = None if body is None else hashlib.sha256(body).hexdigest()
    return _unsigned(found, is_linked, layout, has_key=key is not None)


def _unsigned(
    found: Sequence[DrillChecked], is_linked: Sequence[bool], layout: Layout, *, has_key: bool
) -> list[DrillChecked]:
    """Return reports with what is wrong where none that is signed vouches for one."""
    judged, is_vouched = list[DrillChecked](), False
    first = next((one.number for one in found if one.signature != "none"), None)
    is_wanted = [has_key or (first is not None and one.number > first) for one in found]
    for one, wanted, linked in reversed(list(zip(found, is_wanted, is_linked, strict=True))):
        is_vouched = is_vouched or one.signature in ("right", "not checked")
        if one.signature == "none" and one.report is not None and wanted and not is_vouched:
            why = "no signature vouches for it, and others are signed"
            if first is None:
                why = "no report is signed, and a key was given"
            issue = _issue(f"{_key(layout, one.number)} is not signed", why)
            one = replace(one, issues=(*one.issues, issue))  # noqa: PLW2901
        judged.append(one)
        is_vouched = is_vouched and linked
    return judged[::-1]


def _issue(what: str, why: str) -> Issue:
    return CorruptObjectError(what, why, _COPY).issue()


def signing_key(path: Path) -> Sign:
    """Return what signs with the private Ed25519 key of a PEM file.

    A file that others than its owner may read raises `RefusedError`, one without a key, or a host
    without what signs, `ConfigurationError`.
    """
    do = "openssl genpkey -algorithm ed25519 makes one"
    sign: Sign = _key_in(
        path, lambda pem: pem.load_pem_private_key(read_private(path, "this key"), password=None),
        "Ed25519PrivateKey", do,
    ).sign  # fmt: skip
    return sign


def checking_key(path: Path) -> Proves:
    """Return what checks signatures with the public Ed25519 key of a PEM file.

    A file without one, or a host without what checks, raises `ConfigurationError`.
    """
    do = "openssl pkey -in KEY -pubout makes it from the private one"
    found = _key_in(
        path, lambda pem: pem.load_pem_public_key(path.read_bytes()), "Ed25519PublicKey", do
    )
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

    def proves(body: bytes, signature: bytes) -> bool:
        try:
            found.verify(signature, body)
        except InvalidSignature:
            return False
        return True

    return proves


def _key_in(path: Path, load: Callable[[Any], Any], kind: str, do: str) -> Any:
    """Return the key that a PEM file holds, which *load* reads by what reads such."""
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  (slow)
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    except ImportError as error:
        why = "cryptography is not installed"
        raise ConfigurationError(
            "no signature can be made or checked", why, with_extra(_EXTRA)
        ) from error
    why = "it is not a PEM file with an Ed25519 key without a passphrase"
    try:
        found = load(serialization)
    except (OSError, ValueError, TypeError) as error:
        why = getattr(error, "strerror", None) or why
        raise ConfigurationError(f"{path} holds no usable key", why, do) from error
    if not isinstance(found, getattr(ed25519, kind)):
        raise ConfigurationError(f"{path} holds no usable key", why, do)
    return found


@dataclass(frozen=True, slots=True)
class Scratch:
    """What a drill has in a cluster, or is about to make there, and deletes in the end.

    *topics* has the id of each by its name; None as long as it is not known to be created.
    """

    id: str
    began_ms: int
    cluster_id: str
    topics: Mapping[str, str | None]
    groups: tuple[str, ...] = ()


def keep_scratch(store: Store, layout: Layout, scratch: Scratch) -> None:
    """Store what a drill is about to create, or with its topics' ids what it has created.

    If that fails, nothing may be created.
    """
    more = {"v": VERSION, "version": __version__}
    put_json(store, _scratch_key(layout, scratch.id), more | to_json(scratch))


def left_over(store: Store, layout: Layout) -> list[Scratch]:
    """Return what drills have kept that has not been forgotten, in the order of their ids.

    One that cannot be read, or names what no drill creates, raises `CorruptObjectError`: anybody
    may have written it, and what it names would be deleted.
    """
    prefix = folder(layout, "drills")
    found = []
    for entry in store.list(f"{prefix}scratch/"):
        if is_one := _SCRATCH.fullmatch(entry.key.removeprefix(prefix)):
            try:
                body = _read(store, entry.key)
            except ObjectNotFoundError:  # its drill has ended meanwhile
                continue
            own = f"{PREFIX}{is_one[1]}_"
            do = f"delete topics {own}... by hand if a drill made them, then this object"
            make = partial(_scratch, is_one[1], own)
            found.append(parse_json(entry.key, body, make, "topics of a drill", do))
    return found


def _scratch(drill_id: str, own: str, said: Mapping[str, Any]) -> Scratch:
    """Read what a drill has kept, whose topics and groups all begin with *own*."""
    given = known_fields(Scratch, said)
    topics, groups = dict(given["topics"]), tuple(given["groups"])
    if given["id"] != drill_id or not all(name.startswith(own) for name in (*topics, *groups)):
        raise ValueError(f"its id is not {drill_id}, or a name does not begin with {own}")
    return Scratch(**{**given, "topics": topics, "groups": groups})


def forget(store: Store, layout: Layout, drill_id: str) -> None:
    """Forget what a drill had in the cluster, once nothing of it is left."""
    store.delete(_scratch_key(layout, drill_id))


def scratch_topics(store: Store, layout: Layout) -> frozenset[str]:
    """Return the topics of drills at work, or killed, which no sink backs up: one listing.

    What cannot be read of them raises `CorruptObjectError`.
    """
    return frozenset(name for one in left_over(store, layout) for name in one.topics)


def _numbers(store: Store, layout: Layout, extension: str) -> set[int]:
    """Return the numbers of the reports, or of the signatures, that are there."""
    prefix = folder(layout, "drills")
    names = (_NAME.fullmatch(one.key.removeprefix(prefix)) for one in store.list(f"{prefix}0"))
    return {int(name[1]) for name in names if name is not None and name[2] == extension}


def _key(layout: Layout, number: int) -> str:
    return f"{folder(layout, 'drills')}{number:08d}.json"


def _signature(key: str) -> str:
    return f"{key.removesuffix('.json')}.sig"


def _scratch_key(layout: Layout, drill_id: str) -> str:
    return f"{folder(layout, 'drills')}scratch/{drill_id}.json"


def _read(store: Store, key: str) -> bytes:
    with store.open(key) as body:
        return body.read()


def _stored_sha256(store: Store, key: str) -> str | None:
    """Return the digest of a report, also of one that is damaged since."""
    try:
        return hashlib.sha256(_read(store, key)).hexdigest()
    except CorruptObjectError:
        head = store.head(key)
        return None if head is None else head.metadata.get("sha256")


def _parsed(key: str, body: bytes) -> DrillReport:
    return parse_json(key, body, DrillReport.from_dict, "report of a drill", _COPY)
