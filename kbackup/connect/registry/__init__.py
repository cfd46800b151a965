"""Schema registries with Confluent's interface, independent of the client library.

A converter asks a `Registry` for the schema of the id in a record, and for the version that
the schema has under the record's subject; a restore registers schemas again.  Answers are kept
for the life of the process, because a registry never changes the meaning of an id; only one that
is set up anew does, and whoever finds that out has the answers forgotten.

Source: schema-registry, ``io.confluent.kafka.serializers.subject``.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

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
    """A schema that another one refers to.

    Attributes:
        name: What the other schema calls it: a type, a URL or a file.
        subject: The subject that it is registered under.
        version: Its version there.
        schema: The schema.
    """

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
    def name(self) -> str:
        """The registry's name in messages: its URLs, without users and passwords."""
        return without_user(", ".join(self.urls))


class Registry(Protocol):
    """A connection to a registry.  Threads may share it.

    Every method raises `kbackup.errors.RegistryError` if the registry does not answer, or refuses,
    after as many retries as the settings allow.
    """

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema with *schema_id*, None if the registry does not know it."""
        ...

    def forget(self) -> None:
        """Forget all answers: the registry may have been set up anew."""
        ...

    def version(self, schema_id: int, subject: str) -> int | None:
        """Return the version of a schema under *subject*, None if it has none there."""
        ...

    def versions(self, schema_id: int) -> Mapping[str, int]:
        """Return the subjects that a schema is registered under, with its version in each."""
        ...

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the id of *schema* under *subject*, registering it if it is not there yet.

        What it refers to must be registered already.
        """
        ...

    def find(self, subject: str, schema: RegisteredSchema) -> int | None:
        """Return the id of *schema* under *subject*, None if it is not registered there."""
        ...

    def put(self, subject: str, schema: RegisteredSchema, schema_id: int, version: int) -> int:
        """Register *schema* under an id and a version of the caller's choice; return its id.

        The subject must be in the mode `IMPORT`.
        """
        ...

    def versions_of(self, subject: str) -> list[int]:
        """Return the versions that a subject has; none if there is no such subject."""
        ...

    def is_compatible(self, subject: str, schema: RegisteredSchema) -> bool:
        """Whether *subject* would take *schema* after the newest that it has."""
        ...

    def mode(self, subject: str | None = None) -> str | None:
        """Return the mode of a subject, or of the registry.

        None if the subject has none of its own, or the registry knows no modes.
        """
        ...

    def set_mode(self, subject: str, mode: str | None) -> None:
        """Set the mode of a subject; None for that of the registry.

        Where a subject's own mode cannot be removed, None sets it to the registry's.
        """
        ...


@lru_cache(16)
def connect(settings: RegistrySettings) -> Registry:
    """Return the connection with *settings*; it makes no request until a method is called.

    The converters of all partitions in a process share one connection and its answers.

    Raises:
        ConfigurationError: If the client's libraries are not installed, or it refuses a setting.
    """
    from kbackup.connect.registry.client import RegistryClient  # noqa: PLC0415  (0.3 s that others need not)

    return RegistryClient(settings)


def _by_topic(topic: str, part: str, record: str | None) -> str:  # noqa: ARG001
    return f"{topic}-{part}"


def _by_record(topic: str, part: str, record: str | None) -> str:
    return record or _by_topic(topic, part, record)


def _by_both(topic: str, part: str, record: str | None) -> str:
    return f"{topic}-{record}" if record else _by_topic(topic, part, record)


SUBJECTS: Final[dict[str, Callable[[str, str, str | None], str]]] = {
    "TopicNameStrategy": _by_topic,
    "RecordNameStrategy": _by_record,
    "TopicRecordNameStrategy": _by_both,
}
"""By strategy: the subject for a topic, a part ("key" or "value") and a record's name."""


def subject(strategy: str, topic: str, part: str, record: str | None) -> str:
    """Return the subject; *strategy* may include its Java package."""
    return SUBJECTS[strategy.rpartition(".")[2]](topic, part, record)
