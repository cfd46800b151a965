"""A broker in this process that answers a fetch as it is told to, in the versions it is told to."""

import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.recorded import offered

FETCH, METADATA, HANDSHAKE, VERSIONS, END_OF_EPOCH, AUTHENTICATE = 1, 3, 17, 18, 23, 36

OFFERED = offered("4.1.1")
"""The lowest and the highest version of each kind of request."""


@dataclass(frozen=True)
class Answer:
    """What it answers to a fetch.

    Attributes:
        data: Batches.
        stable: The last stable offset.
        error: A code.
        aborted: First offset and producer id of transactions.
        diverged: Where the log parts from what was read, None where it does not.
        throttle_ms: How long it asks to be left alone.
        nearer: The broker whose replica is nearer, -1 for none.
        is_lost: It closes the connection in the place of an answer.
    """

    data: bytes = b""
    stable: int = 0
    error: int = 0
    aborted: Sequence[tuple[int, int]] = ()
    diverged: int | None = None
    throttle_ms: int = 0
    nearer: int = -1
    is_lost: bool = False


LOST = Answer(is_lost=True)


@dataclass(frozen=True)
class Fetch:
    """What it was asked.

    Attributes:
        topic: Name or id, as it was given.
        epoch: Of the leader, as the reader knows it.
        offset: From where on.
        read_epoch: Of the leader of what was read, -1 where that is not said.
        rack: Where the reader is.
        at: When, by the monotonic clock.
    """

    topic: bytes
    epoch: int
    offset: int
    read_epoch: int
    rack: bytes
    at: float


@dataclass
class FakeBroker:
    """One broker, and one topic.

    Attributes:
        answers: Taken from the front, one a fetch; the last one stays.
        versions: The lowest and the highest of each kind of request.
        topic: The topic's name.
        ids: Its id, as each question about the topic is answered; the last one stays.
        epoch: Of the leader; each question about the topic raises it by one.
        fetches: What it was asked.
        other: The port of the cluster's other broker, number 2; None without one.
        end_of_epoch: What it says when it is asked where an epoch ends.
        session_ms: How long who signs in may stay; 0: for ever.
        partitions: Of the topic; the first one is read.
        signed_in: What each said who has signed in by PLAIN.
    """

    answers: list[Answer]
    versions: dict[int, tuple[int, int]] = field(default_factory=OFFERED.copy)
    topic: str = "t"
    ids: list[bytes] = field(default_factory=lambda: [b"i" * 16])
    epoch: int = 4
    fetches: list[Fetch] = field(default_factory=list)
    other: int | None = None
    end_of_epoch: int = -1
    session_ms: int = 0
    partitions: int = 1
    signed_in: list[bytes] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open = [self._server]
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._thread.join(10)

    @property
    def servers(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
        serving = []
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                break
            self._open.append(client)
            serving.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
            serving[-1].start()
        for each in serving:
            each.join(10)

    def _serve(self, client: socket.socket) -> None:
        with client:
            while True:
                try:
                    head = client.recv(4, socket.MSG_WAITALL)
                    if len(head) < 4:
                        return
                    body = client.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                    api, version, correlation, name = struct.unpack_from(">hhih", body)
                    found = self._answered(api, version, body[10 + name :])
                    if found is None:
                        return
                    tags = b"\0" if _is_compact(api, version) else b""
                    data = struct.pack(">i", correlation) + tags + found
                    client.sendall(struct.pack(">i", len(data)) + data)
                except OSError:
                    return

    def _answered(self, api: int, version: int, body: bytes) -> bytes | None:
        if api == VERSIONS:
            rows = [struct.pack(">hhh", each, *both) for each, both in self.versions.items()]
            return struct.pack(">hi", 0, len(rows)) + b"".join(rows)
        if api == HANDSHAKE:
            return struct.pack(">hi", 0, 1) + b"\0\5PLAIN"
        if api == AUTHENTICATE:
            self.signed_in.append(body[4:])
            return struct.pack(">hhiq", 0, -1, 0, self.session_ms)
        lowest, highest = self.versions[api]
        assert lowest <= version <= highest, "a version that is not offered"
        if api == END_OF_EPOCH:
            of = struct.pack(">i", 1) + struct.pack(">hiiq", 0, 0, 0, self.end_of_epoch)
            return struct.pack(">iih", 0, 1, len(self.topic)) + self.topic.encode() + of
        if api == METADATA:
            self.epoch += 1
            topic_id = self.ids[0] if len(self.ids) == 1 else self.ids.pop(0)
            return self._metadata(version, topic_id)
        return self.answered(api, version, body)

    def answered(self, _api: int, version: int, body: bytes) -> bytes | None:
        """Answer what else it is asked; None closes the connection."""
        self._note(version, body)
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        return None if answer.is_lost else self._fetched(version, answer)

    def _metadata(self, version: int, topic_id: bytes) -> bytes:
        form = _Form(_is_compact(METADATA, version))
        numbers = form.count(1) + struct.pack(">i", 1)
        ports = [self.port] if self.other is None else [self.port, self.other]
        brokers = [
            struct.pack(">i", number) + form.text("127.0.0.1") + struct.pack(">i", port)
            + form.null + form.end
            for number, port in enumerate(ports, 1)
        ]  # fmt: skip
        partitions = [
            struct.pack(">hiii", 0, partition, 1, self.epoch) + 2 * numbers + form.count(0)
            + form.end
            for partition in range(self.partitions)
        ]  # fmt: skip
        return b"".join(
            [
                struct.pack(">i", 0), form.count(len(ports)), *brokers,
                form.text("cluster"), struct.pack(">i", 1), form.count(1), struct.pack(">h", 0),
                form.text(self.topic), topic_id if version >= 10 else b"", b"\0",
                form.count(self.partitions), *partitions,
                struct.pack(">i", 0) if version >= 8 else b"", form.end, form.end,
            ]
        )  # fmt: skip

    def _note(self, version: int, body: bytes) -> None:
        at = int(_is_compact(FETCH, version)) + 25 + (1 if version >= 12 else 4)
        if version >= 13:
            topic, at = body[at : at + 16], at + 16 + 1
        else:
            size = int.from_bytes(body[at : at + 2], "big")
            topic, at = body[at + 2 : at + 2 + size], at + 2 + size + 4
        partition, epoch, offset, more = struct.unpack_from(">iiqi", body, at)
        assert partition == 0
        read_epoch = more if version >= 12 else -1
        behind = at + (32 + 4 if version >= 12 else 28 + 6)  # ends, the forgotten, the length
        rack = body[behind:-1] if version >= 12 else body[behind:]
        self.fetches.append(Fetch(topic, epoch, offset, read_epoch, rack, time.monotonic()))

    def _fetched(self, version: int, answer: Answer) -> bytes:
        form = _Form(_is_compact(FETCH, version))
        if answer.throttle_ms and not answer.data:  # as Kafka does
            return struct.pack(">ihi", answer.throttle_ms, 0, 0) + form.count(0) + form.end
        aborted = [struct.pack(">qq", each, first) + form.end for first, each in answer.aborted]
        end = form.end
        if answer.diverged is not None and version >= 12:
            end = b"\1\0\x0d" + struct.pack(">iq", 1, answer.diverged) + b"\0"
        return b"".join(
            [
                struct.pack(">ihi", answer.throttle_ms, 0, 0), form.count(1),
                self.ids[0] if version >= 13 else form.text(self.topic), form.count(1),
                struct.pack(">ihqqq", 0, answer.error, answer.stable, answer.stable, 0),
                form.count(len(aborted)), *aborted, struct.pack(">i", answer.nearer),
                form.size(len(answer.data)), answer.data, end, form.end, form.end,
            ]
        )  # fmt: skip


_FLEXIBLE = {FETCH: 12, METADATA: 9, 22: 2, 24: 3, 25: 3, 26: 3, 28: 3}


def _is_compact(api: int, version: int) -> bool:
    return version >= _FLEXIBLE.get(api, 100)


class _Form:
    """How texts, arrays and ends of structures are spelt."""

    def __init__(self, is_compact: bool) -> None:
        self._is_compact = is_compact
        self.end = b"\0" if is_compact else b""
        self.null = b"\0" if is_compact else b"\xff\xff"

    def count(self, items: int) -> bytes:
        return _unsigned(items + 1) if self._is_compact else struct.pack(">i", items)

    size = count

    def text(self, text: str) -> bytes:
        if self._is_compact:
            return _unsigned(len(text) + 1) + text.encode()
        return struct.pack(">h", len(text)) + text.encode()


def _unsigned(number: int) -> bytes:
    found: list[Any] = []
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
