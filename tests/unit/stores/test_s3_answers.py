"""What an S3 server is sent, and answers of it that a store cannot work with."""

import hashlib
import io
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from kbackup.errors import StoreError
from kbackup.stores import StoreSettings
from kbackup.stores.s3 import S3Store


class WithoutETag(BaseHTTPRequestHandler):
    """Says of each object how long it is, and not which one it is."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.send_header("Last-Modified", "Sat, 01 Jan 2022 00:00:00 GMT")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(b"data")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        pass


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[S3Store]:
    """A bucket on such a server."""
    kind = getattr(request, "param", WithoutETag)
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        options = {
            "aws.access.key.id": "a", "aws.secret.access.key": "b", "s3.region": "us-east-1",
            "s3.part.size": 5_242_880,
        }  # fmt: skip
        url = f"http://127.0.0.1:{server.server_port}"
        yield S3Store(StoreSettings("s3://bucket", url, options))
        server.shutdown()


@pytest.mark.parametrize("ask", ["head", "open"])
def test_an_object_without_an_etag_is_refused_by_name(store: S3Store, ask: str) -> None:
    """What cannot be told from its replacement is not read, and the error says what to do."""
    what = r"s3://bucket/topics/t/object at http://127\.0\.0\.1:\d+ has no ETag"
    with pytest.raises(StoreError, match=what) as raised:
        getattr(store, ask)("topics/t/object")

    assert "through S3" in (raised.value.do or "")


class Taking(WithoutETag):
    """Takes each object that is sent at once, and keeps what was said of its body."""

    said: ClassVar[list[tuple[int, str | None]]] = []

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.said.append((len(body), self.headers["x-amz-content-sha256"]))
        self.send_response(200)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", "0")
        self.end_headers()


class Counted(io.BytesIO):
    """Counts the bytes that are read."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


@pytest.mark.parametrize("store", [Taking], indirect=True)
def test_an_object_of_two_parts_is_read_once_and_sent_at_once(store: S3Store) -> None:
    """Its signature takes the checksum that is known already."""
    body = Counted(bytes(2 * 5_242_880))
    sha256 = hashlib.sha256(body.getvalue()).hexdigest()

    assert store.put("topics/t/object", body, sha256=sha256, metadata={})

    assert [(10_485_760, sha256)] == Taking.said
    assert 10_485_760 == body.count
