"""Answers of an S3 server that a store cannot work with."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

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
def store() -> Iterator[S3Store]:
    """A bucket on such a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), WithoutETag) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        options = {
            "aws.access.key.id": "a", "aws.secret.access.key": "b", "s3.region": "us-east-1",
        }  # fmt: skip
        url = f"http://127.0.0.1:{server.server_port}"
        yield S3Store(StoreSettings("s3://bucket", url, options))
        server.shutdown()


@pytest.mark.parametrize("ask", ["head", "open"])
def test_an_object_without_an_etag_is_refused_by_name(store: S3Store, ask: str) -> None:
    """What cannot be told from its replacement is not read, and the error says what to do."""
    with pytest.raises(StoreError) as raised:
        getattr(store, ask)("topics/t/object")

    assert "s3://bucket/topics/t/object has no ETag" == raised.value.what
    assert "through S3" in (raised.value.do or "")
