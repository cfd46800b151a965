"""The options of every converter that uses a Schema Registry, and the resulting settings.

Source of names, defaults and effects: schema-registry, ``AbstractKafkaSchemaSerDeConfig`` and
``SchemaRegistryClientConfig``.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from kbackup.connect.registry import SUBJECTS
from kbackup.errors import ConfigurationError
from kbackup.options import (
    Unsupported,
    boolean,
    given,
    integer,
    names,
    names_host,
    optional_text,
    text,
    true,
    words,
)

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
CONNECT_MS: Final = integer(
    "http.connect.timeout.ms",
    "How long connecting to the registry may take, in milliseconds.",
    60_000,
    ge=1,
)
READ_MS: Final = integer(
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
WAIT_MS: Final = integer(
    "retries.wait.ms",
    "Longest wait before the first repetition, in milliseconds; it doubles each time, with jitter.",
    1000,
    ge=0,
)
WAIT_MAX_MS: Final = integer(
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


def settings_of(properties: Mapping[str, Any]) -> Any:
    """Return the `kbackup.connect.registry.RegistrySettings` that *properties* specify.

    Raises:
        ConfigurationError: If they contradict each other, or name a Java key store.
    """
    from kbackup.connect.registry import RegistrySettings  # noqa: PLC0415

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
            raise ConfigurationError(
                f"{kind.name}={kind.of(properties)} cannot be used",
                _PEM,
                "keytool -exportcert -rfc -keystore FILE -alias ALIAS > ca.pem; set "
                f"{CA.name}=ca.pem, and remove it",
                property=kind.name,
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
    if info and ":" not in info:
        raise ConfigurationError(
            "basic.auth.user.info cannot be used",
            "it has no colon between user and password",
            "set it to user:password",
            property=USER_INFO.name,
        )
    return info
