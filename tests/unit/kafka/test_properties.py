"""The operator's client properties, before anything depends on them."""

import pytest

from kbackup.errors import ConfigurationError
from kbackup.kafka import KafkaSettings
from kbackup.kafka.cluster import check_properties


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("batch.size", "1e6"),
        ("batch.num.messages", "0x100"),
        ("queue.buffering.max.kbytes", "10M"),
        ("socket.timeout.ms", "60000.0"),
        ("transaction.timeout.ms", "60000 ms"),
    ],
)
def test_a_number_that_only_the_client_can_read_is_refused(name: str, text: str) -> None:
    """The client reads ``1e6`` as 1 and says nothing; kbackup counts with the same properties."""
    settings = KafkaSettings("127.0.0.1:1", producer={name: text})

    with pytest.raises(ConfigurationError) as caught:
        check_properties(settings)

    assert name in caught.value.what
    assert f"producer.override.{name}" in caught.value.do


@pytest.mark.parametrize(
    "given",
    [
        {"ssl.ca.location": "/nowhere.pem", "security.protocol": "SSL"},
        {"security.protocol": "SASL_SSL"},
        {"security.protocol": "NONE"},
        {"ssl.keystore.location": "/nowhere.jks"},
    ],
    ids=" ".join,
)
def test_what_the_client_refuses_names_what_was_given(given: dict[str, str]) -> None:
    """The client says why, often without the property: those that were given are named."""
    settings = KafkaSettings("127.0.0.1:1", admin=given)

    with pytest.raises(ConfigurationError) as caught:
        check_properties(settings)

    assert all(name in caught.value.do for name in given)
    assert not any(text in caught.value.do for text in given.values())
