"""Azurite and fake-gcs-server: stand-ins for Azure Blob Storage and Google Cloud Storage.

npm and go fetch them, once, into the user's cache, which takes minutes; so they are for the night.

fake-gcs-server has no uploads in Google's XML, which object_store speaks, and its XML listings
have one page.  So an `XmlFront` stands before it that says both in JSON.  Conditions, generations,
metadata and order are the emulator's own.
"""

import base64
import email.utils
import hashlib
import hmac
import http.client
import itertools
import json
import os
import re
import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

import pytest
from filelock import FileLock

from kbackup.files import cache_directory
from kbackup.local.servers import LocalServer, Service, free_ports

AZURITE = "3.37.0"
FAKE_GCS_SERVER = "v1.56.1"

BY_NIGHT = (pytest.mark.nightly, pytest.mark.timeout(3600))
"""The marks of tests with an emulator: the first one may have to fetch it, which took 16 minutes on
two busy cores."""

_START_S = 60
_PLACES = itertools.count()


class Emulator(Protocol):
    """One of the two, running.

    Attributes:
        endpoint_url: Where it listens.
        environment: The variables by which it is found, and its credentials.
    """

    endpoint_url: str
    environment: dict[str, str]

    def place(self) -> str:
        """Return the URL of an empty store."""
        ...


def _fetched(
    name: str, program: str, made: str, fetch: Callable[[Path], Any], left: Sequence[str] = ()
) -> Path:
    """Return the file *made* in the cache's folder *name*, fetched first unless it is there.

    What fetching has *left* there is removed.  A machine without *program*, or whose registry does
    not answer, skips the test by name.
    """
    if shutil.which(program) is None:
        pytest.skip(f"{name} needs {program}, which is not installed")
    folder = cache_directory() / name
    with FileLock(f"{folder}.lock"):
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            done = fetch(folder)
            if done.returncode != 0:
                pytest.skip(f"{name} cannot be fetched: {done.stderr.strip()[-300:]}")
            for each in left:
                shutil.rmtree(folder / each)
            (folder / "whole").touch()
    return folder / made


def _run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


class Azurite(LocalServer):
    """Azurite's blob service, with blobs in memory."""

    account = "devstoreaccount1"
    # the account and the key of every Azurite, which its documentation tells
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self) -> None:
        """Fetch it, start it, and make a container."""
        folder = f"azurite-{AZURITE}"
        self._program = _fetched(
            folder, "npm", "node_modules/azurite/dist/src/blob/main.js",
            lambda into: _run(
                "npm", "install", "--prefix", str(into), "--no-audit", "--no-fund",
                f"azurite@{AZURITE}",
            ),
        )  # fmt: skip
        super().__init__("kbackup-azurite-")
        self.endpoint_url = f"http://127.0.0.1:{self._port}/{self.account}"
        self.environment = {
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
            "AZURE_STORAGE_ENDPOINT": self.endpoint_url,
        }
        self._make_container("tests")

    def place(self) -> str:
        """Return the URL of an empty store, a path in the container."""
        return f"az://{self.account}/tests/{next(_PLACES)}/backups"

    def _prepare(self) -> None:
        (self._port,) = free_ports(1)

    def _start(self) -> Service:
        service = Service(
            "Azurite",
            [
                "node", self._program, "--blobHost", "127.0.0.1", "--blobPort", str(self._port),
                "--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck",
            ],
            self._directory / "log",
            scratch=self._directory,
        )  # fmt: skip
        service.wait_until(lambda: _listens(self._port), _START_S)
        return service

    def _make_container(self, name: str) -> None:
        # obstore makes none
        date, version = email.utils.formatdate(usegmt=True), "2021-12-02"
        headers = f"x-ms-date:{date}\nx-ms-version:{version}"
        place = f"/{self.account}/{self.account}/{name}"
        text = "PUT" + "\n" * 12 + f"{headers}\n{place}\nrestype:container"
        digest = hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()
        signature = base64.b64encode(digest).decode()
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request(
            "PUT", f"/{self.account}/{name}?restype=container",
            headers={
                "x-ms-date": date, "x-ms-version": version, "Content-Length": "0",
                "Authorization": f"SharedKey {self.account}:{signature}",
            },
        )  # fmt: skip
        assert connection.getresponse().status == 201
        connection.close()


class FakeGcs(LocalServer):
    """fake-gcs-server, with objects in memory, behind an `XmlFront`."""

    def __init__(self) -> None:
        """Fetch it, start it, and make a bucket."""
        folder = f"fake-gcs-server-{FAKE_GCS_SERVER}"
        module = f"github.com/fsouza/fake-gcs-server@{FAKE_GCS_SERVER}"
        self._program = _fetched(
            folder, "go", "fake-gcs-server",
            lambda into: _run(
                "go", "install", module,
                GOBIN=str(into), GOPATH=str(into / "go"), GOCACHE=str(into / "cache"),
                GOFLAGS="-modcacherw",
            ),
            left=("go", "cache"),
        )  # fmt: skip
        super().__init__("kbackup-gcs-")
        answer = self._ask("POST", "/storage/v1/b?project=p", json.dumps({"name": "tests"}))
        assert answer.status == 200
        self._front = XmlFront(self._port)
        self.endpoint_url = self._front.url
        self.environment = {
            "GOOGLE_BASE_URL": self.endpoint_url,
            "GOOGLE_BEARER_TOKEN": "any",
        }

    def place(self) -> str:
        """Return the URL of an empty store, a path in the bucket."""
        return f"gs://tests/{next(_PLACES)}/backups"

    def stop(self) -> None:
        """Stop both."""
        self._front.stop()
        super().stop()

    def _ask(self, method: str, path: str, body: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        try:
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        return answer

    def _prepare(self) -> None:
        (self._port,) = free_ports(1)

    def _start(self) -> Service:
        here = f"127.0.0.1:{self._port}"
        service = Service(
            "fake-gcs-server",
            [
                self._program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(self._port),
                "-backend", "memory", "-public-host", here, "-external-url", f"http://{here}",
                "-log-level", "error",
            ],
            self._directory / "log",
            scratch=self._directory,
        )  # fmt: skip
        service.wait_until(lambda: _listens(self._port), _START_S)
        return service


def _listens(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.connect()
    except OSError:
        return False
    connection.close()
    return True


class XmlFront:
    """Google's XML interface, as far as object_store speaks it, before a server that has JSON's.

    Attributes:
        url: Where it listens.
        uploads: The unfinished ones: their attributes, and their parts by number.
    """

    def __init__(self, port: int) -> None:
        """Start, before the server on this port."""

        class Handler(_Handler):
            backend, uploads = port, dict[str, tuple[dict[str, str], dict[int, bytes]]]()

        self.uploads = Handler.uploads
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    backend: int
    uploads: dict[str, tuple[dict[str, str], dict[int, bytes]]]

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Read an object, or list."""
        _, _, key = self._where()
        self._list() if not key else self._pass_on()

    def do_HEAD(self) -> None:
        """Read an object's headers."""
        self._pass_on()

    def do_DELETE(self) -> None:
        """Delete an object, or what was uploaded of one."""
        _, query, _ = self._where()
        if "uploadId" in query:
            self.uploads.pop(query["uploadId"], None)
            self._answer(204)
        else:
            self._pass_on()

    def do_POST(self) -> None:
        """Begin an upload, or complete it."""
        bucket, query, key = self._where()
        body = self._body()
        if "uploads" in query:
            upload = secrets.token_hex(8)
            self.uploads[upload] = self._attributes(), {}
            self._answer(200, f"<X><UploadId>{upload}</UploadId></X>")
        elif query["uploadId"] not in self.uploads:
            self._answer(404, "<Error><Code>NoSuchUpload</Code></Error>")
        else:
            attributes, parts = self.uploads.pop(query["uploadId"])
            numbers = [int(n) for n in re.findall(rb"<PartNumber>(\d+)<", body)]
            made = self._store(bucket, key, attributes, b"".join(parts[n] for n in numbers), "")
            if made is not None:
                tag = escape(made["ETag"])
                kind = "CompleteMultipartUploadResult"
                self._answer(200, f"<{kind}><ETag>{tag}</ETag></{kind}>", **made)

    def do_PUT(self) -> None:
        """Store an object, or a part of one."""
        bucket, query, key = self._where()
        body = self._body()
        if "partNumber" in query:
            _, parts = self.uploads[query["uploadId"]]
            parts[int(query["partNumber"])] = body
            self._answer(200, ETag=f'"{hashlib.md5(body).hexdigest()}"')
            return
        match = self.headers.get("x-goog-if-generation-match", "")
        made = self._store(bucket, key, self._attributes(), body, match)
        if made is not None:
            self._answer(200, **made)

    def _where(self) -> tuple[str, dict[str, str], str]:
        parts = urlsplit(self.path)
        bucket, _, key = parts.path[1:].partition("/")
        return unquote(bucket), dict(parse_qsl(parts.query, keep_blank_values=True)), unquote(key)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _attributes(self) -> dict[str, str]:
        return {
            name[len("x-goog-meta-") :].lower(): text
            for name, text in self.headers.items()
            if name.lower().startswith("x-goog-meta-")
        }

    def _store(
        self, bucket: str, key: str, attributes: dict[str, str], body: bytes, match: str
    ) -> dict[str, str] | None:
        """Store an object, and return its headers; None where an error was answered."""
        said = json.dumps({"name": key, "metadata": attributes}).encode()
        edge = secrets.token_hex(16).encode()
        parts = (
            b"\r\n--" + edge + b"\r\nContent-Type: " + kind + b"\r\n\r\n" + data
            for kind, data in ((b"application/json", said), (b"application/octet-stream", body))
        )
        query = {"uploadType": "multipart"} | ({"ifGenerationMatch": match} if match else {})
        status, _, found = self._asked(
            "POST", f"/upload/storage/v1/b/{quote(bucket)}/o?{urlencode(query)}",
            b"".join(parts) + b"\r\n--" + edge + b"--\r\n",
            {"Content-Type": f"multipart/related; boundary={edge.decode()}"},
        )  # fmt: skip
        if status != 200:
            code = "NoSuchBucket" if status == 404 else "PreconditionFailed"
            self._answer(status, f"<Error><Code>{code}</Code></Error>")
            return None
        made = json.loads(found)
        return {"ETag": f'"{made["etag"]}"', "x-goog-generation": str(made["generation"])}

    def _list(self) -> None:
        bucket, query, _ = self._where()
        after = query.get("start-after", "")
        asked = {
            "prefix": query.get("prefix", ""), "startOffset": after,
            "maxResults": query.get("max-keys", "1000"),
            "pageToken": query.get("continuation-token", ""),
        }  # fmt: skip
        path = f"/storage/v1/b/{quote(bucket)}/o?{urlencode(asked)}"
        status, _, body = self._asked("GET", path, b"", {})
        if status != 200:
            self._answer(status, "<Error><Code>NoSuchBucket</Code></Error>")
            return
        page = json.loads(body)
        rows = "".join(
            f"<Contents><Key>{escape(one['name'])}</Key><LastModified>{one['updated']}"
            f'</LastModified><ETag>"{escape(one["etag"])}"</ETag><Size>{one["size"]}</Size>'
            "</Contents>"
            for one in page.get("items", ())
            if one["name"] != after
        )
        token = page.get("nextPageToken", "")
        more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        self._answer(200, f"<ListBucketResult>{rows}{more}</ListBucketResult>")

    def _pass_on(self) -> None:
        names = ("Range", "If-Match", "If-None-Match")
        headers = {name: self.headers[name] for name in names if name in self.headers}
        status, answered, body = self._asked(self.command, self.path, b"", headers)
        kept = {
            name: text
            for name, text in answered.items()
            if name.lower().startswith(
                ("x-goog-", "etag", "last-mod", "content-range", "content-t")
            )
        }
        length = answered.get("Content-Length", "0") if self.command == "HEAD" else None
        self._answer(status, body, length=length, **kept)

    def _asked(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, Any, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.backend)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def _answer(
        self, status: int, body: str | bytes = b"", *, length: str | None = None, **headers: str
    ) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        if self.close_connection:
            self.send_header("Connection", "close")
        if status != 204:
            self.send_header("Content-Length", str(len(data)) if length is None else length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


_E = TypeVar("_E", Azurite, FakeGcs)


@contextmanager
def started(kind: type[_E]) -> Iterator[_E]:
    """Run one, with its variables in the environment of this process."""
    with kind() as emulator, pytest.MonkeyPatch.context() as patch:
        for name, text in emulator.environment.items():
            patch.setenv(name, text)
        yield emulator
