"""A client and a listener of which only one speaks TLS."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kbackup.errors import KafkaError
from kbackup.kafka import KafkaSettings, cluster
from kbackup.kafka.wire import speaks
from tests.support.certificates import write_certificate


@contextmanager
def listener(greet: Callable[[socket.socket], object]) -> Iterator[int]:
    """A port where each connection is greeted, and closed then."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):  # it is closed
                while True:
                    with server.accept()[0] as one, suppress(OSError):
                        one.settimeout(2)
                        greet(one)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def in_tls(tmp_path: Path) -> Callable[[socket.socket], object]:
    """Greets as a listener with TLS, which lets any other connection fall."""
    write_certificate(tmp_path / "ca.pem", tmp_path / "keys.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "keys.pem")
    return lambda one: context.wrap_socket(one, server_side=True).close()


def in_plain(one: socket.socket) -> None:
    """Answer a request; what begins a handshake is no request."""
    head = one.recv(12)
    if head[4:8] == b"\x00\x12\x00\x00":
        one.sendall(b"\x00\x00\x00\x0a" + head[8:12] + b"\x00\x23" + bytes(4))


def test_it_is_known_who_speaks_tls(in_tls: Callable[[socket.socket], object]) -> None:
    """Nothing is said of a port that is closed, or where somebody else listens."""
    with listener(in_tls) as tls, listener(in_plain) as plain, listener(lambda _: None) as other:
        found = [
            speaks("127.0.0.1", port, has_tls=has_tls)
            for port in (tls, plain, other, 1)
            for has_tls in (True, False)
        ]

    assert [True, False, False, True, False, False, False, False] == found


@pytest.mark.parametrize(
    ("protocol", "why", "do"),
    [
        ("PLAINTEXT", "speaks TLS, and security.protocol is PLAINTEXT", "security.protocol=SSL"),
        ("SASL_SSL", "speaks no TLS, and security.protocol is SASL_SSL", "=SASL_PLAINTEXT"),
    ],
)
def test_a_client_that_speaks_otherwise_is_told_at_once(
    protocol: str,
    why: str,
    do: str,
    in_tls: Callable[[socket.socket], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no broker that is away: trying again until the time is up helps nobody."""
    monkeypatch.setattr(cluster, "_SOON_S", 0.1)
    login = {"sasl.mechanisms": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    admin = {"security.protocol": protocol} | (login if protocol.startswith("SASL") else {})
    began = time.monotonic()

    with (
        listener(in_tls if protocol == "PLAINTEXT" else in_plain) as port,
        pytest.raises(KafkaError) as caught,
    ):
        KafkaSettings(f"127.0.0.1:{port}", admin=admin, timeout_s=60.0).cluster()

    error = caught.value
    assert (f"127.0.0.1:{port} {why}", True, False) == (error.why, do in error.do, error.is_away)
    assert time.monotonic() - began < 30
