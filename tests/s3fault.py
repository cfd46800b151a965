"""A proxy in front of an S3 server that breaks chosen requests.  Rules are data.

    with S3Faults(server.endpoint_url, [Fault("PUT .*orders", "status", nth=(1, 2))]) as proxy:
        store = open_store(StoreSettings("s3://lake", endpoint_url=proxy.url))

A rule counts the requests that match it; of several that want one request, the first has it.
"""

import http.client
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

Action = Literal[
    "status",  # answer with an error, or with `body`, without asking the server
    "status_after",  # carry the request out, then answer with an error
    "reset",  # break the connection off, without asking the server
    "reset_after",  # carry the request out, then break the connection off
    "truncate",  # send `count` bytes of the body, then close; reset where `rst`
    "corrupt",  # flip a bit of the body in its middle
    "lengthen",  # send `count` bytes more than there are
    "delay",  # wait `seconds`, then go on
    "hang",  # wait `seconds`, then break the connection off
    "replace",  # answer with `body` in place of the server's
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to break some requests."""

    match: str  # regular expression, searched for in ``METHOD path?query``
    do: Action  # what happens to them
    header: str = ""  # name of a header that the request must have; empty for any request
    nth: tuple[int, ...] = ()  # which of the matching requests, from 1; empty for all of them
    after: int = 0  # skips that many matching requests first
    status: int = 503  # of the answer
    code: str = "SlowDown"  # S3's code in the answer's body
    message: str = "injected"  # S3's words in the answer's body
    extra: str = ""  # more XML inside the answer's Error
    headers: tuple[tuple[str, str], ...] = ()  # more headers of the answer
    body: bytes = b""  # for ``replace`` and ``status``
    count: int = 1  # bytes
    seconds: float = 0.0  # how long
    rst: bool = False  # ends by RST in place of FIN

    def wants(self, number: int) -> bool:
        """Whether matching request *number*, from 1, is to be broken."""
        return number > self.after and (not self.nth or number in self.nth)


@dataclass
class S3Faults:
    """The proxy; listens while it is entered."""

    upstream: str  # URL of the server behind it
    faults: list[Fault] = field(default_factory=list)  # the rules; may be replaced between requests
    page_keys: int | None = None  # longest page of a listing; None leaves it to the server
    # each request as ``METHOD path?query``, with the action it met, or None
    log: list[tuple[str, Action | None]] = field(default_factory=list)
    # the headers of each request, in the same order
    headers: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._counts: dict[Fault, int] = {}
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            def pick(self) -> Fault | None:
                return proxy.pick(f"{self.command} {self.path}", self.headers)

            def forward(self, data: bytes) -> http.client.HTTPResponse:
                return proxy.forward(self.command, self.path, data, dict(self.headers.items()))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def seen(self, pattern: str) -> int:
        """Return the number of requests that *pattern* is found in."""
        return sum(1 for line, _ in self.log if re.search(pattern, line))

    def pick(self, line: str, headers: Message) -> Fault | None:
        with self._lock:
            chosen = None
            for fault in self.faults:
                if re.search(fault.match, line) and (fault.header or "host") in headers:
                    self._counts[fault] = self._counts.get(fault, 0) + 1
                    if chosen is None and fault.wants(self._counts[fault]):
                        chosen = fault
            self.log.append((line, None if chosen is None else chosen.do))
            self.headers.append(headers)
        return chosen

    def forward(
        self, method: str, path: str, data: bytes, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        if self.page_keys is not None and "list-type=2" in path:
            path += f"&max-keys={self.page_keys}"
        server = http.client.HTTPConnection(urlsplit(self.upstream).netloc, timeout=60)
        hop = ("transfer-encoding", "expect", "connection", "content-length")
        kept = {k: v for k, v in headers.items() if k.lower() not in hop}
        own = {"Content-Length": str(len(data)), "Connection": "close"}
        server.request(method, path, data, kept | own)
        return server.getresponse()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120
    disable_nagle_algorithm = True  # headers and body go out as they are written

    def pick(self) -> Fault | None:
        raise NotImplementedError

    def forward(self, data: bytes) -> http.client.HTTPResponse:
        raise NotImplementedError

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.pick()
        do = fault.do if fault else None
        if fault and do in ("delay", "hang"):
            time.sleep(fault.seconds)
        if do in ("reset", "hang"):
            return self._reset()
        if fault and do == "status":
            return self._answer_error(fault)
        with self.forward(data) as answer:
            body = answer.read()
        if do == "reset_after":
            return self._reset()
        if fault and do == "status_after":
            return self._answer_error(fault)
        return self._answer(answer, body, fault)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def _answer(self, answer: http.client.HTTPResponse, body: bytes, fault: Fault | None) -> None:
        do = fault.do if fault else None
        length = answer.getheader("Content-Length") or str(len(body))
        if fault and do == "replace":
            body, length = fault.body, str(len(fault.body))
        if do == "corrupt":
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        if fault and do == "lengthen":
            body += bytes(fault.count)
            length = str(len(body))
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: fault.count] if fault and do == "truncate" else body)
        if fault and do == "truncate":
            self.wfile.flush()
            self.close_connection = True
            if fault.rst:
                self._reset()

    def _answer_error(self, fault: Fault) -> None:
        text = f"<Code>{fault.code}</Code><Message>{fault.message}</Message>{fault.extra}"
        body = fault.body or f'<?xml version="1.0"?><Error>{text}</Error>'.encode()
        self.send_response(fault.status)
        for name, value in fault.headers:
            self.send_header(name, value)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()
        self.close_connection = True
