"""Names that kbackup does not declare: refused, without effect, or passed on to Kafka's clients.

`nearest` says what an unknown name was probably meant to be.  ``security.protocol``, ``sasl.*``,
``ssl.*`` and ``kafka.*`` apply to every client; ``consumer.override.*``, ``producer.override.*``
and ``admin.override.*`` apply to one and take precedence.  Most names of Kafka's Java clients are
those of librdkafka too; the others are here.  What plugins do not support, they declare
themselves: see `kbackup.options`.

Sources: kafka-connect-storage-cloud 87eb7d39, ``S3SinkConnectorConfig``;
kafka-connect-storage-common 9bb1f372; what the source connector's plugin reports about itself;
``org.apache.kafka.connect.runtime``; librdkafka 2.16 CONFIGURATION.md; ``ConsumerConfig``,
``ProducerConfig``, ``SslConfigs`` and ``SaslConfigs`` of kafka 3.9.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Final, NamedTuple

from kbackup import plugins
from kbackup.config.issues import ConfigIssue, Value, error
from kbackup.config.property import PREFIXES, READING, RUNS, SINK, VARIABLES, of_side, variable
from kbackup.config.settings import ALIASES, BY_NAME, NAMED_BY, PROPERTIES
from kbackup.config.transforms import is_transform
from kbackup.errors import ConfigurationError, with_extra
from kbackup.options import MSK_IAM, MSK_OPTIONS, Unsupported, given, other_than, read_milliseconds

_BOTH: Final = SINK | READING


@dataclass(frozen=True, slots=True)
class RefusedProperty(Unsupported):
    """A property that is refused where the others let it have its effect: *reads_others*."""

    commands: frozenset[str] = _BOTH
    reads_others: Callable[[Mapping[str, str]], bool] = lambda _: True
    is_built_in: bool = True


_ROWS: Final = (
    RefusedProperty(
        "file.discovery.starting.timestamp",
        other_than("0", ""),
        "it would leave objects out by when they were stored, and this version restores all",
        "remove it, and choose records with --from-time or --from-offset",
        READING,
    ),
    RefusedProperty(
        "filename.regex",
        other_than(r"(.+)\+(\d+)\+.+$", ""),
        "names are parsed by directory.delim and file.delim",
        "set file.delim, and remove it",
        READING,
    ),
    RefusedProperty(
        "kafka.api.key",
        given,
        "only a managed connector has such a key",
        "set security.protocol=SASL_SSL, sasl.mechanism=PLAIN, sasl.username and sasl.password",
    ),
    RefusedProperty(
        "kafka.api.secret",
        given,
        "only a managed connector has such a secret",
        "set sasl.password",
    ),
)

_COMMANDS: Final = {"converters": RUNS}
"""The commands that refuse what a plugin does not support, by extension point; the others: all."""


def _of_plugins() -> Iterator[RefusedProperty]:
    """Yield a row for each property that an installed plugin declares as unsupported."""
    for found in plugins.refused():
        one = found.option
        commands = of_side(_COMMANDS.get(found.extension_point, _BOTH), one.commands)
        for prefix in PREFIXES.get(found.extension_point, ("",)):
            chooses = NAMED_BY.get(found.extension_point, prefix.removesuffix("."))
            yield RefusedProperty(
                prefix + one.name,
                one.applies,
                one.why,
                one.do,
                commands,
                partial(_is_chosen, found, chooses),
                found.is_built_in,
            )


def _is_chosen(
    found: plugins.Declared[Unsupported], chooses: str, given: Mapping[str, str]
) -> bool:
    """Whether the property has its effect: no other plugin is named."""
    named = given.get(chooses) or BY_NAME[chooses].default
    if found.extension_point == "stores":
        return str(named).partition("://")[0] in found.plugins
    if not named or (found.extension_point == "formats" and found.option.commands == "restore"):
        return True  # a worker's converter; and the objects themselves say what reads them
    try:
        return plugins.by_class_name(found.extension_point, named) in found.plugins
    except ConfigurationError:
        return False  # refused by its own name


_HEADERS: Final = RefusedProperty(
    "header.converter",
    lambda text: text.rpartition(".")[2] not in ("", "StringConverter"),
    "files of headers hold the values' text as it is, as with StringConverter; "
    "SimpleHeaderConverter parses the text and writes it changed, 1.50 as 1.5 and 007 as 7, others "
    "write base64 or JSON",
    "set it to org.apache.kafka.connect.storage.StringConverter, or store.kafka.headers=false",
    SINK,
    lambda given: given.get("store.kafka.headers", "").lower() == "true",
)

REFUSALS: Final = (*_ROWS, _HEADERS, *_of_plugins())


def refusals_of(name: str) -> tuple[RefusedProperty, ...]:
    """Return the rows for property *name*, one for each reason."""
    return tuple(refusal for refusal in REFUSALS if refusal.name == name)


NO_EFFECT: Final = frozenset(
    """
    connector.class tasks.max storage.class schema.generator.class header.converter
    schemas.cache.config schema.cache.size retry.backoff.ms shutdown.timeout.ms
    max.write.duration.ms
    max.files.scan.limit local.buffer.dir
    enable.conditional.writes s3.send.digest s3.http.send.expect.continue
    config.action.reload
    folders record.batch.max.size task.batch.size
    exactly.once.support transaction.boundary transaction.boundary.interval.ms
    topic.creation.groups partition.field.format.path
    csv.escape.char csv.ignore.leading.whitespace csv.ignore.quotations csv.strict.quotes
    csv.case.sensitive.field.names
    _comment
    """.split()  # noqa: SIM905 - words read better so
)
"""Accepted without effect: what they adjust does not exist in kbackup."""

NO_EFFECT_PREFIXES: Final = (
    "confluent.",
    "s3.elastic.buffer.",
    "s3.credentials.provider.",
    "bucket.listing.",
    "bucket.scan.",
    "header.converter.",
    "topic.creation.",
    "hive.",
)

CLIENT_PREFIXES: Final = (
    "sasl.",
    "ssl.",
    "kafka.",
    "consumer.override.",
    "producer.override.",
    "admin.override.",
)
"""Properties with these prefixes go to the Kafka client."""

CONVERTER_PREFIXES: Final = PREFIXES["converters"]
_FAMILIES: Final = (*NO_EFFECT_PREFIXES, *CLIENT_PREFIXES, *CONVERTER_PREFIXES)

MISTAKEN_NAMES: Final = {
    "task.max": "tasks.max",
    "s3.schema.compatibility": "schema.compatibility",
    "group.id": "group",
    "rotate.scheduled.interval.ms": "rotate.schedule.interval.ms",
    "schemas.enable": "value.converter.schemas.enable",
    "format": "format.class",
    **{mistake: found.name for found in PROPERTIES for mistake in found.mistaken},
}
"""Names that people have used, to the ones that they meant."""

_MEANT: Final = 0.75
"""How like a known name another one must be for a question whether that was meant."""

_SLIP: Final = 0.85
"""How like it must be to be taken for a slip: a letter or two, not a word."""

_CREDENTIALS: Final = "s3.credentials.provider."
_CLOSE_FAMILIES: Final = (*CONVERTER_PREFIXES, _CREDENTIALS)
_CLOSE: Final = 0.92
"""How like the rest of a name must be, where many begin alike."""
_CONFLUENTS: Final = ("subject.name.strategy", "schema.registry.ssl.keystore.password")

_SUGGESTIONS_MAX: Final = 64
"""Characters of a name that are compared; our longest name has 45."""


@cache
def _all() -> tuple[str, ...]:
    refused = {refusal.name for refusal in REFUSALS}
    ours = {found.name for found in PROPERTIES if found.is_property}
    clients = {"security.protocol", "kafka.client.id", "consumer.override.isolation.level"}
    return tuple(sorted(ours | refused | NO_EFFECT | set(ALIASES) | clients))


@cache
def _by_variable() -> dict[str, str]:
    options = {found.name for found in PROPERTIES}
    found = {variable(name): ALIASES.get(name, name) for name in sorted(options.union(_all()))}
    return {other: one.name for one in PROPERTIES for other in one.other_variables} | found


def is_known(name: str) -> bool:
    """Whether *name* is a property of kbackup, a connector or Kafka's clients."""
    return name in _all() or is_transform(name) or name.startswith(_FAMILIES)


def name_of_variable(text: str) -> str | None:
    """Return the property that variable *text* sets, None if there is none.

    A variable of a family, such as ``KBACKUP_SASL_KERBEROS_KEYTAB``, sets the property with
    dots in place of underscores.
    """
    name = _by_variable().get(text)
    if name is None:
        family = text.removeprefix(VARIABLES).lower().replace("_", ".")
        is_one = family.startswith(_FAMILIES)
        return family if is_one and re.fullmatch(r"[\w.]+", family) else None
    return name


_OPTION: Final = "give it on the command line"
_LISTED: Final = "kbackup config show --all lists all names"


def nearest(name: str) -> tuple[str, str]:
    """Return why *name* has no effect and what to do: a known name, where one may be meant."""
    if name in BY_NAME:
        return "it is an option, not a property of a file; it has no effect", _OPTION
    best = MISTAKEN_NAMES.get(name)
    if best is None:
        best, likeness = _likest(name)
        if likeness < _MEANT:
            return "no such property; it has no effect", _LISTED
    return "no such property; it has no effect", f"did you mean {best}?"


def is_slip(name: str) -> bool:
    """Whether *name* is one of kbackup's own, misspelt or as an option: a connector has no such.

    What people have used in connectors' files, and connectors have ignored, is none.
    """
    if name in BY_NAME:
        return True
    best, likeness = _likest(name)
    return name not in MISTAKEN_NAMES and likeness >= _SLIP and (best in BY_NAME or best in ALIASES)


def is_slip_in_family(name: str, given: Mapping[str, Value]) -> bool:
    """Whether a converter's or a credential's property is nearly one of kbackup's.

    What a provider of credentials that is named may take is its own, and Confluent's clients have
    a few names that are nearly others.
    """
    prefix = next((each for each in _CLOSE_FAMILIES if name.startswith(each)), None)
    if prefix is None or name in _all():
        return False
    if prefix == _CREDENTIALS and f"{prefix}class" in given:
        return False
    rest = name.removeprefix(prefix)[:_SUGGESTIONS_MAX]
    others = [each.removeprefix(prefix) for each in _all() if each.startswith(prefix)]
    near = difflib.get_close_matches(rest, others, 1, _CLOSE)
    return bool(near) and rest not in _CONFLUENTS and is_slip(name)


@cache
def _likest(name: str) -> tuple[str, float]:
    """Return the known name that is most like *name*, and how much it is: 1 is equal."""
    (best,) = difflib.get_close_matches(text := name[:_SUGGESTIONS_MAX], _all(), 1, 0.0)
    return best, difflib.SequenceMatcher(None, text, best).ratio()


def nearest_variable(text: str) -> tuple[str, str]:
    """Return why the variable *text* has no effect and what to do."""
    rest = text.removeprefix(VARIABLES)[:_SUGGESTIONS_MAX]
    known = [name.removeprefix(VARIABLES) for name in _by_variable()]
    found = difflib.get_close_matches(rest, known, 1, _MEANT)
    do = f"did you mean {VARIABLES}{found[0]}?" if found else _LISTED
    return "no such variable; it has no effect", do


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
    "sasl.client.callback.handler.class": (
        "a Java class cannot be loaded, and only Amazon's IAMClientCallbackHandler is not needed",
        "remove it",
    ),
    "sasl.login.callback.handler.class": (
        "a Java class cannot be loaded",
        "remove it; for Amazon MSK set sasl.mechanism=AWS_MSK_IAM",
    ),
    "sasl.login.class": ("a Java class cannot be loaded", "remove it"),
    "security.providers": ("a Java class cannot be loaded", "remove it"),
}
"""What librdkafka spells so differently that the operator must act."""
_HARMLESS: Final = {
    "ssl.keystore.type": ("PKCS12", "PEM"),
    "ssl.truststore.type": ("PEM",),
    "sasl.client.callback.handler.class": (
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    ),
}

_MSK_WITHOUT_EFFECT: Final = ("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs")
_MSK_SIGNER: Final = "aws_msk_iam_sasl_signer"

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", MSK_IAM)
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_JAAS_OPTION: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]+))")
_LOGIN_MODULE: Final = re.compile(r"\s*([\w.]+)\s+(?:required|requisite|sufficient|optional)\b")


class ClientProperties(NamedTuple):
    """Properties of librdkafka for each client, and names that have no effect."""

    properties: dict[str, dict[str, str]]
    issues: list[ConfigIssue]
    without_effect: list[str]


_OURS: Final = ("kafka.client", "kafka.timeout")
"""kbackup's own properties that begin like a client's."""


def is_client_property(name: str) -> bool:
    """Whether *name* is passed on to Kafka's clients."""
    return name == "security.protocol" or (name.startswith(CLIENT_PREFIXES) and name not in _OURS)


def translate(given: Mapping[str, Value]) -> ClientProperties:
    """Return the properties for librdkafka."""
    found = ClientProperties({client: {} for client in CLIENTS}, [], [])
    for name, value in sorted(given.items(), key=lambda item: (_rank(item[0]), item[0])):
        java, clients = _target(name)
        try:
            for theirs, text in _translated(java, value):
                for client in clients:
                    found.properties[client][theirs] = text
        except ConfigurationError as problem:
            found.issues.append(error("kafka_client", name, value, problem.why, problem.do))
        else:
            if java in WITHOUT_EFFECT:
                found.without_effect.append(name)
            if value.text.upper() == MSK_IAM and find_spec(_MSK_SIGNER) is None:
                why, do = f"{_MSK_SIGNER} is not installed", with_extra("msk")
                found.issues.append(error("kafka_client", name, value, why, do))
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
        yield RENAMED.get(java, java), _in_ms(java, text)


def _in_ms(java: str, text: str) -> str:
    """Return a duration with its unit as the client reads it; all else as it is."""
    if not java.endswith(".ms"):
        return text
    try:
        return str(read_milliseconds(text))
    except ValueError:
        return text  # which the client refuses


def _one_of(words: tuple[str, ...], text: str) -> str:
    if text.upper() not in words:
        raise ConfigurationError(text, f"expected one of {', '.join(words)}", "correct it")
    return text.upper()


def _jaas(text: str) -> Iterator[tuple[str, str]]:
    """Extract what a ``sasl.jaas.config`` says for PLAIN, SCRAM or ``AWS_MSK_IAM``."""
    module = _LOGIN_MODULE.match(text)
    simple = module[1].rpartition(".")[2] if module is not None else ""
    if simple not in ("PlainLoginModule", "ScramLoginModule", "IAMLoginModule"):
        raise ConfigurationError(
            "sasl.jaas.config",
            "only PlainLoginModule, ScramLoginModule and IAMLoginModule are supported",
            "use librdkafka's properties, such as sasl.kerberos.principal and sasl.kerberos.keytab",
        )
    options = {
        match[1]: match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])
        for match in _JAAS_OPTION.finditer(text)
    }
    if simple == "IAMLoginModule":
        yield from _msk_options(options)
        return
    if not {"username", "password"} <= options.keys():
        raise ConfigurationError(
            "sasl.jaas.config",
            "it has no username and password",
            "add them, or set sasl.username and sasl.password",
        )
    yield "sasl.username", options["username"]
    yield "sasl.password", options["password"]


def _msk_options(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in options.items():
        if name in MSK_OPTIONS:
            yield name, text
        elif name not in _MSK_WITHOUT_EFFECT:
            raise ConfigurationError(
                "sasl.jaas.config",
                f"IAMLoginModule's {name} is not supported",
                "remove it; keys belong in a profile or in AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY",
            )
