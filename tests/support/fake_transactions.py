"""A broker in this process that coordinates transactions, and refuses what it is told to."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.fake_broker import FakeBroker, _Form, _is_compact

PRODUCE, COORDINATOR, INIT, ADD, OFFSETS, END, COMMIT = 0, 10, 22, 24, 25, 26, 28

LOST = None
"""In the place of an error: the connection is closed."""


@dataclass
class FakeTransactions(FakeBroker):
    """One broker that is the coordinator of all.

    Attributes:
        errors: Of each kind of request, what its next answers say; then all is well.
        asked: What it was asked: kind, version and body.
        log: The batches it has appended.
        throttle_ms: How long a producer is asked to wait.
    """

    errors: dict[int, list[int | None]] = field(default_factory=dict)
    asked: list[tuple[int, int, bytes]] = field(default_factory=list)
    log: list[bytes] = field(default_factory=list)
    throttle_ms: int = 0

    @property
    def kinds(self) -> Sequence[int]:
        """The kinds of what it was asked, each once where several follow."""
        kinds = [kind for kind, _, _ in self.asked]
        return [kind for at, kind in enumerate(kinds) if not at or kinds[at - 1] != kind]

    def ends(self) -> list[bool]:
        """Whether each transaction that was ended was to be committed."""
        return [
            bool(body[-1 if version < 3 else -2])
            for kind, version, body in self.asked
            if kind == END
        ]

    def answered(self, api: int, version: int, body: bytes) -> bytes | None:
        """Answer what a producer asks."""
        self.asked.append((api, version, body))
        left = self.errors.get(api, [])
        error = left.pop(0) if left else 0
        if error is LOST:
            return None
        form = _Form(_is_compact(api, version))
        if api == COORDINATOR:
            host = form.text("127.0.0.1") + struct.pack(">i", self.port)
            return struct.pack(">ih", 0, error) + form.null + struct.pack(">i", 1) + host
        if api == INIT:
            return struct.pack(">ihqh", 0, error, 77, 5) + form.end
        if api in (OFFSETS, END):
            return struct.pack(">ih", 0, error) + form.end
        if api == PRODUCE:
            return self._produced(version, body, error)
        row = struct.pack(">ih", 0, error) + form.end
        topic = form.text(self.topic) + form.count(1) + row + form.end
        return struct.pack(">i", 0) + form.count(1) + topic + form.end

    def _produced(self, version: int, body: bytes, error: int) -> bytes:
        size = int.from_bytes(body[:2], "big")
        at = 2 + size + 6 + 4
        topic = int.from_bytes(body[at : at + 2], "big")
        at += 2 + topic + 4
        partition, length = struct.unpack_from(">ii", body, at)
        assert at + 8 + length == len(body)
        assert partition < self.partitions
        base = 10 * len(self.log)
        if not error:
            self.log.append(body[at + 8 :])
        row = struct.pack(">ihqqq", 0, error, -1 if error else base, -1, 0)
        row += struct.pack(">ih", 0, -1) if version >= 8 else b""
        form = _Form(is_compact=False)
        topics = form.count(1) + form.text(self.topic) + form.count(1) + row
        return topics + struct.pack(">i", self.throttle_ms)
