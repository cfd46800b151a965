"""Schema registries that speak Confluent's interface, in neutral words.

A converter asks a `Registry` for the schema behind the id in a record, and for the version that
the schema has under the record's subject; a restore registers schemas again.  What was answered is
kept for as long as the process lives, because a registry never changes what an id stands for.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
"""Kinds of schemas, as registries name them."""

_USER_INFO: Final = re.compile(r"(?<=://)[^/@\s]*@")


def without_user(text: str) -> str:
    """Return *text* with the users and passwords left out of its URLs."""
    return _USER_INFO.sub("", text)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a registry holds it.

    Attributes:
        kind: `AVRO`, `JSON` or `PROTOBUF`.
        text: The schema.
        imports: Name and text of each schema that it refers to, directly or not, each one after
            those that it refers to itself.
    """

    kind: str
    text: str
    imports: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where registries are and how they are talked to; plain data.

    Attributes:
        urls: Those of one registry, tried in turn.
        user: User and password, as ``user:password``; empty for none.
        ca: File or folder of the authorities to trust, in PEM; empty for the usual ones.
        certificate: The client's certificate, a PEM file; empty for none.
        key: Its private key where that is in another file.
        key_password: Of the private key.
        proxy: URL of a proxy; empty for none.
        connect_s: How long a connection may take, in seconds.
        read_s: How long an answer may take, in seconds.
        retries: How often a request is repeated that was not answered, or with 408, 429 or 5xx.
        wait_s: The longest wait before the first repetition, in seconds; it doubles each time.
        wait_max_s: What it grows to.
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
    def name(self) -> str:
        """What messages call the registry: its URLs, without users and passwords."""
        return without_user(", ".join(self.urls))


class Registry(Protocol):
    """A connection to a registry.  Threads may share it.

    Every method raises `kbackup.errors.RegistryError` if the registry does not answer, or refuses,
    after as many repetitions as the settings allow.
    """

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema that *schema_id* stands for, None if the registry knows no such id."""
        ...

    def version(self, schema_id: int, subject: str) -> int | None:
        """Return the version of a schema under *subject*, None if it has none there."""
        ...

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the id of *schema* under *subject*, registering it if it is not there yet."""
        ...


@lru_cache(16)
def connect(settings: RegistrySettings) -> Registry:
    """Return the connection with *settings*; no request is made before it is asked.

    Converters of all partitions of a process share one connection, and what it has learned.

    Raises:
        ConfigurationError: If the client's libraries are not installed, or it refuses a setting.
    """
    from kbackup.registry.client import RegistryClient  # noqa: PLC0415  (0.3 s that others need not)

    return RegistryClient(settings)
