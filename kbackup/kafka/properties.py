"""Client properties of the operator, tried on the client library."""

from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kbackup.errors import ConfigurationError
from kbackup.kafka.coordinator import REQUEST_TIMEOUTS
from kbackup.kafka.settings import KafkaSettings
from kbackup.kafka.writer_queue import NUMBERS

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
