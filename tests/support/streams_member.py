"""A member of a group of Kafka Streams whose tasks the broker assigns (KIP-1071).

No client for Python speaks that protocol; two requests of it are enough here.
"""

import socket
import struct
import time
import uuid
from collections.abc import Mapping
from typing import Final, Self

import pyarrow as pa

from kbackup.kafka.wire import Request, Response

_HEARTBEAT, _COMMIT = (88, 0), (8, 9)
_LEAVES: Final = -1


class StreamsMember:
    """An application that reads one topic, while it is in its group.

    Args:
        servers: The broker, which coordinates all groups.
        group: The application's id.
        topic: What it reads.
    """

    def __init__(self, servers: str, group: str, topic: str) -> None:
        host, port = servers.split(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._group, self._topic, self._id = group, topic, str(uuid.uuid4())
        self._epoch = 0

    def __enter__(self) -> Self:
        deadline = time.monotonic() + 20
        while (error := self._beat(0)) and time.monotonic() < deadline:
            time.sleep(0.2)  # the coordinator may be loading
        if error:
            self._socket.close()
            raise AssertionError(error)
        return self

    def __exit__(self, *_: object) -> None:
        self._beat(_LEAVES)
        self._socket.close()

    def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commit an offset, and a text beside it, in partitions."""
        body = self._request(_COMMIT).text(self._group).numbers("i", self._epoch).text(self._id)
        body.text(None).count(1).text(self._topic).count(len(offsets))
        for partition, (offset, text) in offsets.items():
            body.numbers("iqi", partition, offset, -1).text(text).end()
        answer = self._asked(body.end().end())
        answer.numbers("i")
        for _ in answer.count():
            answer.text()
            for _ in answer.count():
                partition, error = answer.numbers("ih")
                answer.tags()
                assert not error, f"partition {partition}: error {error}"

    def _beat(self, epoch: int) -> str:
        """Join the group, or leave it; return what the broker has against it."""
        body = self._request(_HEARTBEAT).text(self._group).text(self._id).numbers("ii", epoch, 0)
        body.text(None).text(None).numbers("i", 60_000)
        if epoch == _LEAVES:
            body.numbers("b", -1)
        else:
            body.numbers("bi", 1, 0).count(1).text("0").count(1).text(self._topic)
            body.count(0).count(0).count(0).count(0).count(0).end().end()
        body.count(0).count(0).count(0)  # tasks that it has
        body.text(self._id).numbers("b", -1).count(0).raw(b"\0\0").numbers("b", 0)
        answer = self._asked(body.end())
        _, error = answer.numbers("ih")
        why = answer.text()
        answer.text()
        self._epoch = answer.number("i")
        return f"error {error}: {why}" if error else ""

    @staticmethod
    def _request(api: tuple[int, int]) -> Request:
        head = Request(is_compact=True).numbers("hhi", *api, 1)
        return head.raw(struct.pack(">h", 4) + b"test").end()

    def _asked(self, request: Request) -> Response:
        body = b"".join(request.parts)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", self._read(4))
        return Response(pa.py_buffer(self._read(size)), is_compact=True)

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            assert more, "the broker has closed the connection"
            found += more
        return found
