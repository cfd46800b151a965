"""Client properties of the operator, tried on the client library."""

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kbackup.errors import ConfigurationError
from kbackup.kafka.settings import KafkaSettings


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
