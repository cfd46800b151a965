"""Schema registries with Confluent's interface, independent of the client library.

A converter asks a registry for the schema of the id in a record, and for the version that
the schema has under the record's subject; a restore registers schemas again.  Answers are kept
for the life of the process, because a registry never changes the meaning of an id; only one that
is set up anew does, and whoever finds that out has the answers forgotten.

Source: schema-registry, ``io.confluent.kafka.serializers.subject``; for the options,
``AbstractKafkaSchemaSerDeConfig`` and ``SchemaRegistryClientConfig``.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kbackup.errors import ConfigurationError, with_extra
from kbackup.options import (
    Unsupported,
    boolean,
    given,
    integer,
    milliseconds,
    names,
    names_host,
    optional_text,
    text,
    true,
    words,
)

if TYPE_CHECKING:
    from kbackup.connect.registry.client import RegistryClient

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
"""Kinds of schemas, as registries name them."""

IMPORT: Final = "IMPORT"
READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
"""Modes of Confluent's registry that matter to a restore."""

_USER_INFO: Final = re.compile(r"(?<=://)[^/@\s]*@")


def without_user(text: str) -> str:
    """Return *text* with users and passwords removed from its URLs."""
    return _USER_INFO.sub("", text)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as it is in a registry.

    Schemas may refer to the same others again and again, so each is visited once: the ways to them
    grow exponentially.  Two schemas are equal if their digests are.

    Attributes:
        kind: `AVRO`, `JSON` or `PROTOBUF`.
        text: The schema.
        references: The schemas that it refers to.
        rules: Confluent's metadata and rules of the schema, as a JSON object; empty for none.
        digest: Of all of this.
        meaning: Digest of what values under the schema mean: not of its rules, nor of the subjects
            and versions of what it refers to, which differ between registries.
    """

    kind: str = field(compare=False)
    text: str = field(compare=False)
    references: tuple["Reference", ...] = field(default=(), compare=False, repr=False)
    rules: str = field(default="", compare=False)
    digest: str = field(init=False, repr=False)
    meaning: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named = [(each.name, each.schema.meaning) for each in self.references]
        placed = [(each.subject, each.version, each.schema.digest) for each in self.references]
        meaning = _digest(self.kind, self.text, named)
        object.__setattr__(self, "meaning", meaning)
        object.__setattr__(self, "digest", _digest(meaning, self.rules, placed))

    @property
    def imports(self) -> tuple[tuple[str, str], ...]:
        """Name and text of all that it refers to, directly or not, each after its own imports."""
        found: dict[str, str] = {}
        seen: set[str] = set()

        def walk(schema: "RegisteredSchema") -> None:
            if schema.digest in seen:
                return
            seen.add(schema.digest)
            for each in schema.references:
                walk(each.schema)
                found.setdefault(each.name, each.schema.text)

        walk(self)
        return tuple(found.items())


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one refers to by its name: a type, a URL or a file."""

    name: str
    subject: str
    version: int
    schema: RegisteredSchema


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a registry is and how to connect to it; plain data.

    Attributes:
        urls: The URLs of one registry, tried in turn.
        user: User and password, as ``user:password``; empty for none.
        ca: PEM file or folder of the authorities to trust; empty for the default ones.
        certificate: The client's certificate, a PEM file; empty for none.
        key: Its private key, if that is in another file.
        key_password: The private key's password.
        proxy: URL of a proxy; empty for none.
        connect_s: How long a connection may take, in seconds.
        read_s: How long an answer may take, in seconds.
        retries: How often a request is repeated if the answer is missing, 408, 429 or 5xx; but
            once only if *read_s* have passed by then.
        wait_s: The longest wait before the first retry, in seconds; it doubles each time.
        wait_max_s: The maximum that it grows to.
    """

    urls: tuple[str, ...]
    user: str = field(default="", repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    proxy: str = field(default="", repr=False)
    connect_s: float = 60.0
    read_s: float = 60.0
    retries: int = 3
    wait_s: float = 1.0
    wait_max_s: float = 20.0

    @property
    def has_login(self) -> bool:
        """Whether a user and a password are given, by themselves or in a URL."""
        return self.user != "" or any("@" in urlsplit(url).netloc for url in self.urls)

    @property
    def name(self) -> str:
        """The registry's name in messages: its URLs, without users and passwords."""
        return without_user(", ".join(self.urls))


NEEDED: Final = ("attr", "authlib", "cachetools", "certifi", "httpx2")
"""What the client imports, of the extra ``registry``."""


def check_installed() -> None:
    """Check, in a millisecond, that the client could be imported; else `ConfigurationError`."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise not_installed(", ".join(missing))


def not_installed(why: str) -> ConfigurationError:
    """Return the error for a Schema Registry whose client cannot be imported."""
    what = "Schema Registry needs libraries that are not installed"
    return ConfigurationError(what, why, with_extra("registry"))


@lru_cache(16)
def connect(settings: RegistrySettings) -> "RegistryClient":
    """Return the connection with *settings*; it makes no request until a method is called.

    The converters of all partitions in a process share one connection and its answers.

    Raises:
        ConfigurationError: If the client's libraries are not installed, or it refuses a setting.
    """
    from kbackup.connect.registry.client import RegistryClient  # noqa: PLC0415  (0.3 s that others need not)

    return RegistryClient(settings)


SUBJECTS: Final[dict[str, Callable[[str, str, str | None], str]]] = {
    "TopicNameStrategy": lambda topic, part, _: f"{topic}-{part}",
    "RecordNameStrategy": lambda topic, part, record: record or f"{topic}-{part}",
    "TopicRecordNameStrategy": lambda topic, part, record: f"{topic}-{record or part}",
}
"""By strategy: the subject for a topic, a part ("key" or "value") and a record's name."""


def subject(strategy: str, topic: str, part: str, record: str | None) -> str:
    """Return the subject; *strategy* may include its Java package."""
    return SUBJECTS[strategy.rpartition(".")[2]](topic, part, record)


_PEM: Final = "only PEM files are supported"


def _strategy(value: str) -> None:
    if value.rpartition(".")[2] not in SUBJECTS:
        raise ValueError(f"expected one of {', '.join(SUBJECTS)}")


URL: Final = names(
    "schema.registry.url",
    "URL of the Schema Registry, or several URLs of one, separated by commas and tried in turn.",
    is_required=True,
    example="https://registry:8081",
)
SOURCE: Final = words(
    "basic.auth.credentials.source",
    "Where user and password are: in schema.registry.url, or in basic.auth.user.info.",
    ("URL", "USER_INFO"),
    "URL",
)
USER_INFO: Final = optional_text(
    "basic.auth.user.info", "User and password, as user:password.", is_secret=True
)
CA: Final = text(
    "schema.registry.ssl.ca.location",
    "PEM file or folder of the authorities that signed the registry's certificate.",
    example="/etc/ssl/registry-ca.pem",
    aliases=("schema.registry.ssl.truststore.location",),
)
TRUST_STORE_TYPE: Final = text(
    "schema.registry.ssl.truststore.type", "Type of the trust store; PEM is the only one.", "PEM"
)
CERTIFICATE: Final = text(
    "schema.registry.ssl.certificate.location",
    "PEM file with this client's certificate, and its private key where that has no file of its "
    "own, for registries that ask for one.",
    example="/etc/ssl/client.pem",
    aliases=("schema.registry.ssl.keystore.location",),
)
KEY: Final = text(
    "schema.registry.ssl.key.location",
    "PEM file with the private key, if it is not in the certificate's file.",
    example="/etc/ssl/client.key",
)
KEY_STORE_TYPE: Final = text(
    "schema.registry.ssl.keystore.type", "Type of the key store; PEM is the only one.", "PEM"
)
KEY_PASSWORD: Final = optional_text(
    "schema.registry.ssl.key.password", "Password of the private key.", is_secret=True
)
PROXY_HOST: Final = text("proxy.host", "Host of an HTTP proxy for the registry.")
PROXY_PORT: Final = integer("proxy.port", "Port of that proxy.", 3128, ge=1, le=65535)
CONNECT_MS: Final = milliseconds(
    "http.connect.timeout.ms",
    "How long connecting to the registry may take, in milliseconds.",
    60_000,
    ge=1,
)
READ_MS: Final = milliseconds(
    "http.read.timeout.ms",
    "How long the registry may take to answer, in milliseconds.",
    60_000,
    ge=1,
)
RETRIES: Final = integer(
    "max.retries",
    "How often to repeat a request to the registry that got no answer, or 408, 429 or 5xx; only "
    "once if http.read.timeout.ms have passed by then.",
    3,
    ge=0,
)
WAIT_MS: Final = milliseconds(
    "retries.wait.ms",
    "Longest wait before the first repetition, in milliseconds; it doubles each time, with jitter.",
    1000,
    ge=0,
)
WAIT_MAX_MS: Final = milliseconds(
    "retries.max.wait.ms", "Upper limit of that wait, in milliseconds.", 20_000, ge=0
)
KEY_STRATEGY: Final = text(
    "key.subject.name.strategy",
    "How the subject of a key's schema is named; its versions are looked up under that subject.",
    "TopicNameStrategy",
    check=_strategy,
)
VALUE_STRATEGY: Final = text(
    "value.subject.name.strategy",
    "How the subject of a value's schema is named; its versions are looked up under that subject.",
    "TopicNameStrategy",
    check=_strategy,
)
AUTO_REGISTER: Final = boolean(
    "auto.register.schemas",
    "Register the schemas that a restore writes with. If false, their subjects must have "
    "them already.",
    True,
    commands="restore",
)

IGNORE_DEFAULTS: Final = boolean(
    "ignore.default.for.nullables",
    "When writing, a field that is null stays null, even if its schema has a default.",
    False,
    commands="restore",
)

SUM_TYPES: Final = Unsupported(
    "generalized.sum.type.support",
    true,
    "it gives unions and enums other names in files, and this version does not write them",
)
LATEST: Final = Unsupported(
    "use.latest.version",
    true,
    "it writes values under the newest schema of their subject, and this version writes them "
    "under the schema that they were stored with",
    commands="restore",
)
RULES: Final = Unsupported(
    "rule.executors",
    given,
    "rules of a registry may encrypt or change fields, and this version applies none",
)

OPTIONS: Final = (
    URL, SOURCE, USER_INFO, CA, TRUST_STORE_TYPE, CERTIFICATE, KEY, KEY_STORE_TYPE,
    KEY_PASSWORD, PROXY_HOST, PROXY_PORT, CONNECT_MS, READ_MS, RETRIES, WAIT_MS,
    WAIT_MAX_MS, KEY_STRATEGY, VALUE_STRATEGY, AUTO_REGISTER,
    IGNORE_DEFAULTS, SUM_TYPES, LATEST, RULES,
)  # fmt: skip


def settings_of(properties: Mapping[str, Any]) -> RegistrySettings:
    """Return the settings that *properties* specify.

    Raises:
        ConfigurationError: If they contradict each other, or name a Java key store.
    """
    urls = URL.of(properties)
    for url in urls or ("",):
        if not names_host(url):
            raise ConfigurationError(
                "schema.registry.url is not the URL of a Schema Registry",
                "each URL must begin with http:// or https:// and name a host",
                "set it, such as to http://registry:8081",
                property=URL.name,
            )
    for kind in (TRUST_STORE_TYPE, KEY_STORE_TYPE):
        if kind.of(properties).upper() != "PEM":
            raise kind.refusal(
                _PEM,
                "keytool -exportcert -rfc -keystore FILE -alias ALIAS > ca.pem; set "
                f"{CA.name}=ca.pem, and remove it",
                value=kind.of(properties),
            )
    host = PROXY_HOST.of(properties)
    return RegistrySettings(
        urls,
        _user(properties, urls),
        CA.of(properties),
        CERTIFICATE.of(properties),
        KEY.of(properties),
        KEY_PASSWORD.of(properties) or "",
        f"http://{host}:{PROXY_PORT.of(properties)}" if host else "",
        CONNECT_MS.of(properties) / 1000,
        READ_MS.of(properties) / 1000,
        RETRIES.of(properties),
        WAIT_MS.of(properties) / 1000,
        WAIT_MAX_MS.of(properties) / 1000,
    )


def _user(properties: Mapping[str, Any], urls: tuple[str, ...]) -> str:
    """Return the credentials for the client that are not in the URLs, empty for none."""
    info = USER_INFO.of(properties) or ""
    is_in_url = any("@" in urlsplit(url).netloc for url in urls)
    if SOURCE.of(properties) == "URL" and is_in_url:
        return ""
    if info and is_in_url:
        raise ConfigurationError(
            "user and password of the registry are given twice",
            "they are in schema.registry.url and in basic.auth.user.info",
            "remove them from the URL",
            property=URL.name,
        )
    if SOURCE.of(properties) == "USER_INFO" and not info:
        raise SOURCE.refusal(
            "it needs basic.auth.user.info, which is not set",
            "set it to user:password, beside the source",
            value="USER_INFO",
        )
    if info and ":" not in info:
        raise USER_INFO.refusal(
            "it has no colon between user and password", "set it to user:password"
        )
    return info
