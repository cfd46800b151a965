"""Properties of Kafka's Java clients to those of librdkafka.

``security.protocol``, ``sasl.*``, ``ssl.*`` and ``kafka.*`` apply to every client;
``consumer.override.*``, ``producer.override.*`` and ``admin.override.*`` apply to one and take
precedence.  Most names are the same; this module lists the others.

Sources: librdkafka 2.16 CONFIGURATION.md; ``ConsumerConfig``, ``ProducerConfig``, ``SslConfigs``
and ``SaslConfigs`` of kafka 3.9.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kbackup.config.issues import ConfigIssue, Value, error
from kbackup.config.known import CLIENT_PREFIXES
from kbackup.errors import ConfigurationError

CLIENTS: Final = ("consumer", "producer", "admin")

RENAMED: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.request.size": "message.max.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
"""The same thing under another name."""

WITHOUT_EFFECT: Final = frozenset(
    """
    max.poll.records default.api.timeout.ms max.block.ms buffer.memory interceptor.classes
    key.deserializer value.deserializer key.serializer value.serializer partitioner.class
    exclude.internal.topics metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms auto.include.jmx.reporter ssl.protocol ssl.enabled.protocols
    ssl.provider ssl.keymanager.algorithm ssl.trustmanager.algorithm
    ssl.secure.random.implementation ssl.engine.factory.class sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter partition.assignment.strategy client.dns.lookup
    """.split()  # noqa: SIM905 - words read better so
)
"""Settings of the Java clients' internals."""

OWNED: Final = frozenset(
    """
    enable.auto.commit enable.auto.offset.store enable.partition.eof group.instance.id
    transactional.id enable.idempotence acks isolation.level check.crcs plugin.library.paths
    error_cb stats_cb throttle_cb oauth_cb on_delivery delivery.report.only.error
    """.split()  # noqa: SIM905 - words read better so
)
"""Properties that kbackup's promises depend on; only kbackup sets them."""

_PEM: Final = "librdkafka reads PEM files, not Java key stores"
REFUSED: Final = {
    "ssl.truststore.location": (
        _PEM,
        "keytool -exportcert -rfc -keystore FILE -alias ALIAS > ca.pem; ssl.ca.location=ca.pem",
    ),
    "ssl.truststore.password": (_PEM, "a PEM file has none: remove it and set ssl.ca.location"),
    "ssl.truststore.type": (_PEM, "remove it, set ssl.ca.location"),
    "ssl.keystore.type": (
        "librdkafka reads PKCS#12 and PEM",
        "keytool -importkeystore -deststoretype pkcs12, then ssl.keystore.location",
    ),
    "sasl.client.callback.handler.class": ("a Java class cannot be loaded", "remove it"),
    "sasl.login.callback.handler.class": ("a Java class cannot be loaded", "remove it"),
    "sasl.login.class": ("a Java class cannot be loaded", "remove it"),
    "security.providers": ("a Java class cannot be loaded", "remove it"),
}
"""What librdkafka spells so differently that the operator must act."""
_HARMLESS: Final = {"ssl.keystore.type": ("PKCS12", "PEM"), "ssl.truststore.type": ("PEM",)}

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_JAAS_OPTION: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]+))")
_LOGIN_MODULE: Final = re.compile(r"\s*([\w.]+)\s+(?:required|requisite|sufficient|optional)\b")


class ClientProperties(NamedTuple):
    """Properties of librdkafka for each client, and names that have no effect."""

    properties: dict[str, dict[str, str]]
    doubts: list[ConfigIssue]
    without_effect: list[str]


_OURS: Final = ("kafka.client", "kafka.timeout")
"""kbackup's own properties that begin like a client's."""


def is_client_property(name: str) -> bool:
    """Whether *name* is passed on to Kafka's clients."""
    return name == "security.protocol" or (name.startswith(CLIENT_PREFIXES) and name not in _OURS)


def translate(given: Mapping[str, Value]) -> ClientProperties:
    """Return the properties for librdkafka.

    Args:
        given: The properties for which `is_client_property` holds.
    """
    found = ClientProperties({client: {} for client in CLIENTS}, [], [])
    for name, value in sorted(given.items(), key=lambda item: (_rank(item[0]), item[0])):
        java, clients = _target(name)
        try:
            for theirs, text in _translated(java, value):
                for client in clients:
                    found.properties[client][theirs] = text
        except ConfigurationError as problem:
            found.doubts.append(error("kafka_client", name, value, problem.why, problem.do))
        else:
            if java in WITHOUT_EFFECT:
                found.without_effect.append(name)
    return found


def _rank(name: str) -> int:
    """Rank plain names before ``kafka.`` and that before a single client's; the last counts."""
    return 2 if ".override." in name else int(name.startswith("kafka."))


def _target(name: str) -> tuple[str, tuple[str, ...]]:
    for client in CLIENTS:
        prefix = f"{client}.override."
        if name.startswith(prefix):
            return name.removeprefix(prefix), (client,)
    return name.removeprefix("kafka."), CLIENTS


def _translated(java: str, value: Value) -> Iterator[tuple[str, str]]:
    text = value.text
    if not text and java != "ssl.endpoint.identification.algorithm":
        return
    if java in REFUSED and text not in _HARMLESS.get(java, ()):
        why, do = REFUSED[java]
        raise ConfigurationError(java, why, do)
    if java in OWNED:
        raise ConfigurationError(
            java, "kbackup sets it itself; its guarantees depend on it", "remove it"
        )
    if java in ("sasl.mechanism", "sasl.mechanisms"):
        yield "sasl.mechanisms", _one_of(MECHANISMS, text)
    elif java == "security.protocol":
        yield java, _one_of(PROTOCOLS, text)
    elif java == "sasl.jaas.config":
        yield from _jaas(text)
    elif java == "ssl.endpoint.identification.algorithm":
        yield java, text or "none"
    elif java not in WITHOUT_EFFECT and java not in REFUSED:
        yield RENAMED.get(java, java), text


def _one_of(words: tuple[str, ...], text: str) -> str:
    if text.upper() not in words:
        raise ConfigurationError(text, f"expected one of {', '.join(words)}", "correct it")
    return text.upper()


def _jaas(text: str) -> Iterator[tuple[str, str]]:
    """Extract user and password from a ``sasl.jaas.config`` for PLAIN or SCRAM."""
    module = _LOGIN_MODULE.match(text)
    simple = module[1].rpartition(".")[2] if module is not None else ""
    if simple not in ("PlainLoginModule", "ScramLoginModule"):
        raise ConfigurationError(
            "sasl.jaas.config",
            "only PlainLoginModule and ScramLoginModule are supported",
            "use librdkafka's properties, such as sasl.kerberos.principal and sasl.kerberos.keytab",
        )
    options = {
        match[1]: match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])
        for match in _JAAS_OPTION.finditer(text)
    }
    if not {"username", "password"} <= options.keys():
        raise ConfigurationError(
            "sasl.jaas.config",
            "it has no username and password",
            "or set sasl.username, sasl.password",
        )
    yield "sasl.username", options["username"]
    yield "sasl.password", options["password"]
