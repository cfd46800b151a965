"""Checks of the cluster: reachable, readable, and keeping records until they are backed up."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from kbackup.config import Settings
from kbackup.doctor import Check, failed
from kbackup.doctor.configuration import is_sink
from kbackup.errors import GroupActiveError, KafkaError, KbackupError, some
from kbackup.kafka import Cluster, Permissions, Topic
from kbackup.records import Span, TopicPartition
from kbackup.runs import wiring
from kbackup.runs.report import HeldUp
from kbackup.runs.selection import select

_DO: Final = "run kbackup sink now, and more often, or raise retention.ms"


@dataclass(frozen=True, slots=True)
class LogState:
    """What a topic still holds of its records that are not backed up yet.

    Attributes:
        topic: Its name.
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

    Args:
        logs: The topics.
        backups: For each topic the start of its last successful run; None if that is unknown.
        now: Aware.
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
    """Judge one topic.

    Args:
        log: The topic.
        backup: Start of its last successful run; None if there was none.
        now: Aware.
    """
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
        return Check("kafka", "retention", "ok", f"{keeps}, no good backup is on record yet")
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


def time_span(seconds: float) -> str:
    """Return a duration for people: ``24 h``, ``7 d``, ``90 s``."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


"""The most topics that a line names; the others are only counted."""


def checks(
    settings: Settings, backups: Mapping[str, datetime] | None, now: datetime
) -> Iterator[Check]:
    """Yield the checks of the cluster.

    Args:
        settings: As for a run.
        backups: For each topic the start of its last successful run; None if run records could
            not be read.
        now: Aware.
    """
    if settings.bootstrap_servers is None:
        do = "name the brokers: -k HOST:PORT"
        yield Check("kafka", "cluster", "warn", "not checked: no bootstrap.servers", do)
        return
    name = "client"
    try:
        yield _client(settings)
        name = "cluster"
        cluster = wiring.kafka_settings(settings).cluster()
        yield _cluster(cluster, settings)
        name = "topics"
        letters = settings.errors_deadletterqueue_topic_name
        available = [topic for topic in cluster.topic_names() if topic != letters]
        names = select(available, settings.topics, settings.topics_regex)
        topics = cluster.topics(names)
        yield _topics(settings, names, topics)
        if is_sink(settings) and topics and _is_chosen(settings):
            name = "permissions"
            yield _permissions(settings, list(topics))
            if settings.errors_tolerance == "all" and letters is not None:
                name = "dead letters"
                asked = wiring.kafka_settings(settings).permissions()
                yield dead_letters(letters, cluster, asked)
            name = "group"
            yield _group(settings, cluster)
            name = "retention"
            yield from retention_checks(_logs(settings, cluster, topics), backups, now)
    except KbackupError as error:
        yield failed("kafka", name, error)
        return
    why = "Kafka does not report its time"
    yield Check(
        "kafka", "clock", "warn", f"not checkable: {why}", "compare: date -u, on both hosts"
    )


def _client(settings: Settings) -> Check:
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


def _cluster(cluster: Cluster, settings: Settings) -> Check:
    text = f"{settings.bootstrap_servers} answers, cluster {cluster.cluster_id}"
    return Check("kafka", "cluster", "ok", text)


def _topics(settings: Settings, names: Sequence[str], topics: Collection[str]) -> Check:
    missing = [name for name in names if name not in topics]
    if missing and is_sink(settings):
        text = f"{some(missing)} missing, or hidden from this principal"
        do = "correct topics, create them, or allow DESCRIBE"
        return Check("kafka", "topics", "fail", text, do, KafkaError.code)
    if missing:
        return Check("kafka", "topics", "ok", f"{some(missing)} missing; a restore creates it")
    if settings.topics_regex is not None and not names:
        text = f"no topic matches {settings.topics_regex}"
        return Check("kafka", "topics", "warn", text, "correct topics.regex")
    text = f"{some(names)} there" if _is_chosen(settings) else f"{len(names)} found; none was named"
    return Check("kafka", "topics", "ok", text)


def _is_chosen(settings: Settings) -> bool:
    return bool(settings.topics) or settings.topics_regex is not None


def _permissions(settings: Settings, names: Sequence[str]) -> Check:
    permissions = wiring.kafka_settings(settings).permissions()
    allowed = permissions.of_topics(names)
    unread = [name for name in names if not {"READ", "DESCRIBE"} <= allowed[name]]
    unset = [name for name in names if "DESCRIBE_CONFIGS" not in allowed[name]]
    group = wiring.group(settings, "sink")
    denied = [f"topic {name}" for name in unread]
    if "READ" not in permissions.of_group(group):
        denied.append(f"group {group}")
    if denied:
        do = "allow this principal READ and DESCRIBE there"
        text = f"READ is denied on {some(denied)}"
        return Check("kafka", "permissions", "fail", text, do, KafkaError.code)
    if unset:
        text = f"DESCRIBE_CONFIGS is denied on {some(unset)}: retention cannot be watched"
        return Check("kafka", "permissions", "warn", text, "allow DESCRIBE_CONFIGS on topics")
    return Check("kafka", "permissions", "ok", f"may read {some(names)} and use group {group}")


def dead_letters(topic: str, cluster: Cluster, permissions: Permissions) -> Check:
    """Return whether *topic* can keep records that do not fit: if not, a run ends."""
    name = "dead letters"
    if topic not in cluster.topics([topic]):
        return Check("kafka", name, "ok", f"{topic} missing, or hidden; a run creates it")
    if "WRITE" not in permissions.of_topics([topic])[topic]:
        text, do = f"WRITE is denied on {topic}", "allow this principal WRITE and DESCRIBE there"
        return Check("kafka", name, "fail", text, do, KafkaError.code)
    return Check("kafka", name, "ok", f"may write to {topic}")


def _group(settings: Settings, cluster: Cluster) -> Check:
    group = wiring.group(settings, "sink")
    members = cluster.members(group)
    if members:
        text = f"{group} has live members, so a run would refuse it: {some(members)}"
        do = "stop the connector that uses it, or choose another --group"
        return Check("kafka", "group", "fail", text, do, GroupActiveError.code)
    return Check("kafka", "group", "ok", f"{group} has no live members")


def _logs(settings: Settings, cluster: Cluster, topics: Mapping[str, Topic]) -> list[LogState]:
    wanted = settings.partitions
    wheres = [
        TopicPartition(topic.name, partition)
        for topic in topics.values()
        for partition in range(topic.partitions)
        if wanted is None or partition in wanted
    ]
    ends = cluster.ends(wheres)
    spans, now = cluster.spans(wheres), datetime.now(UTC).timestamp()
    committed = cluster.committed(wiring.group(settings, "sink"), wheres)
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
        retention_ms = _retention_ms(configs.get(name, {}))
        found.append(LogState(name, retention_ms, expired, is_pending, held_up))
    return found


def _retention_ms(config: Mapping[str, str]) -> int | None:
    if "delete" not in config.get("cleanup.policy", "delete"):
        return None
    retention = int(config.get("retention.ms", -1))
    return retention if retention >= 0 else None
