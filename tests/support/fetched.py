"""A partition's record batches over a socket, as a consumer that reads committed sees them.

Nothing of kbackup's access to Kafka takes part.  Source: the prototype of the protocol's Fetch v11.
"""

import socket
import struct
import time
from collections import deque

import pyarrow as pa

from kbackup.batches import Batches, walk


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class Wire:
    """One connection to the only broker."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)

    def call(self, api: int, version: int, body: bytes) -> memoryview:
        """Send a request and return its answer."""
        head = struct.pack(">hhi", api, version, 1) + _text("test")
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", self._received(4))
        return memoryview(self._received(size))[4:]

    def _received(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            assert part
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """Leave."""
        self._socket.close()


def fetched(servers: str, topic: str, start: int, end: int, most: int = 8 * 2**20) -> list[Batches]:
    """Return the batches of partition 0 that a base offset from *start* to *end* has, or holds."""
    wire, found, position = Wire(servers), [], start
    left = 200
    while position < end:
        left -= 1
        assert left, f"{topic} ends at {position}"
        request = struct.pack(">iiiibii", -1, 500, 1, most, 1, 0, -1) + struct.pack(">i", 1)
        request += _text(topic) + struct.pack(">i", 1)
        request += struct.pack(">iiqqi", 0, -1, position, -1, most) + struct.pack(">i", 0)
        answer = wire.call(1, 11, request + _text(""))
        at = 14 + 2 + len(topic.encode()) + 4
        _, error, _, _, _, aborted = struct.unpack_from(">ihqqqi", answer, at)
        assert error == 0
        at += 34
        ends = [struct.unpack_from(">qq", answer, at + 16 * n) for n in range(max(aborted, 0))]
        at += 16 * max(aborted, 0) + 4
        (size,) = struct.unpack_from(">i", answer, at)
        data = pa.py_buffer(bytes(answer[at + 4 : at + 4 + size]))
        batches = walk(data).check(may_be_cut=True)
        if len(batches):
            found.append(_committed(batches, ends, position, end))
            position = batches.next_offset
    wire.close()
    return [each for each in found if len(each)]


def _committed(batches: Batches, aborted: list[tuple[int, int]], start: int, end: int) -> Batches:
    """Leave out what is aborted, of control, empty, or outside."""
    begun = deque(sorted(aborted, key=lambda one: one[1]))
    open_ids: set[int] = set()
    wanted = []
    data = memoryview(batches.data).cast("B")
    for header in batches.headers.to_pylist():
        base, producer = header["base_offset"], header["producer_id"]
        last = base + header["last_delta"]
        while begun and begun[0][1] <= last:
            open_ids.add(begun.popleft()[0])
        is_control = bool(header["attributes"] & 0x20)
        if is_control and bytes(data[header["position"] + 68 : header["position"] + 70]) == b"\0\0":
            open_ids.discard(producer)
        is_aborted = bool(header["attributes"] & 0x10) and producer in open_ids
        is_wanted = not is_control and not is_aborted and header["count"] > 0
        wanted.append(is_wanted and last >= start and base < end)
    return batches.where(pa.array(wanted))


_NOT_YET = (3, 5, 6)
"""A new partition is not known to the broker yet, or has no leader there."""


def produced(servers: str, topic: str, batch: bytes) -> None:
    """Append a batch to partition 0 as it is, which a client's library would not make."""
    request = struct.pack(">hhii", -1, -1, 30_000, 1) + _text(topic)
    request += struct.pack(">iii", 1, 0, len(batch)) + batch
    wire, error, give_up = Wire(servers), _NOT_YET[0], time.monotonic() + 60
    while error in _NOT_YET and time.monotonic() < give_up:
        answer = wire.call(0, 8, request)
        (error,) = struct.unpack_from(">h", answer, 4 + 2 + len(topic.encode()) + 4 + 4)
        time.sleep(0.2 if error else 0)
    wire.close()
    assert error == 0, f"the broker answers with error {error}"


_UPGRADE, _DOWNGRADE = 1, 3


def enable(servers: str, feature: str, level: int) -> None:
    """Have a cluster finalize a feature at this level, whether that is higher or lower."""
    name = feature.encode()
    codes: list[int] = []
    for how in (_UPGRADE, _DOWNGRADE):
        body = struct.pack(">xib", 30_000, 2) + bytes([len(name) + 1]) + name
        wire = Wire(servers)
        answer = wire.call(57, 1, body + struct.pack(">hb3x", level, how))
        wire.close()
        codes += struct.unpack_from(">h", answer, 5)
    assert 0 in codes, f"{feature}={level}: error {codes}"
