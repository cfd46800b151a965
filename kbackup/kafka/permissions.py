"""What this principal may do, and whether the operator's client properties work."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection
from confluent_kafka import KafkaError as Code
from confluent_kafka.admin import AclOperation, AdminClient

from kbackup.errors import ConfigurationError, KafkaError
from kbackup.kafka import KafkaSettings
from kbackup.kafka.client import CLIENT_LOG, Complaints, calls, kafka_error
from kbackup.kafka.positions import REQUEST_TIMEOUTS, patiently
from kbackup.kafka.writer import NUMBERS

_SPARE_S: Final = 5.0
_DENIED: Final = frozenset(
    {
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Code.UNKNOWN_TOPIC_OR_PART,
    }
)


class Permissions:
    """Asks a cluster for the operations it would authorise.

    An operation is named as ``kafka-acls`` names it: ``READ``, ``DESCRIBE``.  A cluster without
    an authoriser allows all of them.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings, self._timeout_s = settings, settings.timeout_s
        self._complaints = Complaints()
        properties = settings.properties({"error_cb": self._complaints}, settings.admin)
        self._admin = calls(
            "connecting to Kafka",
            self._complaints,
            lambda: AdminClient(properties, logger=CLIENT_LOG),
        )

    def of_topics(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return what is allowed with each topic; of one that is denied, or not there, nothing.

        Raises:
            KafkaError: If the cluster does not answer; likewise `of_group`.
        """
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self._admin.describe_topics(
            TopicCollection(wanted),
            include_authorized_operations=True,
            request_timeout=self._timeout_s,
        )
        return {
            name: self._allowed(partial(future.result, self._timeout_s + _SPARE_S))
            for name, future in futures.items()
        }

    def of_group(self, group: str) -> frozenset[str]:
        """Return what is allowed with a consumer group, which need not exist yet."""

        def ask() -> Any:
            return self._admin.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=self._timeout_s
            )[group].result(timeout=self._timeout_s + _SPARE_S)

        return self._allowed(lambda: patiently(ask, self._timeout_s))

    def of_transactions(self, transactional_id: str) -> frozenset[str]:
        """Return what is allowed with a transactional id: ``WRITE``, or nothing.

        The protocol has no question for that, so a producer id is asked for under this name, by
        which nothing is ever written: whoever has used it before is fenced.

        Raises:
            KafkaError: If the cluster does not answer.
        """
        ours = {"transactional.id": transactional_id, "error_cb": self._complaints}
        properties = self._settings.properties(ours, self._settings.producer)
        producer = calls(
            "connecting to Kafka",
            self._complaints,
            lambda: Producer(properties, logger=CLIENT_LOG),
        )
        try:
            producer.init_transactions(self._timeout_s)
        except KafkaException as error:
            if error.args[0].code() in _DENIED:
                return frozenset()
            raise kafka_error("asking for a producer id", error, self._complaints) from error
        return frozenset({"WRITE", "DESCRIBE"})

    def _allowed(self, ask: Callable[[], Any]) -> frozenset[str]:
        try:
            found = ask().authorized_operations
        except KafkaException as error:
            if error.args[0].code() in _DENIED:
                return frozenset()
            if error.args[0].code() != Code.GROUP_ID_NOT_FOUND:
                raise kafka_error("asking for permissions", error, self._complaints) from error
            found = None
        except TimeoutError as error:
            raise KafkaError("asking for permissions", "no answer", "check the brokers") from error
        if found is None:  # a broker too old to say, or a group that nobody has used yet
            return frozenset(operation.name for operation in AclOperation)
        return frozenset(operation.name for operation in found)


_NUMBERS: Final = (*NUMBERS, *REQUEST_TIMEOUTS, "transaction.timeout.ms")
"""Properties of producers that kbackup reads itself.  librdkafka reads "1e6" as 1."""


def check_properties(settings: KafkaSettings) -> None:
    """Refuse client properties that librdkafka does not take, before anything depends on them.

    Raises:
        ConfigurationError: Naming the property, in librdkafka's words.
    """
    kinds = (
        ("kafka", AdminClient, settings.admin),
        ("consumer.override", Consumer, {"group.id": "-", **settings.consumer}),
        ("producer.override", Producer, settings.producer),
    )
    for prefix, client, operators in kinds:
        try:
            made = client(settings.properties({"log_level": 0}, operators))
        except (KafkaException, TypeError, ValueError) as error:
            reason = error.args[0] if error.args else error
            raise ConfigurationError(
                f"Kafka does not accept a {prefix} property",
                reason.str() if hasattr(reason, "str") else str(reason),
                f"correct the {prefix}.* and kafka.* properties",
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
