"""Ask a cluster about topics, offsets, groups and permissions; change all but permissions."""

import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicCollection,
)
from confluent_kafka import KafkaError as Code
from confluent_kafka import (
    TopicPartition as ClientPartition,
)
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import NewTopic as Asked

from kbackup.errors import ConfigurationError, KafkaError, KbackupError, RefusedError, counted
from kbackup.kafka import NO_ENDS, PATIENCE_S, SETTLE_S, KafkaSettings, NewTopic, Position, Topic
from kbackup.kafka.brokers import address_of
from kbackup.kafka.client import (
    CLIENT_LOG,
    REQUEST_TIMEOUTS,
    SPARE_S,
    Administrator,
    code_of,
    kafka_error,
    patiently,
    position_of,
)
from kbackup.kafka.wire import speaks
from kbackup.kafka.writer import NUMBERS
from kbackup.records import Span, TopicPartition

PARTITIONS_MOST: Final = 1_000
"""Partitions of the topics of a request: a controller writes all that one asks for at once, and
takes no more than 10,000 changes, the topics' settings among them."""

TOPICS_MOST: Final = 200


def _refused(topic: NewTopic, what: str, error: KafkaError) -> KbackupError:
    """Return what it means that the cluster did not create a topic."""
    match code_of(error):
        case Code.TOPIC_ALREADY_EXISTS:
            why = "someone has created it since this run looked"
            do = "run it again: it judges what is there then"
            return RefusedError(what, why, do, topic=topic.name)
        case Code.INVALID_CONFIG:
            do = "correct --topic-config, or the setting in the target cluster"
            return ConfigurationError(what, error.why, do, topic=topic.name)
    return error


def _shares(topics: Sequence[NewTopic]) -> Iterator[list[NewTopic]]:
    """Yield the topics of each request; one with many partitions goes alone."""
    share: list[NewTopic] = []
    for topic in topics:
        partitions = sum(each.partitions for each in share) + topic.partitions
        if share and (len(share) == TOPICS_MOST or partitions > PARTITIONS_MOST):
            yield share
            share = []
        share.append(topic)
    if share:
        yield share


_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_LOOK_S: Final = 0.02


def _settled(ask: Callable[[], _T], is_settled: Callable[[_T], bool]) -> _T:
    """Return what *ask* returns once it is settled, or at the latest after `SETTLE_S`."""
    deadline = time.monotonic() + SETTLE_S
    while not is_settled(found := ask()) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return found


_SOON_S: Final = 2.0
"""How long a cluster may take to answer first before it is looked at what listens there."""

_LOOKED_AT: Final = 3
"""Servers that are looked at: they are of one listener."""

_FIRST_ASK_S: Final = 3.0
"""How long offsets are waited for before the client looks up the leaders again.  It asks those that
it knows: where one has died meanwhile it waits for all of the time that it is given, and says of
that one's partitions that their offset is -1001, which is no error to it.
"""

_OF_THE_TOPIC: Final = (
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value,  # what the client's C code makes of it
)

_NO_ID: Final = "A" * 22
"""Sixteen zero bytes in base64: what a broker that has no topic ids answers."""


class KafkaCluster(Administrator):
    """One Kafka cluster, seen by an administrator's client.

    Raises:
        KafkaError: From the constructor, if no broker answers within the timeout.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        check_properties(settings)
        super().__init__(settings)
        what = f"connecting to Kafka at {settings.bootstrap_servers}"
        found = self._calls(what, lambda: self._connected(what))
        self.cluster_id: str = found.cluster_id or ""
        self.brokers = len(found.brokers)
        self._names = sorted(found.topics)

    def _connected(self, what: str) -> Any:
        """Return the first answer; where none comes soon, see whether only one side speaks TLS."""
        with suppress(KafkaException):
            return self._admin.list_topics(timeout=min(_SOON_S, self._timeout_s))
        # the client would try again and again, and say that the broker disconnects
        protocol = self._settings.admin.get("security.protocol", "PLAINTEXT").upper()
        has_tls = protocol.endswith("SSL")
        for server in self._settings.bootstrap_servers.split(",")[:_LOOKED_AT]:
            if speaks(*address_of(server), has_tls=not has_tls):
                why = f"{server} speaks {'no ' * has_tls}TLS, and security.protocol is {protocol}"
                do = "name the port that speaks TLS, or set security.protocol={}PLAINTEXT"
                if not has_tls:
                    do = "set security.protocol={}SSL"
                raise KafkaError(what, why, do.format("SASL_" * protocol.startswith("SASL")))
        return self._metadata()

    def _metadata(self) -> Any:
        try:
            return self._admin.list_topics(timeout=self._timeout_s)
        except KafkaException:
            self._admin.poll(0)  # the client says why, such as an unknown host, when it is asked
            raise

    def topic_names(self) -> list[str]:
        """Return the names of all topics that this principal may see, sorted."""
        return list(self._names)

    def refresh(self) -> None:
        """Ask for the names of topics again: `Cluster.refresh`."""
        self._names = sorted(self._calls("listing topics", self._metadata).topics)

    def topics(
        self, names: Iterable[str], failures: dict[str, KafkaError] | None = None
    ) -> dict[str, Topic]:
        """Describe those of *names* that exist: `Cluster.topics`."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self._admin.describe_topics(
            TopicCollection(wanted), request_timeout=self._timeout_s
        )
        found: dict[str, Topic] = {}
        for name, future in futures.items():
            try:
                described = future.result()
            except KafkaException as error:
                if error.args[0].code() == Code.UNKNOWN_TOPIC_OR_PART:
                    continue
                ours = kafka_error(f"describing topic {name}", error, self._complaints)
                if failures is None or ours.is_away:
                    raise ours from error
                failures[name] = ours
                continue
            leaderless = frozenset(at.id for at in described.partitions if at.leader is None)
            topic_id = _known_id(described.topic_id)
            found[name] = Topic(name, len(described.partitions), topic_id, leaderless)
        return found

    def spans(
        self, wheres: Sequence[TopicPartition], *, committed_only: bool = True
    ) -> dict[TopicPartition, Span]:
        """Ask where each log begins and ends: `Cluster.spans`."""
        low = self._offsets(dict.fromkeys(wheres, OffsetSpec.earliest()), committed_only=False)
        high = self._offsets(
            dict.fromkeys(wheres, OffsetSpec.latest()), committed_only=committed_only
        )
        return {where: Span(low[where], max(low[where], high[where])) for where in wheres}

    def ends(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where each partition's log ends, behind open transactions."""
        return self._offsets(dict.fromkeys(wheres, OffsetSpec.latest()), committed_only=False)

    def first_since(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Ask for the first records of times: `Cluster.first_since`."""
        specs = {where: OffsetSpec.for_timestamp(ms) for where, ms in times.items()}
        found = self._offsets(specs, committed_only=False, may_lack=True)
        return {where: offset for where, offset in found.items() if offset >= 0}

    def settled_spans(
        self,
        wheres: Sequence[TopicPartition],
        at_least: Mapping[TopicPartition, int] = NO_ENDS,
        wait_s: float = SETTLE_S,
    ) -> dict[TopicPartition, Span]:
        """Return `spans` once what has ended is visible in them: `Cluster.settled_spans`.

        A commit is answered before its markers are written, so the last stable offset lags for a
        moment after a transaction that was committed.  A broker that has just become a leader
        knows what was acknowledged, but not at once that it was: it answers with an older end.
        """
        begin = time.monotonic()
        while True:
            try:
                settled = self.spans(wheres)
                ends = self.ends(wheres)
            except KafkaError:  # a partition may be without a leader for a while
                if time.monotonic() - begin > PATIENCE_S:
                    raise
                time.sleep(_LOOK_S)
                continue
            is_settled = all(settled[where].end_offset == end for where, end in ends.items())
            is_seen = all(ends[where] >= end for where, end in at_least.items())
            if time.monotonic() - begin > (wait_s if is_seen else PATIENCE_S):
                return settled
            if is_settled and is_seen:
                return settled
            time.sleep(_LOOK_S)

    def wait_for(self, ends: Mapping[TopicPartition, int], wait_s: float = SETTLE_S) -> None:
        """Wait for transactions that are open before *ends*: `Cluster.wait_for`."""
        deadline = time.monotonic() + wait_s
        left = list(ends)
        while True:
            stable = self._offsets(dict.fromkeys(left, OffsetSpec.latest()), committed_only=True)
            left = [where for where, offset in stable.items() if offset < ends[where]]
            if not left or time.monotonic() > deadline:
                return
            time.sleep(_LOOK_S)

    def _offsets(
        self,
        specs: Mapping[TopicPartition, Any],
        *,
        committed_only: bool,
        may_lack: bool = False,
    ) -> dict[TopicPartition, int]:
        if not specs:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        asked = {ClientPartition(w.topic, w.partition): spec for w, spec in specs.items()}
        timeout_s = self._timeout_s

        tries = itertools.count()

        def ask() -> dict[TopicPartition, int]:
            is_first = not next(tries)
            if not is_first:  # the client may remember another topic, or a leader that is gone
                self._admin.list_topics(timeout=timeout_s)
            futures = self._admin.list_offsets(
                asked,
                isolation_level=level,
                request_timeout=min(timeout_s, _FIRST_ASK_S) if is_first else timeout_s,
            )
            try:
                found = {
                    TopicPartition(at.topic, at.partition): int(
                        future.result(timeout=timeout_s + SPARE_S).offset
                    )
                    for at, future in futures.items()
                }
            except KafkaException as error:
                if is_first and error.args[0].code() == Code._TIMED_OUT:  # noqa: SLF001
                    raise KafkaException(Code(Code.LEADER_NOT_AVAILABLE)) from error
                raise
            # a leader has not answered, or has no record of that time
            if not may_lack and any(offset < 0 for offset in found.values()):
                raise KafkaException(Code(Code.LEADER_NOT_AVAILABLE))
            return found

        what = f"reading offsets of {counted(len(asked), 'partition')}"
        found: dict[TopicPartition, int] = self._calls(what, lambda: patiently(ask, timeout_s))
        return found

    def committed(
        self, group: str, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Position]:
        """Return the group's positions; a partition without one is left out."""
        asked = [ClientPartition(w.topic, w.partition) for w in wheres]
        if not asked:
            return {}
        request = ConsumerGroupTopicPartitions(group, asked)
        what = f"offsets of group {group}"
        found = self._of_group(
            what,
            # Not only stable ones: a restore that died may have left a transaction with a new
            # offset, which stays unstable for minutes, until a writer takes over and aborts it.
            lambda: self._admin.list_consumer_group_offsets(
                [request], require_stable=False, request_timeout=self._timeout_s
            )[group],
        )
        return {
            TopicPartition(at.topic, at.partition): position
            for at in found.topic_partitions
            if (position := position_of(at)) is not None
        }

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Write positions of a group without members, forwards or backwards."""
        if not positions:
            return
        offsets = [
            ClientPartition(w.topic, w.partition, p.offset, p.metadata)
            for w, p in positions.items()
        ]
        what = f"committing offsets of group {group}"
        self._of_group(
            what,
            lambda: self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, offsets)],
                request_timeout=self._timeout_s,
            )[group],
        )

    def has_group(self, group: str) -> bool:
        """Whether the group has members or positions."""
        described = self._described(group)
        return described is not None and described.state is not ConsumerGroupState.DEAD

    def members(self, group: str) -> list[str]:
        """Return the client ids and hosts of the group's live members."""
        described = self._described(group)
        members = () if described is None else described.members
        return [f"{member.client_id} at {member.host}" for member in members]

    def _described(self, group: str) -> Any:
        """Return what the cluster says of a group, None where it says that there is none."""

        def ask() -> Any:
            return self._admin.describe_consumer_groups([group], request_timeout=self._timeout_s)[
                group
            ]

        try:
            return self._of_group(f"describing group {group}", ask)
        except KafkaError as error:
            if code_of(error) != Code.GROUP_ID_NOT_FOUND:
                raise
            return None

    def topic_config(
        self, names: Iterable[str], *, overridden_only: bool = False
    ) -> dict[str, dict[str, str]]:
        """Describe the topics' settings: `kafka.Cluster.topic_config`."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        if not resources:
            return {}
        futures = self._admin.describe_configs(resources, request_timeout=self._timeout_s)
        found: dict[str, dict[str, str]] = {}
        for resource, future in futures.items():
            try:
                entries = future.result()
            except KafkaException as error:
                _log.warning("settings of topic %s: %s", resource.name, error.args[0].str())
                continue
            found[resource.name] = {
                name: entry.value
                for name, entry in entries.items()
                if not overridden_only or entry.source in _OF_THE_TOPIC
            }
        return found

    def alter_topic_config(
        self, name: str, config: Mapping[str, str], removed: Collection[str]
    ) -> None:
        """Change settings of a topic: `kafka.Cluster.alter_topic_config`."""
        put, drop = AlterConfigOpType.SET, AlterConfigOpType.DELETE
        entries = [
            ConfigEntry(key, value, incremental_operation=put) for key, value in config.items()
        ]
        entries += [ConfigEntry(key, None, incremental_operation=drop) for key in removed]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        (future,) = self._admin.incremental_alter_configs(
            [resource], request_timeout=self._timeout_s
        ).values()
        self._result(f"changing the settings of topic {name}", future)

    def create_topics(
        self, topics: Sequence[NewTopic], *, only_validate: bool = False
    ) -> dict[str, str | KbackupError]:
        """Create topics with the cluster's own checks: `Cluster.create_topics`."""
        refused: dict[str, KbackupError | None] = {}
        for share in _shares(topics):
            asked = [
                Asked(
                    topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    config=dict(topic.config),
                )
                for topic in share
            ]
            futures = self._admin.create_topics(
                asked, operation_timeout=self._timeout_s, validate_only=only_validate
            )
            for topic in share:
                refused[topic.name] = self._refusal(topic, futures[topic.name])
        made = [name for name, error in refused.items() if error is None and not only_validate]
        there = _settled(lambda: self.topics(made), lambda there: len(there) == len(made))
        return {
            name: error or (there[name].topic_id if name in there else "")
            for name, error in refused.items()
        }

    def _refusal(self, topic: NewTopic, future: Any) -> KbackupError | None:
        what = f"creating topic {topic.name} with {counted(topic.partitions, 'partition')}"
        try:
            self._result(what, future)
        except KafkaError as error:
            return _refused(topic, what, error)
        return None

    def delete_topics(self, names: Collection[str]) -> dict[str, KafkaError]:
        """Delete topics: `kafka.Cluster.delete_topics`."""
        timeout_s, wanted = self._timeout_s, sorted({*names})
        failed: dict[str, KafkaError] = {}
        for at in range(0, len(wanted), TOPICS_MOST):
            futures = self._admin.delete_topics(
                wanted[at : at + TOPICS_MOST], operation_timeout=timeout_s
            )
            failed |= self._failures("deleting topic", futures, Code.UNKNOWN_TOPIC_OR_PART)
        left = [name for name in wanted if name not in failed]
        there = _settled(lambda: self.topics(left), lambda there: not there)
        return failed | {
            name: KafkaError(f"deleting topic {name}", "it is still there") for name in there
        }

    def delete_groups(self, names: Collection[str]) -> dict[str, KafkaError]:
        """Delete consumer groups: `kafka.Cluster.delete_groups`."""
        if not names:
            return {}
        futures = self._admin.delete_consumer_groups(
            sorted({*names}), request_timeout=self._timeout_s
        )
        return self._failures("deleting group", futures, Code.GROUP_ID_NOT_FOUND)

    def _failures(
        self, what: str, futures: Mapping[str, Any], no_failure: int
    ) -> dict[str, KafkaError]:
        """Return why not, by name; that there is none of the name is no failure."""
        found: dict[str, KafkaError] = {}
        for name, future in futures.items():
            try:
                self._result(f"{what} {name}", future)
            except KafkaError as error:
                if code_of(error) != no_failure:
                    found[name] = error
        return found

    def create_partitions(self, name: str, count: int, *, only_validate: bool = False) -> None:
        """Add partitions to a topic: `kafka.Cluster.create_partitions`."""
        future = self._admin.create_partitions(
            [NewPartitions(name, count)],
            operation_timeout=self._timeout_s,
            validate_only=only_validate,
        )[name]
        what = f"adding partitions to topic {name}, to make them {count}"
        self._result(what, future)
        if only_validate:
            return

        def has_all(found: Topic | None) -> bool:
            return found is not None and found.partitions >= count and not found.leaderless

        if not has_all(_settled(lambda: self.topics([name]).get(name), has_all)):
            raise KafkaError(what, "not every partition has a leader", "check the brokers")

    def _of_group(self, what: str, ask: Callable[[], Any]) -> Any:
        """Return the result of the future that *ask* makes, once the group has a coordinator."""
        timeout_s = self._timeout_s
        return self._calls(
            what,
            lambda: patiently(lambda: _each(ask().result(timeout=timeout_s + SPARE_S)), timeout_s),
        )


def _each(answer: Any) -> Any:
    """Raise the first error of a partition: the answer as a whole does not show it."""
    for at in getattr(answer, "topic_partitions", ()):
        if at.error is not None:
            raise KafkaException(at.error)
    return answer


def _known_id(topic_id: Any) -> str:
    text = str(topic_id or "")
    return "" if text == _NO_ID else text


_DENIED: Final = frozenset(
    {
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Code.UNKNOWN_TOPIC_OR_PART,
    }
)


class KafkaPermissions(Administrator):
    """Asks a cluster for the operations it would authorise: `kbackup.kafka.Permissions`."""

    def of_topics(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return what is allowed with each topic: `Permissions.of_topics`."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self._admin.describe_topics(
            TopicCollection(wanted),
            include_authorized_operations=True,
            request_timeout=self._timeout_s,
        )
        return {
            name: self._allowed(partial(future.result, self._timeout_s + SPARE_S))
            for name, future in futures.items()
        }

    def of_group(self, group: str) -> frozenset[str]:
        """Return what is allowed with a consumer group, which need not exist yet."""

        def ask() -> Any:
            return self._admin.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=self._timeout_s
            )[group].result(timeout=self._timeout_s + SPARE_S)

        return self._allowed(lambda: patiently(ask, self._timeout_s))

    def of_transactions(self, transactional_id: str) -> frozenset[str]:
        """Return what is allowed with a transactional id: `Permissions.of_transactions`.

        The protocol has no question for that, so a producer id is asked for under this name, by
        which nothing is ever written: whoever has used it before is fenced.
        """
        ours = {"transactional.id": transactional_id, "error_cb": self._complaints}
        properties = self._settings.properties(ours, self._settings.producer)
        producer = self._calls(
            "connecting to Kafka", lambda: Producer(properties, logger=CLIENT_LOG)
        )
        try:
            self._calls(
                "asking for a producer id", lambda: producer.init_transactions(self._timeout_s)
            )
        except KafkaError as error:
            if code_of(error) in _DENIED:
                return frozenset()
            raise
        return frozenset({"WRITE", "DESCRIBE"})

    def _allowed(self, ask: Callable[[], Any]) -> frozenset[str]:
        try:
            found = self._calls("asking for permissions", ask).authorized_operations
        except KafkaError as error:
            if code_of(error) in _DENIED:
                return frozenset()
            if code_of(error) != Code.GROUP_ID_NOT_FOUND:
                raise
            found = None
        if found is None:  # a broker too old to say, or a group that nobody has used yet
            return frozenset(operation.name for operation in AclOperation)
        return frozenset(operation.name for operation in found)


_NUMBERS: Final = (*NUMBERS, *REQUEST_TIMEOUTS, "transaction.timeout.ms")
"""Properties of producers that kbackup reads itself.  librdkafka reads "1e6" as 1."""


def check_properties(settings: KafkaSettings, *, is_here: bool = True) -> None:
    """Refuse client properties that librdkafka does not take, before anything depends on them.

    Where it *is_here* that the clients are for, the files that they name are read.

    Raises:
        ConfigurationError: Naming the property, in librdkafka's words.
    """
    kinds = (
        ("kafka", AdminClient, settings.admin),
        ("consumer.override", Consumer, {"group.id": "-", **settings.consumer}),
        ("producer.override", Producer, settings.producer),
    )
    there = {} if is_here else {"security.protocol": "PLAINTEXT"}
    for prefix, client, operators in kinds:
        try:
            own = {**operators, **there}
            made = client(settings.properties({"log_level": 0}, own, connects=False))
        except (KafkaException, TypeError, ValueError) as error:
            reason = error.args[0] if error.args else error
            given = ", ".join(sorted(operators)) or "bootstrap.servers alone"
            raise ConfigurationError(
                "the Kafka client does not accept its properties",
                reason.str() if hasattr(reason, "str") else str(reason),
                f"correct the property that this names, or {prefix}.*; given are {given}",
            ) from error
        if hasattr(made, "close"):
            made.close()
    for name in _NUMBERS:
        text = settings.producer.get(name, "0")
        try:
            int(text)
        except ValueError as error:
            raise ConfigurationError(
                f"{name}: {text!r} is not a number",
                "a property of Kafka's producer has to be a whole number of decimal digits",
                f"correct producer.override.{name} or kafka.{name}",
            ) from error
