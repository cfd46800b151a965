"""Connect to one broker, for what librdkafka neither gives out nor takes: batches.

TLS, SASL PLAIN and SCRAM secure it; the versions of requests are chosen from a few that are
known here, never negotiated upwards.  `unspoken` says which clients this cannot stand in for.

Source: Kafka's protocol guide; RFC 5802 for SCRAM; KIP-219, KIP-368.
"""

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Collection, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, Self

import pyarrow as pa


class LostError(Exception):
    """The connection is of no use any more; another one may be."""


class NoAccessError(Exception):
    """The broker does not let us in, or speaks another protocol: asking again does not help."""


class Api(IntEnum):
    """What can be asked."""

    PRODUCE = 0
    FETCH = 1
    METADATA = 3
    FIND_COORDINATOR = 10
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    SASL_AUTHENTICATE = 36


_SPOKEN: Final = {
    Api.PRODUCE: (8, 7),
    Api.FETCH: (13, 11),
    Api.METADATA: (12, 7),
    Api.FIND_COORDINATOR: (2, 1),
    Api.INIT_PRODUCER_ID: (4, 1),
    Api.OFFSET_FOR_LEADER_EPOCH: (3,),
    Api.ADD_PARTITIONS_TO_TXN: (3, 1),
    Api.ADD_OFFSETS_TO_TXN: (3, 1),
    Api.END_TXN: (3, 1),
    Api.TXN_OFFSET_COMMIT: (3, 2),
}
"""Versions that are known here, the best one first.

Those of transactions are of their first protocol: brokers offer those of the second one (KIP-890)
where the cluster does not have it, and one such request would block a transactional id for good.
"""

_DISPENSABLE: Final = frozenset({Api.OFFSET_FOR_LEADER_EPOCH})
"""What only some brokers are asked, those that do not say it in an answer to another question."""

_FLEXIBLE: Final = {
    Api.FETCH: 12,
    Api.METADATA: 9,
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 3,
    Api.END_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 3,
}
"""The first version of each whose texts and arrays are compact, with tags behind them."""

_SMALL: Final = 16 * 2**20
"""No answer is larger, unless it brings records."""

_SESSION: Final = 0.85
"""After this share of its lifetime a session is given up for a new one."""

CLIENT: Final = "kbackup"


class Request:
    """A request's body, as it grows; compact where its version is flexible.

    Attributes:
        parts: All of it.
    """

    def __init__(self, *, is_compact: bool) -> None:
        self._is_compact = is_compact
        self.parts: list[bytes | memoryview] = []

    def numbers(self, form: str, *values: int) -> Self:
        """Add numbers, formatted as `struct` has them, big-endian."""
        self.parts.append(struct.pack(f">{form}", *values))
        return self

    def raw(self, data: bytes | memoryview) -> Self:
        """Add bytes of a fixed length."""
        self.parts.append(data)
        return self

    def text(self, text: str | None) -> Self:
        """Add a text, or null."""
        if text is None:
            return self.raw(b"\0" if self._is_compact else b"\xff\xff")
        data = text.encode()
        head = _varint(len(data) + 1) if self._is_compact else struct.pack(">h", len(data))
        return self.raw(head + data)

    def count(self, items: int) -> Self:
        """Begin an array."""
        head = _varint(items + 1) if self._is_compact else struct.pack(">i", items)
        return self.raw(head)

    def end(self) -> Self:
        """End a structure: no tags."""
        return self.raw(b"\0") if self._is_compact else self


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


class Response:
    """Reads an answer's fields in their order.

    Raises:
        LostError: From each method, if the answer is cut short or makes no sense.
    """

    def __init__(self, data: pa.Buffer, *, is_compact: bool) -> None:
        self._data, self._view = data, memoryview(data).cast("B")
        self._at = 4  # behind the correlation id
        self._is_compact = is_compact
        if is_compact:
            self.tags()

    def numbers(self, form: str) -> tuple[int, ...]:
        """Return numbers, formatted as `struct` has them."""
        numbers = struct.Struct(f">{form}")
        found: tuple[int, ...] = numbers.unpack(self.raw(numbers.size))
        return found

    def number(self, form: str) -> int:
        """Return one."""
        return self.numbers(form)[0]

    def raw(self, size: int) -> bytes:
        """Return the next bytes."""
        start = self._skip(size)
        return bytes(self._view[start : self._at])

    def text(self) -> str | None:
        """Return a text, which may be null."""
        size = self._varint() - 1 if self._is_compact else self.number("h")
        return None if size < 0 else self.raw(size).decode(errors="replace")

    def count(self) -> range:
        """Return one number for each item of an array; none where that is null."""
        items = self._varint() - 1 if self._is_compact else self.number("i")
        if items > len(self._view):
            raise LostError(f"the broker's answer claims to have {items} items")
        return range(items)

    def records(self) -> pa.Buffer:
        """Return records, which are not copied."""
        size = self._varint() - 1 if self._is_compact else self.number("i")
        return self._data.slice(self._skip(max(0, size)), max(0, size))

    def tags(self) -> dict[int, bytes]:
        """Return what stands behind a structure, by its tags."""
        if not self._is_compact:
            return {}
        return {self._varint(): self.raw(self._varint()) for _ in range(self._varint())}

    def _skip(self, size: int) -> int:
        start, self._at = self._at, self._at + size
        if self._at > len(self._view):
            raise LostError("the broker's answer is cut short")
        return start

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._view[self._skip(1)]
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7


@dataclass(frozen=True, slots=True, repr=False)
class Security:
    """How a broker knows us, and we it: by TLS, if any, and by a mechanism of SASL, or empty."""

    tls: ssl.SSLContext | None = None
    mechanism: str = ""
    user: str = ""
    password: str = ""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Read librdkafka's properties, none of which is `unspoken`.

        Raises:
            NoAccessError: If a certificate or key cannot be used.
        """
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        try:
            tls = _tls(properties) if protocol.endswith("SSL") else None
        except (OSError, ValueError) as error:
            raise NoAccessError(f"a certificate or key cannot be used: {error}") from None
        if not protocol.startswith("SASL"):
            return cls(tls)
        return cls(
            tls, _mechanism(properties),
            properties.get("sasl.username", ""), properties.get("sasl.password", ""),
        )  # fmt: skip


def _mechanism(properties: Mapping[str, str]) -> str:
    return properties.get("sasl.mechanisms", properties.get("sasl.mechanism", "GSSAPI")).upper()


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    authorities = properties.get("ssl.ca.location", "probe")
    is_folder = Path(authorities).is_dir()
    context = ssl.create_default_context(
        cafile=None if is_folder or authorities == "probe" else authorities,
        capath=authorities if is_folder else None,
    )
    if properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification", "true").lower() in _FALSE:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if (certificate := properties.get("ssl.certificate.location")) is not None:
        context.load_cert_chain(
            certificate, properties.get("ssl.key.location"), properties.get("ssl.key.password", "")
        )
    return context


_FALSE: Final = frozenset({"false", "f", "0"})
"""How librdkafka reads it."""

_MECHANISMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512", "PLAIN": ""}
_SPOKEN_PROPERTIES: Final = frozenset(
    {
        "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
        "ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification",
        "sasl.mechanisms", "sasl.mechanism", "sasl.username", "sasl.password",
    }
)  # fmt: skip


def takes_all(properties: Mapping[str, str]) -> bool:
    """Whether each of a consumer's properties has its effect here, as it has in librdkafka."""
    own = ("security.protocol", "fetch.message.max.bytes", "client.rack")
    spoken = {*_SPOKEN_PROPERTIES, *own}
    return spoken.issuperset(properties) and not unspoken(properties)


def unspoken(properties: Mapping[str, str]) -> str:
    """Return which of a consumer's properties is not spoken here, with its value; empty if none."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol.startswith("SASL") and _mechanism(properties) not in _MECHANISMS:
        return f"sasl.mechanism={_mechanism(properties)}"
    if protocol == "PLAINTEXT":
        return ""
    return next(
        (
            name
            for name in sorted(properties)
            if name.startswith(("ssl.", "sasl.", "enable.ssl.")) and name not in _SPOKEN_PROPERTIES
        ),
        "",
    )


class BrokerConnection:
    """A connection to one broker, signed in.

    Only `interrupt` may be called from another thread.

    Args:
        host: The broker's name or address.
        port: Its port.
        security: How it knows us.
        timeout_s: How long it may say nothing at all before the connection counts as lost.
        apis: What it will be asked.

    Attributes:
        versions: The version in which each `Api` is asked, as far as it can be.

    Raises:
        LostError: If it cannot be reached.
        NoAccessError: If it does not let us in.
    """

    def __init__(
        self, host: str, port: int, security: Security, timeout_s: float, apis: Collection[Api]
    ) -> None:
        self.versions: dict[Api, int] = {}
        self._place = f"{host}:{port}"
        self._correlation, self._awaited = 0, deque[int]()
        self._until: float | None = None
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except (OSError, UnicodeError) as error:  # no name of a host may be so
            raise LostError(f"{self._place}: {error}") from None
        try:
            for level, name, value in (
                (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            ):
                self._socket.setsockopt(level, name, value)
            if security.tls is not None:
                self._socket = _wrapped(self._socket, security.tls, host, self._place)
            if security.mechanism:
                self._sign_in(security)
            self._learn_versions(apis)
        except BaseException:
            self._socket.close()
            raise

    @property
    def is_over(self) -> bool:
        """Whether it is time for a new one, since sessions end."""
        return self._until is not None and time.monotonic() > self._until

    def interrupt(self) -> None:
        """Have whoever waits for an answer get a `LostError`."""
        with suppress(OSError):  # it was lost before
            # that of TLS would forget the session under the hands of who reads
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def request(self, api: Api) -> Request:
        """Begin the body of a request."""
        return Request(is_compact=self._is_compact(api))

    def ask(self, api: Api, body: Request) -> Response:
        """Send a request, and wait for its answer.

        Raises:
            LostError: If none comes; likewise `send` and `receive`.
        """
        self.send(api, body)
        return self.receive(api, _SMALL)

    def send(self, api: Api, body: Request) -> None:
        """Send a request; others may be on their way, and are answered in order."""
        self._correlation = (self._correlation + 1) % 2**31
        head = struct.pack(">hhih", api, self.versions.get(api, 0), self._correlation, len(CLIENT))
        head += CLIENT.encode() + (b"\0" if self._is_compact(api) else b"")
        parts = [head, *body.parts]
        size = struct.pack(">i", sum(map(len, parts)))
        self._awaited.append(self._correlation)
        try:
            self._socket.sendall(b"".join([size, *parts]))
        except OSError as error:
            raise LostError(f"{self._place}: {error}") from None

    def receive(self, api: Api, most: int = 2**31 - 1) -> Response:
        """Wait for the answer to the first request without one, of at most so many bytes."""
        size = int.from_bytes(self._received(4), "big", signed=True)
        if not 4 <= size <= most:
            raise LostError(
                f"{self._place}: an answer of {size} bytes; this is not Kafka, or it is TLS"
            )
        data = self._received(size)
        if int.from_bytes(memoryview(data)[:4], "big") != self._awaited.popleft():
            raise LostError(f"{self._place}: the answer to another request")
        return Response(data, is_compact=self._is_compact(api))

    def _is_compact(self, api: Api) -> bool:
        return self.versions.get(api, 0) >= _FLEXIBLE.get(api, 1000)

    def _received(self, size: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(size)
        room, at = memoryview(buffer).cast("B"), 0
        while at < size:
            try:
                count = self._socket.recv_into(room[at:])
            except (OSError, ValueError) as error:
                raise LostError(f"{self._place}: {error}") from None
            if not count:
                raise LostError(f"{self._place}: the broker closed the connection")
            at += count
        return buffer

    def _learn_versions(self, apis: Collection[Api]) -> None:
        answer = self.ask(Api.API_VERSIONS, self.request(Api.API_VERSIONS))
        if (code := answer.number("h")) != 0:
            raise NoAccessError(f"{self._place}: it does not report its versions: error {code}")
        theirs = {}
        for _ in answer.count():
            api, lowest, highest = answer.numbers("hhh")
            theirs[api] = range(lowest, highest + 1)
        for api in apis:
            ours = _SPOKEN[api]
            version = next((each for each in ours if each in theirs.get(api, ())), None)
            if version is not None:
                self.versions[api] = version
            elif api not in _DISPENSABLE:
                why = f"it speaks none of the versions {ours} of {api.name}"
                raise NoAccessError(f"{self._place}: {why}")

    def _sign_in(self, security: Security) -> None:
        self.versions |= {Api.SASL_HANDSHAKE: 1, Api.SASL_AUTHENTICATE: 1}
        body = self.request(Api.SASL_HANDSHAKE).text(security.mechanism)
        answer = self.ask(Api.SASL_HANDSHAKE, body)
        if answer.number("h") != 0:
            offered = ", ".join(str(answer.text()) for _ in answer.count())
            raise NoAccessError(f"{self._place} takes {offered}, not {security.mechanism}")
        steps = _steps(security)
        message = next(steps)
        try:
            while True:
                body = self.request(Api.SASL_AUTHENTICATE).numbers("i", len(message)).raw(message)
                answer = self.ask(Api.SASL_AUTHENTICATE, body)
                code, said = answer.number("h"), answer.text()
                if code != 0:
                    raise NoAccessError(f"{self._place}: {said or f'error {code}'}")
                reply, lifetime_ms = answer.raw(answer.number("i")), answer.number("q")
                if lifetime_ms > 0:
                    self._until = time.monotonic() + _SESSION * lifetime_ms / 1000
                message = steps.send(reply)
        except StopIteration:
            pass


def _wrapped(plain: socket.socket, tls: ssl.SSLContext, host: str, place: str) -> ssl.SSLSocket:
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise NoAccessError(f"{place}: {error.verify_message}") from None
    except ssl.SSLEOFError:  # also a proxy's way to say that the broker behind it is away
        raise LostError(f"{place}: the broker closed the connection; this may not be TLS") from None
    except ssl.SSLError as error:
        raise NoAccessError(f"{place}: {error.reason or error}") from None
    except OSError as error:
        raise LostError(f"{place}: {error}") from None


_WHICH_VERSIONS: Final = struct.pack(">ihhih", 10, Api.API_VERSIONS, 0, 7, -1)
"""A request that any listener without TLS answers before a login; 7 comes back."""


def speaks(host: str, port: int, *, has_tls: bool, timeout_s: float = 2.0) -> bool:
    """Whether what listens there is seen to speak TLS, or Kafka's protocol without it."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # nothing is believed, and nothing is said
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout_s) as plain:
            if has_tls:
                with anyone.wrap_socket(plain, server_hostname=host):
                    return True
            plain.sendall(_WHICH_VERSIONS)
            return plain.makefile("rb").read(8)[4:] == _WHICH_VERSIONS[8:12]
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # it says no, and says it in TLS
    except (OSError, UnicodeError):
        return False


def _steps(security: Security) -> Generator[bytes, bytes, None]:
    """Yield what is said to sign in, each in answer to what the broker has said."""
    if security.mechanism == "PLAIN":
        yield f"\0{security.user}\0{security.password}".encode()
        return
    yield from scram(_MECHANISMS[security.mechanism], security.user, security.password)


_ROUNDS: Final = range(4096, 2**20 + 1)
"""Iterations: Kafka takes 4096 to 16384.  Fewer make a password easy to guess, more take long."""


def scram(
    digest: str, user: str, password: str, nonce: str | None = None
) -> Generator[bytes, bytes, None]:
    """Yield the messages of SCRAM, by a digest such as ``sha256``, and take the broker's.

    The password is not sent; *nonce* is ours, if not random.

    Raises:
        NoAccessError: If the broker does not know the password either.
    """
    nonce = secrets.token_urlsafe(24) if nonce is None else nonce
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = (yield f"n,,{first}".encode()).decode(errors="replace")
    said = dict(part.split("=", 1) for part in challenge.split(",") if "=" in part)
    try:
        salt, rounds = base64.b64decode(said["s"]), int(said["i"])
        if rounds not in _ROUNDS:
            raise ValueError(rounds)  # noqa: TRY301  (as of what is no number)
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, rounds)
    except (KeyError, ValueError, OverflowError):
        said = {}
    if not said.get("r", "").startswith(nonce):
        raise NoAccessError(f"the broker's challenge makes no sense: {challenge}")
    final = f"c=biws,r={said['r']}"
    signed = f"{first},{challenge},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    stored = hashlib.new(digest, client_key).digest()
    signature = hmac.digest(stored, signed, digest)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    answer = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    server = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(answer.split(b",")[0], b"v=" + base64.b64encode(server)):
        raise NoAccessError("the broker does not know the password: it may be an impostor")
