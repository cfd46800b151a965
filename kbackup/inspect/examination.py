"""Run all checks in order, the cheapest first: those of Kafka, store and registry are here."""

import hashlib
import io
import logging
import secrets
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from kbackup.catalog import access, identity
from kbackup.catalog.access import AccessBundle
from kbackup.catalog.keys import Encryption
from kbackup.clock import time_span
from kbackup.config import ConfigIssue, Settings
from kbackup.config.running import NO_GROUPS
from kbackup.config.settings import PLACES
from kbackup.connect.registry import URL, RegistrySettings, connect, settings_of
from kbackup.errors import GroupActiveError, KafkaError, KbackupError, counted, form, some
from kbackup.inspect import Check, doubt, failed, not_made
from kbackup.inspect.host import (
    avro_reader,
    disk_space,
    is_sink,
    losses,
    package,
    spark_checks,
)
from kbackup.kafka import Cluster, GroupList, Permissions, Topic, deletes_older_than
from kbackup.naming import Layout
from kbackup.records import Span
from kbackup.runs import history, wiring
from kbackup.runs.report import HeldUp
from kbackup.spark.java import FindJava
from kbackup.stores import Bucket, BucketFacts, LifecycleRule, Store, Untold, open_store

_PAST: Final = 100
"""The most run records that are read to find a topic's last successful run."""


def examine(
    settings: Settings,
    doubts: Sequence[ConfigIssue],
    find_java: FindJava,
    *,
    writes: bool = False,
    starts: bool = True,
    stop: threading.Event | None = None,
) -> Iterator[Check]:
    """Yield one check after the other.

    If *doubts* include an error, *settings* are not used, and neither cluster nor store is
    contacted.  *find_java* raises `JavaNotFoundError` where there is none.  *writes*: put probe
    objects into the store, and delete them; *starts*: start Spark as a trial.
    """
    stop = stop or threading.Event()
    parts: list[Iterator[Check]] = [
        _configuration(settings, doubts),
        iter([disk_space(settings)]),
    ]
    if any(doubt.level == "error" for doubt in doubts):
        why = "the configuration is wrong"
        parts.append(iter([not_made("store", "bucket", why), not_made("kafka", "cluster", why)]))
    else:
        parts.append(_services(settings, writes=writes))
    engine = wiring.engine_settings(settings, None)
    parts.append(spark_checks(find_java, engine, starts=starts, stop=stop))
    for part in parts:
        for check in part:
            if stop.is_set():
                return
            yield check


def _configuration(settings: Settings, doubts: Sequence[ConfigIssue]) -> Iterator[Check]:
    yield from map(doubt, doubts)
    yield from losses(settings)
    if not doubts:
        yield Check("configuration", "names and values", "ok", "nothing wrong with them")
    yield avro_reader()
    if (stranger := package()) is not None:
        yield stranger


def _services(settings: Settings, *, writes: bool) -> Iterator[Check]:
    opened = open_for(settings)
    backups, backup = None, wiring.address(settings)
    if isinstance(opened, Check):
        yield opened
    else:
        readable = True
        for check in store_checks(opened, settings, writes=writes):
            readable &= check.level != "fail" or check.name != "readable"
            yield check
        if readable:
            backups = last_backups(opened, settings, datetime.now(UTC))
            backup = identity.read(opened, wiring.layout(settings), backup.address)
    group = wiring.group(settings, backup, "sink")
    yield from kafka_checks(settings, backups, datetime.now(UTC), group)
    yield from registry_checks(settings)


def last_backups(opened: Store, settings: Settings, now: datetime) -> dict[str, datetime] | None:
    """Return the start of each topic's last successful run, None if records cannot be read."""
    found: dict[str, datetime] = {}
    try:
        records = history.runs(opened, wiring.layout(settings), "sink", now=now)
        for record in islice(records, _PAST):
            success = record.success if record.vouches_for(settings.partitions) else None
            if success is not None and success <= now + history.CLOCKS:
                for row in record.rows:
                    found.setdefault(row.where.topic, success)
    except KbackupError:
        return None
    return found


_DO: Final = "run kbackup sink now, and more often, or raise retention.ms"


@dataclass(frozen=True, slots=True)
class LogState:
    """What a topic still holds of its records that are not backed up yet.

    Attributes:
        retention_ms: How long records are kept; None: for ever, or until a newer one of the key.
        expired: Offsets that expired before they were backed up, by partition.
        is_pending: Whether it has records after the group's position.
        held_up: Where an open transaction holds its backup up, by partition.
    """

    topic: str
    retention_ms: int | None
    expired: Mapping[int, Span]
    is_pending: bool
    held_up: Mapping[int, HeldUp] = field(default_factory=dict)


def retention_checks(
    logs: Sequence[LogState], backups: Mapping[str, datetime] | None, now: datetime
) -> Iterator[Check]:
    """Yield a check for each topic at risk, and one for all the others.

    *backups* has for each topic the start of its last successful run; None if that is unknown.
    """
    for log in logs:
        yield from _held_up(log)
    if backups is None:
        text = "not checked against the age of the backup: its run records cannot be read"
        yield Check("kafka", "retention", "warn", text)
        return
    found = [judge(log, backups.get(log.topic), now) for log in logs]
    yield from (check for check in found if check.level != "ok")
    good = [check for check in found if check.level == "ok"]
    if len(good) > 1:
        text = f"{len(good)} topics keep their records long enough"
        yield Check("kafka", "retention", "ok", text)
    else:
        yield from good


def judge(log: LogState, backup: datetime | None, now: datetime) -> Check:
    """Judge one topic; *backup* is the start of its last successful run, None if there was none."""
    if log.expired:
        partition, span = next(iter(log.expired.items()))
        text = (
            f"{log.topic}: offsets {span.start_offset} to {span.end_offset - 1} of partition "
            f"{partition} have expired before they were backed up: data is being lost"
        )
        return Check("kafka", "retention", "fail", text, _DO)
    if log.retention_ms is None:
        return Check("kafka", "retention", "ok", f"{log.topic} keeps records for ever")
    keeps = f"{log.topic} keeps {time_span(log.retention_ms / 1000)}"
    if backup is None:
        return Check("kafka", "retention", "ok", f"{keeps}, and no sink has backed it up yet")
    age_s = max(0.0, (now - backup).total_seconds())
    text = f"{keeps}, last good backup {time_span(age_s)} ago"
    if not log.is_pending:
        return Check("kafka", "retention", "ok", f"{text}, nothing new since")
    used = age_s * 1000 / max(log.retention_ms, 1)
    if used > 1:
        return Check("kafka", "retention", "fail", f"{text}: data is being lost", _DO)
    is_late = used > 0.5
    text += ": half of that time has passed" if is_late else ""
    return Check("kafka", "retention", "warn" if is_late else "ok", text, _DO if is_late else "")


def _held_up(log: LogState) -> Iterator[Check]:
    """Yield what an open transaction keeps from a topic's backup, for one of its partitions."""
    for partition, held_up in [*log.held_up.items()][:1]:
        text = (
            f"{log.topic}: an open transaction holds partition {partition} up at offset "
            f"{held_up.offset}; {held_up.behind:,} offsets behind it are not in the backup"
        )
        do = "if it stays open, see kafka-transactions.sh find-hanging"
        yield Check("kafka", "transactions", "warn", text, do)


def kafka_checks(
    settings: Settings, backups: Mapping[str, datetime] | None, now: datetime, group: str
) -> Iterator[Check]:
    """Yield the checks of the cluster."""
    if settings.bootstrap_servers is None:
        do = "name the brokers: -k HOST:PORT"
        yield not_made("kafka", "cluster", "no bootstrap.servers", do)
        return
    name = "client"
    try:
        yield _client(settings)
        name = "cluster"
        cluster = wiring.kafka_settings(settings).cluster()
        text = f"{settings.bootstrap_servers} answers, cluster {cluster.cluster_id}"
        yield Check("kafka", "cluster", "ok", text)
        name = "topics"
        letters = settings.errors_deadletterqueue_topic_name
        available = [topic for topic in cluster.topic_names() if topic != letters]
        names = settings.asked.topics(available)
        topics = cluster.topics(names)
        yield _topics(settings, available, topics)
        if is_sink(settings) and topics and _is_chosen(settings):
            name = "permissions"
            yield _permissions(settings, list(topics), group)
            if settings.errors_tolerance == "all" and letters is not None:
                name = "dead letters"
                asked = wiring.kafka_settings(settings).permissions()
                yield dead_letters(letters, cluster, asked)
            name = "group"
            yield _group(cluster, group)
            if settings.groups != NO_GROUPS:
                name = "consumer groups"
                with closing(wiring.kafka_settings(settings).consumer_groups()) as clients:
                    yield consumer_groups(clients.listed())
            if settings.cluster_capture:
                name = "cluster capture"
                with closing(wiring.kafka_settings(settings).access()) as asked_of:
                    yield cluster_capture(*access.take_bundle(asked_of, 0))
            name = "retention"
            yield from retention_checks(_logs(settings, cluster, topics, group), backups, now)
    except KbackupError as error:
        yield failed("kafka", name, error)
        return
    why = "Kafka does not report its time"
    yield Check("kafka", "clock", "warn", f"not checkable: {why}", "compare date -u on both hosts")


def _client(settings: Settings) -> Check:
    if wiring.stores_batches(settings):
        wiring.check_batches(settings)
        return Check("kafka", "client", "ok", "batches pass as brokers store them")
    if is_sink(settings) and wiring.kafka_settings(settings).reads_batches:
        return Check("kafka", "client", "ok", "records are unpacked from batches, in the C library")
    way = wiring.kafka_way(settings)
    if way.is_native:
        return Check("kafka", "client", "ok", "records pass in columns, through the C library")
    if not way.why:
        return Check("kafka", "client", "ok", "records pass as Python objects, as configured")
    return Check(
        "kafka",
        "client",
        "warn",
        f"records pass as Python objects, at half the speed: {way.why}",
        "install kbackup where there is a C compiler (cc), or from a wheel for this platform",
    )


def _topics(settings: Settings, available: Collection[str], topics: Collection[str]) -> Check:
    if is_sink(settings) and not settings.follow:
        settings.asked.check_exclusion(available)
    names = settings.asked.topics(available)
    missing = [name for name in names if name not in topics]
    if missing and is_sink(settings):
        text = f"{some(missing)} missing, or hidden from this principal"
        do = "correct topics, create them, or allow DESCRIBE"
        return Check("kafka", "topics", "fail", text, do, KafkaError.code)
    if missing:
        them = form(len(missing), "it", "them")
        return Check("kafka", "topics", "ok", f"{some(missing)} missing; a restore creates {them}")
    if settings.topics_regex is not None and not names:
        text = f"no topic matches {', '.join(settings.asked.words)}"
        do = "correct topics.regex" + (" or topics.exclude" if settings.topics_exclude else "")
        return Check("kafka", "topics", "warn", text, do)
    text = f"{some(names)} found" if _is_chosen(settings) else f"{len(names)} found; none was named"
    return Check("kafka", "topics", "ok", text)


def _is_chosen(settings: Settings) -> bool:
    return bool(settings.topics) or settings.topics_regex is not None


def _permissions(settings: Settings, names: Sequence[str], group: str) -> Check:
    permissions = wiring.kafka_settings(settings).permissions()
    allowed = permissions.of_topics(names)
    unread = [name for name in names if not {"READ", "DESCRIBE"} <= allowed[name]]
    unset = [name for name in names if "DESCRIBE_CONFIGS" not in allowed[name]]
    denied = [f"topic {name}" for name in unread]
    if "READ" not in permissions.of_group(group):
        denied.append(f"group {group}")
    if denied:
        do = "allow this principal READ and DESCRIBE on each (kafka-acls)"
        text = f"READ or DESCRIBE is denied on {some(denied)}"
        return Check("kafka", "permissions", "fail", text, do, KafkaError.code)
    if unset:
        text = f"DESCRIBE_CONFIGS is denied on {some(unset)}: retention cannot be watched"
        return Check("kafka", "permissions", "warn", text, "allow DESCRIBE_CONFIGS on topics")
    return Check("kafka", "permissions", "ok", f"may read {some(names)} and use group {group}")


def consumer_groups(listed: GroupList) -> Check:
    """Return whether a sink can capture where all consumer groups stand."""
    name, found = "consumer groups", counted(len(listed.groups), "group")
    if listed.is_complete:
        return Check("kafka", name, "ok", f"{found} in the cluster, all of them visible")
    text = f"{found} visible, maybe not all: DESCRIBE is denied on the cluster"
    return Check("kafka", name, "warn", text, "allow DESCRIBE on the cluster, or set groups=none")


_PARTS: Final = {"acls": "ACL", "users": "SCRAM user", "settings": "broker setting"}


def cluster_capture(found: AccessBundle, failures: Mapping[str, str]) -> Check:
    """Return whether a sink can capture ACLs, users and broker settings."""
    name, lacking = "cluster capture", found.missing.keys() - failures.keys()
    if failures:
        why = "; ".join(dict.fromkeys(failures.values()))
        text = f"{', '.join(f'{_PARTS[part]}s' for part in failures)} cannot be captured: {why}"
        do = "allow DESCRIBE and DESCRIBE_CONFIGS on the cluster, or set cluster.capture=false"
        return Check("kafka", name, "warn", text, do)
    counts = {noun: getattr(found, part) for part, noun in _PARTS.items()}
    there = [counted(len(each), noun) for noun, each in counts.items() if each is not None]
    said = [f"no {_PARTS[part]}s: {found.missing[part]}" for part in sorted(lacking)]
    return Check("kafka", name, "ok", "; ".join([f"may capture {', '.join(there)}", *said]))


def dead_letters(topic: str, cluster: Cluster, permissions: Permissions) -> Check:
    """Return whether *topic* can keep records that do not fit: if not, a run ends."""
    name = "dead letters"
    if topic not in cluster.topics([topic]):
        return Check("kafka", name, "ok", f"{topic} missing, or hidden; a run creates it")
    if "WRITE" not in permissions.of_topics([topic])[topic]:
        text, do = (
            f"WRITE is denied on {topic}",
            "allow this principal WRITE and DESCRIBE on it (kafka-acls)",
        )
        return Check("kafka", name, "fail", text, do, KafkaError.code)
    return Check("kafka", name, "ok", f"may write to {topic}")


def _group(cluster: Cluster, group: str) -> Check:
    members = cluster.members(group)
    if members:
        text = f"{group} has live members, so a run would refuse it: {some(members)}"
        do = "stop the connector that uses it, or choose another --group"
        return Check("kafka", "group", "fail", text, do, GroupActiveError.code)
    return Check("kafka", "group", "ok", f"{group} has no live members")


def _logs(
    settings: Settings, cluster: Cluster, topics: Mapping[str, Topic], group: str
) -> list[LogState]:
    wheres = [
        where
        for topic in topics.values()
        for where in topic.wheres
        if settings.asked.has(where.partition)
    ]
    ends = cluster.ends(wheres)
    spans, now = cluster.spans(wheres), datetime.now(UTC).timestamp()
    committed = cluster.committed(group, wheres)
    configs = cluster.topic_config(topics)
    found = []
    for name in topics:
        expired, held_up, is_pending = {}, {}, False
        for where in (where for where in wheres if where.topic == name):
            span, position = spans[where], committed.get(where)
            start = span.start_offset if position is None else position.offset
            is_pending |= start < span.end_offset
            if start < span.start_offset:
                expired[where.partition] = Span(start, span.start_offset)
            if (seen := HeldUp.of(span, ends[where], now)) is not None:
                held_up[where.partition], is_pending = seen, True
        retention_ms = deletes_older_than(configs.get(name, {}))
        found.append(LogState(name, retention_ms, expired, is_pending, held_up))
    return found


_log: Final = logging.getLogger(__name__)

_EXACT_S: Final = 2.0
"""Servers report their time in whole seconds, and an answer takes a while."""

_CLOCKS_S: Final = 30.0
"""How far clocks may differ before a warning."""

_REFUSED_S: Final = 900.0
"""How far clocks may differ before S3 refuses requests."""

_UNTOLD: Final = "not checkable"


def open_for(settings: Settings) -> Store | Check:
    """Return the store, or why there is none to check."""
    if not settings.url:
        do = "name the bucket, -b BUCKET, or a folder, --store-url file:///FOLDER"
        return not_made("store", "bucket", f"no {PLACES[0].name}", do)
    try:
        return open_store(wiring.store_settings(settings))
    except KbackupError as error:
        return failed("store", "bucket", error)


def store_checks(store: Store, settings: Settings, *, writes: bool) -> Iterator[Check]:
    """Yield the checks of the store; *writes* puts probes beside run records, and deletes them."""
    layout = wiring.layout(settings)
    readable = _listed(store, settings, layout)
    yield readable
    if readable.level == "fail":
        return  # no other request would be answered
    yield from _recipients(store, settings)
    ahead = None
    if writes:
        written, ahead = _probe(store, settings, layout)
        yield from written
    if isinstance(store, Bucket):
        try:
            facts = store.bucket_facts()
        except KbackupError as error:
            yield failed("store", "facts", error)
            return
        yield _clock(facts.clock_ahead_s, facts.untold.get("clock_ahead_s", ""))
        yield from _facts(facts, layout)
    else:
        yield _clock(ahead, "" if writes else "without --write-probe")
    if isinstance(store, Untold):
        what, do = store.untold()
        yield Check("store", "retention", "warn", f"{_UNTOLD}: {what}", do)


def _recipients(store: Store, settings: Settings) -> Iterator[Check]:
    """Yield whether a lost private key would be a lost backup, where it is encrypted."""
    encryption = wiring.store_settings(settings).wrapper
    if not isinstance(encryption, Encryption):
        return
    try:
        encryption.wrap(store)
        found = len(encryption.recipients(store))
    except KbackupError as error:
        yield failed("store", "encryption", error)
        return
    text = f"{counted(found, 'recipient')} can decrypt what is stored"
    if found > 1:
        yield Check("store", "encryption", "ok", text)
    else:
        do = "add one whose private key is kept elsewhere: kbackup keys add"
        yield Check("store", "encryption", "warn", f"{text}: a lost key is a lost backup", do)


def _listed(store: Store, settings: Settings, layout: Layout) -> Check:
    where = f"{settings.url}/{layout.prefix()}"
    try:
        first = next(iter(store.list(layout.prefix())), None)
        if first is None:
            return Check("store", "readable", "ok", f"{where} can be listed; it holds nothing yet")
        store.head(first.key)  # needs the right to read it
    except KbackupError as error:
        return failed("store", "readable", error)
    return Check("store", "readable", "ok", f"{where} can be listed and read")


def _probe(store: Store, settings: Settings, layout: Layout) -> tuple[list[Check], float | None]:
    """Write, read and delete probes; also return how far the store's clock is ahead, in seconds."""
    key = f"{layout.records_prefix()}probe-{secrets.token_hex(8)}"
    body = b"kbackup doctor was here\n"
    sha256 = hashlib.sha256(body).hexdigest()
    done, found = ["put", "head", "delete"], []
    try:
        store.put(key, io.BytesIO(body), sha256=sha256, metadata={})
        now = datetime.now(UTC)
        head = store.head(key)
        if isinstance(store, Bucket):
            store.probe_upload(key)
            done[2:2] = ["upload in parts", "abort"]
            found.append(_conditions(store.probe_conditions(key)))
        store.delete(key)
    except KbackupError as error:
        _remove(store, key)
        return [failed("store", "writable", error)], None
    if head is None or head.size != len(body):
        why = f"{settings.url}/{key} was stored, but cannot be found"
        return [Check("store", "writable", "fail", why, "do not use this store")], None
    text = f"{settings.url}: {', '.join(done)}"
    written = Check("store", "writable", "ok", text)
    return [written, *found], (head.modified - now).total_seconds()


def _conditions(missing: tuple[str, ...]) -> Check:
    if not missing:
        text = "an object is stored or replaced only if no other run got there first"
        return Check("store", "conditional writes", "ok", text)
    text = (
        f"the server ignores {', '.join(missing)}: when two runs meet, an object may be replaced "
    )
    text += "by one with fewer records"
    do = "do not use --no-lock, and make sure that no other tool writes to this topics.dir"
    return Check("store", "conditional writes", "warn", text, do)


def _remove(store: Store, key: str) -> None:
    """Delete what a failed probe may have left; the first error matters more than one here."""
    try:
        store.delete(key)
    except KbackupError as error:
        _log.warning("the probe object %s may remain: %s", key, error)


def _clock(ahead_s: float | None, why: str) -> Check:
    do = "set the clock of this host, or of the store"
    if ahead_s is None:
        return Check("store", "clock", "warn", f"{_UNTOLD}{f': {why}' if why else ''}")
    text = f"the store's is {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}"
    if abs(ahead_s) <= _EXACT_S:
        return Check("store", "clock", "ok", "the store's is the same as this host's")
    if abs(ahead_s) > _REFUSED_S:
        return Check("store", "clock", "fail", text, do)
    if abs(ahead_s) > _CLOCKS_S:
        return Check("store", "clock", "warn", text, do)
    return Check("store", "clock", "ok", text)


def _facts(facts: BucketFacts, layout: Layout) -> Iterator[Check]:
    def untold(name: str, attribute: str) -> Check:
        return Check("store", name, "warn", f"{_UNTOLD}: {facts.untold.get(attribute, '')}")

    if facts.versioning is None:
        yield untold("versioning", "versioning")
    elif facts.versioning == "Enabled":
        yield Check("store", "versioning", "ok", "on")
    else:
        text = "off: an object that is deleted or overwritten by mistake is gone"
        yield Check("store", "versioning", "warn", text, "turn on versioning for the bucket")
    if facts.object_lock is None:
        yield untold("object lock", "object_lock")
    elif facts.lock_days and not facts.object_lock:
        text = f"objects are to be locked for {counted(facts.lock_days, 'day')}, and the bucket "
        text += "has no Object Lock: it would refuse them"
        do = "use a bucket with Object Lock, or leave out s3.object.lock.*"
        yield Check("store", "object lock", "fail", text, do)
    else:
        yield Check("store", "object lock", "ok", facts.object_lock or "off")
    if facts.rules is None:
        yield untold("lifecycle", "rules")
    else:
        yield from _lifecycle(facts, layout)


def _lifecycle(facts: BucketFacts, layout: Layout) -> Iterator[Check]:
    keys, rules = layout.prefix(), facts.rules or ()
    aborting = [
        rule for rule in rules if rule.abort_days is not None and keys.startswith(rule.prefix)
    ]
    if aborting:
        days = counted(aborting[0].abort_days or 0, "day")
        text = f"unfinished uploads are aborted after {days}"
        yield Check("store", "lifecycle", "ok", text)
    else:
        text = "what a killed run leaves of an unfinished upload is kept, and billed, for ever"
        do = "add a lifecycle rule: AbortIncompleteMultipartUpload after 7 days"
        yield Check("store", "lifecycle", "warn", text, do)
    ours = [one for one in rules if keys.startswith(one.prefix) or one.prefix.startswith(keys)]
    yield from _versions(facts, ours)
    for rule in ours:
        if rule.expire_days is not None:
            text = f"rule {rule.name} deletes objects under {rule.prefix or 'any key'} "
            text += f"after {counted(rule.expire_days, 'day')}: a restore will find them missing"
            if rule.expire_days < facts.lock_days:
                text += f", though their lock lasts {counted(facts.lock_days, 'day')}"
            yield Check("store", "expiration", "warn", text, "exclude the backup from the rule")


def _versions(facts: BucketFacts, ours: Sequence[LifecycleRule]) -> Iterator[Check]:
    """Yield how long a versioned bucket keeps what was deleted or overwritten."""
    if facts.versioning != "Enabled":
        return
    kept = "what is deleted or overwritten is kept"
    days, name = min(
        ((rule.version_days, rule.name) for rule in ours if rule.version_days is not None),
        default=(None, ""),
    )
    if days is None:
        yield Check("store", "versions", "ok", f"{kept}, and billed, until somebody deletes it")
    elif days < facts.lock_days:
        text = f"{kept} for {counted(days, 'day')} by rule {name}, and the lock of a new object "
        text += f"lasts {counted(facts.lock_days, 'day')}: an old one is lost sooner"
        do = "let the rule keep versions for as long as an attack may go unnoticed"
        yield Check("store", "versions", "warn", text, do)
    else:
        yield Check("store", "versions", "ok", f"{kept} for {counted(days, 'day')}, by rule {name}")


_NOBODYS: int = 0
"""An id that no schema has: requesting it needs only the right to read."""


def registry_checks(settings: Settings) -> Iterator[Check]:
    """Yield a check of each registry that is used, once for all of its uses."""
    asked: dict[RegistrySettings, list[str]] = {}
    given = wiring.schema_registry(settings)
    if given is not None:
        asked[given] = ["records"]
    parts = [("value", settings.value_converter_properties)] if settings.view != "record" else []
    if parts and settings.store_kafka_keys:
        parts.insert(0, ("key", settings.key_converter_properties))
    for part, properties in parts:
        if URL.of(properties):
            asked.setdefault(settings_of(properties), []).append(part)
    for registry, names in asked.items():
        yield _readable(registry, " and ".join(names))


def _readable(registry: RegistrySettings, name: str) -> Check:
    try:
        connect(replace(registry, retries=0)).schema(_NOBODYS)
    except KbackupError as error:
        return failed("registry", name, error)
    return Check("registry", name, "ok", f"{registry.name} answers, and schemas can be read")
