"""A Schema Registry in this process: Confluent's interface over HTTP, with failures by script."""

import base64
import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from kbackup import converters
from kbackup.connect.registry import connect

TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass
class FakeRegistry:
    """Ids are given in the order of registration, from 1 on."""

    user: str = ""  # ``user:password`` that requests must bring; empty for nobody
    # what the next requests meet instead of an answer: a status, "hang" until the registry is
    # closed, or "lost", the end of the connection
    script: list[int | str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # method and path of each request
    keys: Path | None = None  # its certificate and private key, for TLS; None for plain HTTP
    # authority of the certificates that clients must show; None for nobody
    clients: Path | None = None
    keeps_alive: bool = False  # A connection takes more than one request
    has_modes: bool = False  # it knows modes, as Confluent's does: in IMPORT the client chooses ids
    deletes_modes: bool = True  # it takes a subject's mode away, as Confluent's does from 6.1 on
    # subjects that no other schema is compatible with
    refuses: set[str] = field(default_factory=set)
    # requests that are not allowed, such as "DELETE /mode/orders-value"
    denies: set[str] = field(default_factory=set)
    modes: dict[str, str] = field(default_factory=dict)
    # A client closed a connection that was kept for it
    closed: threading.Event = field(default_factory=threading.Event)
    _schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    _versions: dict[str, list[int]] = field(default_factory=dict)
    _closing: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        fake = self
        # A port is given again, and what an earlier registry said there is not this one's answer.
        connect.cache_clear()

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                """Stay silent."""

            def handle(self) -> None:
                if fake.keeps_alive:
                    self.protocol_version = "HTTP/1.1"
                super().handle()
                if fake.keeps_alive:
                    fake.closed.set()

            def do_GET(self) -> None:
                fake._handle(self, {})

            def do_DELETE(self) -> None:
                fake._handle(self, {})

            def do_PUT(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                fake._handle(self, json.loads(self.rfile.read(length)))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        if self.keys is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.keys)
            if self.clients is not None:
                context.load_verify_locations(self.clients)
                context.verify_mode = ssl.CERT_REQUIRED
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it listens."""
        scheme = "http" if self.keys is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def add(self, subject: str, schema: Any, kind: str = "AVRO", **more: Any) -> int:
        """Register a schema, text or an object, and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        entry = {"schema": text, "schemaType": kind, "references": [], **more}
        known = [at for at, found in self._schemas.items() if found == entry]
        schema_id = known[0] if known else max(self._schemas, default=0) + 1
        return self._enter(subject, schema_id, entry)

    def empty(self) -> None:
        """Set the registry up anew."""
        self._schemas.clear()
        self._versions.clear()

    def _enter(self, subject: str, schema_id: int, entry: dict[str, Any]) -> int:
        self._schemas[schema_id] = entry
        versions = self._versions.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def schema(self, schema_id: int) -> Any:
        """Return what was registered under an id, parsed."""
        return json.loads(self.text(schema_id))

    def text(self, schema_id: int) -> str:
        """Return what was registered under an id."""
        return str(self._schemas[schema_id]["schema"])

    def references(self, schema_id: int) -> Any:
        """Return what a schema refers to."""
        return self._schemas[schema_id]["references"]

    def subjects(self) -> dict[str, list[int]]:
        """Return the ids under each subject, in the order of their versions."""
        return {name: [*ids] for name, ids in self._versions.items()}

    def _handle(self, request: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        path = urlsplit(request.path).path
        self.asked.append(f"{request.command} {path}")
        if self.script[:1] == ["lost"]:
            self.script.pop(0)
            return
        method = request.command
        status, answer = (
            self._scripted() or self._allowed(request) or self._answer(method, path, body)
        )
        data = json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Type", TYPE)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _scripted(self) -> tuple[int, Any] | None:
        if not self.script:
            return None
        step = self.script.pop(0)
        if step == "hang":
            self._closing.wait()
            return 500, {}
        return int(step), {"error_code": int(step), "message": "as the script says"}

    def _allowed(self, request: BaseHTTPRequestHandler) -> tuple[int, Any] | None:
        expected = "Basic " + base64.b64encode(self.user.encode()).decode()
        if f"{request.command} {urlsplit(request.path).path}" in self.denies:
            return 403, {"error_code": 40301, "message": "Forbidden"}
        if not self.user or request.headers.get("Authorization") == expected:
            return None
        return 401, {"error_code": 401, "message": "Unauthorized"}

    def _moded(self, method: str, subject: str, body: dict[str, Any]) -> tuple[int, Any]:
        if method == "PUT":
            self.modes[subject] = body["mode"]
        if subject and subject not in self.modes:
            return 404, {"error_code": 40409, "message": "no mode of its own"}
        if method == "DELETE" and not self.deletes_modes:
            return 405, {"error_code": 405, "message": "HTTP 405 Method Not Allowed"}
        if method == "DELETE":
            return 200, {"mode": self.modes.pop(subject)}
        return 200, {"mode": self.modes.get(subject, "READWRITE")}  # "" is the whole registry's

    def _chosen(self, subject: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Register a schema under the id that a client chose."""
        kind, references = body.get("schemaType") or "AVRO", body.get("references") or []
        entry = {"schema": body["schema"], "schemaType": kind, "references": references}
        if self.modes.get(subject) != "IMPORT":
            return 422, {"error_code": 42205, "message": "not in mode IMPORT"}
        if self._schemas.get(body["id"], entry) != entry:
            return 422, {"error_code": 42207, "message": "overwrites another schema"}
        return 200, {"id": self._enter(subject, body["id"], entry)}

    def _found(self, subject: str, text: str, kind: str) -> tuple[int, Any]:
        """Look a schema up that is registered under a subject."""
        for version, schema_id in enumerate(self._versions.get(subject, []), 1):
            there = self._schemas[schema_id]
            if (text, kind) == (there["schema"], there["schemaType"]):
                return 200, {"subject": subject, "id": schema_id, "version": version, **there}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _answer(  # noqa: PLR0911, PLR0912
        self, method: str, path: str, body: dict[str, Any]
    ) -> tuple[int, Any]:
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["mode", *rest] if self.has_modes:
                return self._moded(method, "".join(rest), body)
            case ["compatibility", "subjects", subject, "versions", _]:
                return 200, {"is_compatible": subject not in self.refuses}
            case ["subjects", subject, "versions"] if method == "GET":
                if subject not in self._versions:
                    return 404, {"error_code": 40401, "message": "Subject not found"}
                return 200, [*range(1, len(self._versions[subject]) + 1)]
            case ["subjects", subject, "versions"] if self.has_modes and "id" in body:
                return self._chosen(subject, body)
            case ["schemas", "ids", text, *rest]:
                schema_id = int(text)
                if schema_id not in self._schemas:
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                if not rest:
                    return 200, self._schemas[schema_id]
                pairs = [
                    {"subject": subject, "version": versions.index(schema_id) + 1}
                    for subject, versions in self._versions.items()
                    if schema_id in versions
                ]
                return 200, pairs
            case ["subjects", subject, "versions"]:
                kind = body.get("schemaType") or "AVRO"
                more = {"references": body.get("references") or []}
                entry = {"schema": body["schema"], "schemaType": kind, **more}
                there = [self._schemas[at] for at in self._versions.get(subject, [])]
                if self.modes.get(subject) == "IMPORT" and entry not in there:
                    return 422, {"error_code": 42205, "message": "not in read-write mode"}
                return 200, {"id": self.add(subject, body["schema"], kind, **more)}
            case ["subjects", subject] if method == "POST":
                return self._found(subject, body["schema"], body.get("schemaType") or "AVRO")
            case ["subjects", subject, "versions", number]:
                versions = self._versions.get(subject, [])
                if int(number) > len(versions):
                    return 404, {"error_code": 40402, "message": "Version not found"}
                schema_id = versions[int(number) - 1]
                named = {"subject": subject, "id": schema_id, "version": int(number)}
                return 200, {**self._schemas[schema_id], **named}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


def converter_of(name: str, registry: FakeRegistry, **more: str) -> converters.Converter:
    """Return the converter *name* of the values of ``orders``, under schemas of *registry*."""
    properties = {"schema.registry.url": registry.url, "retries.wait.ms": "0", **more}
    return converters.by_name(name, properties, topic="orders")
