"""``az://ACCOUNT/CONTAINER/PATH``, ``gs://BUCKET/PATH``: Azure Blob Storage, Google Cloud Storage.

Only here: obstore, Rust's object_store.  It finds credentials where the clouds' own tools look for
them, signs, sends, tries again, and resumes a body that broke off.  What remains is to keep the
promises of `kbackup.stores.Store` where its own are others: it lists by folders, stores in parts
without conditions, takes metadata that fit a header, and says in words alone what failed.

obstore is imported when a store is made: it is an extra.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from math import ceil
from types import ModuleType
from typing import Any, BinaryIO, ClassVar, Final, TypeVar
from urllib.parse import quote, unquote

from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    ObjectKeyError,
    ObjectNotFoundError,
    StoreError,
    with_extra,
)
from kbackup.files import Spool
from kbackup.options import Unsupported, other_than
from kbackup.stores import ObjectHead, StoredObject, StoreSettings, is_kept, read_twice, shown
from kbackup.stores.s3 import options as s3

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

SHARED: Final = (s3.PART_SIZE, s3.ATTEMPTS, s3.BACKOFF_MS)
"""What these options say of S3 holds for the clouds too."""


def _of_s3_alone() -> Iterator[Unsupported]:
    """Yield a refusal of each other option of S3's that would change what is stored or read."""
    for option in s3.OPTIONS:
        if option.name.startswith("s3.") and option not in SHARED and not option.is_place:
            default = "" if option.default is None else str(option.default).lower()
            yield Unsupported(
                option.name,
                other_than(default, ""),
                "az:// and gs:// have no such thing",
                "remove it; set what corresponds to it on the bucket or container itself",
                option.commands,
            )


OPTIONS: Final = (*SHARED, *_of_s3_alone())

MAX_PARTS: Final = 10_000
"""Google's limit; parts grow where a body would need more."""

_CHUNK: Final = 1 << 20
_PAGE: Final = 1000
_LONGEST_WAIT_S: Final = 20.0

_UNNAMEABLE: Final = re.compile(r"[\x00-\x1f\x7f]|(?:^|/)\.{0,2}(?:/|$)")
"""What no key has: control characters, and nothing, one dot or two between slashes."""


@dataclass(frozen=True, slots=True)
class _There:
    """An object as it was found, and the mode of a put that replaces it and nothing newer."""

    head: ObjectHead
    mode: dict[str, str]


class CloudStore:
    """Objects below one path of one bucket or container."""

    _HYPHEN: ClassVar[str]
    """What stands for a hyphen in the names of metadata."""

    _AROUND: ClassVar[int]
    """How many requests begin and complete an upload in parts."""

    _NO_CREDENTIALS: ClassVar[str]
    _GRANT: ClassVar[str]
    _SHOWS: ClassVar[str]
    """The command that shows what obstore cannot ask for, by the parts of the URL."""

    _URL: ClassVar[re.Pattern[str]]
    _EXPECTED: ClassVar[str]
    _ENDPOINTS: ClassVar[tuple[str, ...]]
    """The variables that name a server in place of the cloud's own."""

    @classmethod
    def check_url(cls, url: str) -> None:
        """Refuse what names no place of this cloud."""
        cls._parsed(url)

    @classmethod
    def _parsed(cls, url: str) -> tuple[str, ...]:
        """Return the parts of a URL; its path, the last one, ends with a slash or is empty."""
        found = cls._URL.fullmatch(url.rstrip("/"))
        *parts, path = ("", "") if found is None else found.groups(default="")
        if found is None or (path and _UNNAMEABLE.search(path)) or "?" in path or "#" in path:
            raise ValueError(f"expected {cls._EXPECTED}, and nothing else")
        return (*parts, f"{path}/" if path else "")

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:  # noqa: ARG004
        """Say that obstore is not installed, whatever is asked for, by `ConfigurationError`."""
        _obstore()

    def __init__(self, settings: StoreSettings) -> None:
        """Look for credentials; nobody is asked yet.

        Raises:
            ConfigurationError: If obstore is not installed, or URL or credentials are malformed.
        """
        self.url = settings.url.rstrip("/")
        try:
            self._place = self._parsed(self.url)
        except ValueError as error:
            raise ConfigurationError(f"{self.url!r} is not a store", str(error)) from error
        self._obstore = _obstore()
        self._part_bytes = s3.PART_SIZE.of(settings.options)
        self._attempts = s3.ATTEMPTS.of(settings.options)
        self._backoff = timedelta(milliseconds=s3.BACKOFF_MS.of(settings.options))
        given = (os.environ.get(name) for name in self._ENDPOINTS)
        self._endpoint = settings.endpoint_url or next(filter(None, given), None)
        self._root = self._place[-1]
        self._client = cache(self._connect)
        self._client(0)

    def _made(self, **more: Any) -> Any:
        """Return obstore's own store."""
        raise NotImplementedError

    def _connect(self, minutes: int) -> Any:
        """Return a client for requests that may take so long; 0 for all that send no body."""
        # object_store counts a time without an answer from when a request begins: those with bodies
        # need one by their size.  A stalled answer is given up after a minute.
        answer = "60s" if minutes == 0 else f"{60 * minutes}s"
        options = {
            "allow_http": (self._endpoint or "").startswith("http://"),
            "connect_timeout": "10s",
            "read_timeout": answer,
            "timeout": "24h",  # of a whole body; else it would be 30 seconds
        }
        retries = {
            "max_retries": self._attempts - 1,
            "backoff": {
                "init_backoff": self._backoff,
                "max_backoff": max(self._backoff, timedelta(seconds=_LONGEST_WAIT_S)),
            },
            # A request is sent again with its first signature, which is good for 15 minutes.
            "retry_timeout": timedelta(hours=24) if minutes == 0 else timedelta(minutes=10),
        }
        try:
            return self._made(client_options=options, retry_config=retries)
        except (self._obstore.exceptions.BaseError, ValueError, OSError) as error:
            why, do = _told(error).why, "correct the credentials in the environment"
            raise ConfigurationError(f"no client for {self.url}", why, do) from error

    def put(
        self,
        key: str,
        body: BinaryIO,
        *,
        sha256: str,
        metadata: Mapping[str, str],
        if_absent: bool = False,
        if_match: str | None = None,
    ) -> bool:
        """Send at once or in parts: `Store.put`.  What came of a lost answer is looked up."""
        size = body.seek(0, os.SEEK_END)
        facts = {**metadata, "sha256": sha256}
        attributes = {_header_name(k, self._HYPHEN): _header(v) for k, v in facts.items()}
        is_conditional = if_absent or if_match is not None

        def may_replace(there: _There | None) -> bool:
            etag = None if there is None else there.head.etag
            return not is_kept(etag, if_absent=if_absent, if_match=if_match)

        there = None
        if if_match is not None or (is_conditional and size > self._part_bytes):
            there = self._there(key)
            if not may_replace(there):
                return _holds(there, sha256)
        mode = "create" if if_absent else "overwrite" if there is None else there.mode
        path, part = self._path(key), max(self._part_bytes, -(-size // MAX_PARTS))
        client = self._client(1 << (min(size, part) >> 23).bit_length())

        def parts() -> Iterator[bytes]:
            body.seek(0)
            while data := body.read(part):
                yield data
            # Completing the parts has no condition.  obstore's threads cannot ask it anything.
            if is_conditional:
                with ThreadPoolExecutor(1) as other:
                    if not may_replace(other.submit(self._there, key).result()):
                        raise _TakenError

        def send() -> bool:
            if size > self._part_bytes:
                self._obstore.put(
                    client, path, parts(), attributes=attributes, use_multipart=True,
                    chunk_size=part, max_concurrency=1,
                )  # fmt: skip
            else:
                body.seek(0)
                self._obstore.put(
                    client, path, body.read(), attributes=attributes, mode=mode,
                    use_multipart=False,
                )  # fmt: skip
            return True

        exceptions = self._obstore.exceptions
        taken = (exceptions.AlreadyExistsError, exceptions.PreconditionError, _TakenError)
        for is_last in (False, True):
            try:
                return self._tried("write", key, send, raised=taken if is_conditional else ())
            except taken as error:
                there = self._there(key)
                if not may_replace(there):
                    return _holds(there, sha256)
                if is_last or if_match is not None:  # it is refused for another reason
                    raise self._error("write", key, error) from error
                # What was in the way has gone: there is room for it now.
            except StoreError as error:
                try:  # it may have been done all the same
                    if _holds(self._there(key), sha256):
                        return True
                except StoreError:
                    pass  # the first error says more
                raise error from None
        raise AssertionError(key)

    def puts(self, size: float) -> int:
        """Count parts, two looks, and what begins and completes an upload: `Served.puts`."""
        parts = min(MAX_PARTS, ceil(size / self._part_bytes))
        return parts + 2 + self._AROUND if parts > 1 else 1

    def open(self, key: str) -> BinaryIO:
        """Fetch into a spool, twice if the first does not match: `Store.open`."""
        return read_twice(lambda: self._fetch(key))

    def _fetch(self, key: str) -> Spool:
        path = self._path(key)
        found = self._tried("read", key, lambda: self._obstore.get(self._client(0), path))
        size, metadata = found.meta["size"], self._metadata(found.attributes)
        spool = self._received(key, found, size, metadata)
        stored = metadata.get("sha256")
        if stored is not None and spool.sha256 != stored:
            spool.close()
            why = f"its sha256 is {spool.sha256}; {stored} was stored"
            raise CorruptObjectError(self._named(key), why, "replace it with another copy")
        return spool

    def open_range(self, key: str, start: int, length: int) -> BinaryIO:
        """Fetch a part into a spool: `Ranges.open_range`."""
        path, end = self._path(key), start + length
        options = {"range": (start, end)}

        def get() -> Any:
            return self._obstore.get(self._client(0), path, options=options)

        try:
            found = self._tried("read", key, get)
            given = tuple(found.range)
        except StoreError as error:
            if error.place.get("status") != _NO_SUCH_RANGE:
                raise
            given = ()
        if given != (start, end):
            raise CorruptObjectError(self._named(key), f"it ends before byte {end}", key=key)
        return self._received(key, found, length, self._metadata(found.attributes))

    def _received(self, key: str, found: Any, size: int, metadata: Mapping[str, str]) -> Spool:
        """Return the body of an answer, at 0."""
        spool = Spool(self._part_bytes, expected_bytes=size)
        try:
            with self._errors("read", key):
                for chunk in found.stream(min_chunk_size=_CHUNK):
                    spool.write(chunk)
            spool.metadata = metadata
            spool.seek(0)
        except BaseException:
            spool.close()
            raise
        if spool.size != size:
            spool.close()
            why = f"the body ended after {spool.size} of {size} bytes"
            raise StoreError(f"read {self._named(key)}", why, "run the command again", key=key)
        return spool

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List the folder that *prefix* is in, from there on: `Store.list`."""
        folder = prefix[: prefix.rfind("/") + 1]
        is_behind = after > prefix and not after.startswith(prefix)
        if is_behind or (folder and _UNNAMEABLE.search(folder[:-1])):
            return
        start = after if after.startswith(prefix) else prefix[:-1]
        offset = None
        if len(start) > len(folder) and not (_UNNAMEABLE.search(start) or _is_high(start)):
            offset = self._root + start  # object_store lists only what comes after it
        last = ""
        for one in _by_utf8(self._listed(prefix, self._root + folder, offset)):
            if one.key <= last:  # text sorts by code point, which is as its UTF-8 bytes do
                raise StoreError(
                    f"list {self._named(prefix)}",
                    f"the listing is not in order: {one.key!r} comes after {last!r}",
                    "use an account without a hierarchical namespace",
                )
            last = one.key
            if not one.key.startswith(prefix):
                if one.key > prefix:
                    return  # in order, so none follows
            elif one.key > after:
                yield one

    def _listed(self, prefix: str, folder: str, offset: str | None) -> Iterator[StoredObject]:
        with self._errors("list", prefix):
            pages = self._obstore.list(
                self._client(0), folder.rstrip("/") or None, offset=offset, chunk_size=_PAGE
            )
            for page in pages:
                for one in page:
                    key = one["path"].removeprefix(self._root)
                    yield StoredObject(key, one["size"], one["last_modified"], _etag(one))

    def head(self, key: str) -> ObjectHead | None:
        """Ask for size, time and metadata: `Store.head`."""
        found = self._there(key)
        return None if found is None else found.head

    def _there(self, key: str) -> _There | None:
        path, options = self._path(key), {"head": True}
        try:
            found = self._tried(
                "read", key, lambda: self._obstore.get(self._client(0), path, options=options)
            )
        except ObjectNotFoundError:
            return None
        meta = found.meta
        head = ObjectHead(
            meta["size"], meta["last_modified"], _etag(meta), self._metadata(found.attributes)
        )
        given = {"e_tag": meta["e_tag"], "version": meta["version"]}
        return _There(head, {name: text for name, text in given.items() if text is not None})

    def delete(self, key: str) -> None:
        """Delete; one that is not there is no error: `Store.delete`."""
        path = self._path(key)
        with suppress(ObjectNotFoundError):
            self._tried("delete", key, lambda: self._obstore.delete(self._client(0), path))

    def untold(self) -> tuple[str, str]:
        """Name what obstore cannot ask for: `Untold`."""
        what = "versions, soft deletion, retention policies and lifecycle rules"
        return what, f"look at them: {self._SHOWS.format(*self._place)}"

    def check_name(self, key: str) -> None:
        """Refuse what object_store takes for a path, or for none: `Names`."""
        if _UNNAMEABLE.search(key):
            why = "there, a key has no control characters, and a name between any two slashes"
            raise ObjectKeyError(key, why, "store it in S3")

    def _path(self, key: str) -> str:
        self.check_name(key)
        return self._root + key

    def _named(self, about: str) -> str:
        return f"{self.url}/{shown(about)}"

    def _metadata(self, attributes: Mapping[str, str]) -> dict[str, str]:
        return {
            _own_name(name, self._HYPHEN): unquote(text)
            for name, text in attributes.items()
            if name not in _OF_HTTP
        }

    def _tried(
        self,
        verb: str,
        key: str,
        call: Callable[[], _T],
        raised: tuple[type[Exception], ...] = (),
    ) -> _T:
        """Return what *call* returns, or raises of *raised*, within the budget of attempts."""
        for attempt in range(1, self._attempts + 1):
            try:
                return call()
            except raised:
                raise
            except (self._obstore.exceptions.BaseError, FileNotFoundError) as error:
                # object_store has spent it on what it may repeat: no deletion, and no put with a
                # condition, that had no answer.
                if attempt == self._attempts or not _is_unanswered(error):
                    raise self._error(verb, key, error) from error
                wait_s = min(_LONGEST_WAIT_S, self._backoff.total_seconds() * 2 ** (attempt - 1))
                what = f"{verb} {self._named(key)}"
                _log.warning("no answer: %s again in %.1fs", what, wait_s)
                time.sleep(wait_s)
        raise AssertionError(key)

    @contextmanager
    def _errors(self, verb: str, about: str) -> Iterator[None]:
        try:
            yield
        except (self._obstore.exceptions.BaseError, FileNotFoundError, ValueError) as error:
            raise self._error(verb, about, error) from error

    def _error(self, verb: str, about: str, error: Exception) -> StoreError:
        said, what = _told(error), f"{verb} {self._named(about)}"
        place: dict[str, Any] = {"key": about} if verb != "list" else {}
        if said.status is not None:
            place["status"] = said.status
        if isinstance(error, FileNotFoundError) and said.code not in _NO_PLACE:
            return ObjectNotFoundError(what, "no such object", **place)
        do = ""
        if said.code in _NO_PLACE or (said.status == 404 and verb == "list"):
            do = "create it, or correct store.url"
        elif said.is_of_token:
            do = self._NO_CREDENTIALS
        elif said.status in (401, 403):
            do = f"grant {self._GRANT}, or correct the credentials in the environment"
        elif said.code == "BlobArchived":
            do = "rehydrate it with Azure's own tools"
        elif said.status is None:
            do = "check store.url, the network and its proxies"
        elif said.status == 429 or said.status >= 500:
            do = "try again later, with fewer tasks, or raise s3.part.retries"
        return StoreError(what, said.why, do, **place)


class AzureStore(CloudStore):
    """Blobs below a path of a container."""

    _HYPHEN = "_"  # names are identifiers of C#
    _AROUND = 1  # an upload is not begun
    _NO_CREDENTIALS = (
        "set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_TENANT_ID, "
        "AZURE_CLIENT_ID and AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE"
    )
    _GRANT = "the role Storage Blob Data Contributor on the container"
    _SHOWS = (
        "az storage account management-policy show --account-name {0}; az storage account "
        "blob-service-properties show --account-name {0}"
    )

    _URL = re.compile(r"az://([a-z0-9]{3,24})/([$a-z0-9][a-z0-9-]{2,62})(?:/(.*))?")
    _EXPECTED = "az://ACCOUNT/CONTAINER or az://ACCOUNT/CONTAINER/PATH"
    _ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")

    def check_name(self, key: str) -> None:
        r"""Refuse a backslash too, which is a slash there: `Names`."""
        super().check_name(key)
        if "\\" in key:
            raise ObjectKeyError(key, "Azure takes a backslash for a slash", "store it in S3")

    def _made(self, **more: Any) -> Any:
        account, container, _ = self._place
        if self._endpoint:
            more["endpoint"] = self._endpoint
        return self._obstore.store.AzureStore(container, account_name=account, **more)


class GoogleStore(CloudStore):
    """Objects below a path of a bucket."""

    _HYPHEN = "-"
    _AROUND = 2
    _NO_CREDENTIALS = "set GOOGLE_APPLICATION_CREDENTIALS, or run where there is a service account"
    _GRANT = "the role Storage Object User on the bucket"
    _SHOWS = "gcloud storage buckets describe gs://{0}"

    _URL = re.compile(r"gs://([a-z0-9][a-z0-9._-]{1,221})(?:/(.*))?")
    _EXPECTED = "gs://BUCKET or gs://BUCKET/PATH"
    _ENDPOINTS = ("GOOGLE_BASE_URL",)

    def _made(self, **more: Any) -> Any:
        if self._endpoint:
            more["base_url"] = self._endpoint
        return self._obstore.store.GCSStore(self._place[0], **more)


class _TakenError(Exception):
    """Another object is there by now."""


def _obstore() -> ModuleType:
    try:
        import obstore.exceptions  # noqa: PLC0415  (an extra)
        import obstore.store  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError(
            "Azure Blob Storage and Google Cloud Storage cannot be reached",
            "obstore is not installed",
            with_extra("clouds"),
        ) from error
    module: ModuleType = obstore
    return module


def _holds(there: _There | None, sha256: str) -> bool:
    return there is not None and there.head.metadata.get("sha256") == sha256


def _etag(meta: Mapping[str, Any]) -> str:
    return (meta["e_tag"] or "").strip('"')


def _is_high(key: str) -> bool:
    """Whether its order by UTF-8 is not that by UTF-16."""
    return not key.isascii() and max(key) >= "\ue000"


def _by_utf8(found: Iterable[StoredObject]) -> Iterator[StoredObject]:
    """Yield what a server may have sorted by UTF-16, as Azurite does."""
    # between keys of which that changes the order are only such as have U+E000 or more: few
    held: list[StoredObject] = []
    for one in found:
        if _is_high(one.key):
            held.append(one)
            continue
        yield from sorted(held, key=lambda each: each.key)
        held.clear()
        yield one
    yield from sorted(held, key=lambda each: each.key)


_OF_HTTP: Final = frozenset(
    {"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition",
     "Cache-Control", "Storage-Class"}
)  # fmt: skip
"""What obstore has among an object's metadata, and is none of the user's."""

_USUAL_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_PLAIN: Final = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) != "%")


def _header_name(name: str, hyphen: str) -> str:
    """Return a name of metadata as it is sent; `_own_name` reads it."""
    usual = _USUAL_NAME.fullmatch(name)
    return f"_{name.encode().hex()}" if usual is None else name.replace("-", hyphen)


def _own_name(name: str, hyphen: str) -> str:
    if name.startswith("_"):
        try:
            return bytes.fromhex(name[1:]).decode()
        except ValueError:
            return name  # another tool's
    return name.replace(hyphen, "-")


def _header(text: str) -> str:
    """Return a value as it is sent, in printable ASCII; `unquote` reads it."""
    quoted = quote(text, safe=_PLAIN)
    return quoted if quoted == quoted.strip() else quoted.replace(" ", "%20")


_NO_SUCH_RANGE: Final = 416
_NO_PLACE: Final = frozenset({"ContainerNotFound", "NoSuchBucket"})


@dataclass(frozen=True, slots=True)
class _Told:
    """What an error of obstore says: the answer's status and code, where there was one, and why."""

    status: int | None
    code: str
    why: str
    is_of_token: bool  # no credentials could be had


def _told(error: Exception) -> _Told:
    """Read the text of an error, which is all that obstore has; no secret is in what is told."""
    text, _, debug = str(error).partition("\n\nDebug source:")
    status = re.search(r"non-2xx status code: (\d{3})", text)
    code = re.search(r"<Code>(\w+)</Code>", text)
    said = re.search(r"<Message>([^<\n]+)", text) or re.search(r'"message": ?"([^"]+)', text)
    name = "" if code is None else code[1]
    if status is None and re.search(r"[Rr]ange starting at|Range started at|Invalid range", text):
        return _Told(_NO_SUCH_RANGE, name, text, is_of_token=False)
    if status is not None:
        number = int(status[1])
        why = f"{name} ({number})" if name else f"the server answered {number}"
        why += "" if said is None else f": {said[1]}"
    else:
        number = None
        system = re.findall(r'message: "([^"]+)"', debug)
        first = text.splitlines()[0] if text else type(error).__name__
        why = system[-1] if system else "no answer in time" if "TimedOut" in debug else first
    is_of_token = "token request" in text or "169.254.169.254" in text
    if is_of_token:
        why = f"no credentials were found in the environment, and none were granted: {why}"
    return _Told(number, name, _without_secrets(why), is_of_token)


def _without_secrets(text: str) -> str:
    """Return *text* without signatures of URLs, and without what the environment keeps secret."""
    text = re.sub(r"\?\S*", "", text)
    for name, value in os.environ.items():
        if value and re.fullmatch(r"(?:AZURE|GOOGLE)_\w*(?:KEY|SECRET|TOKEN)", name):
            text = text.replace(value, "********")
    return text


def _is_unanswered(error: Exception) -> bool:
    """Whether a request had no answer, and object_store did not dare to repeat it."""
    text = str(error)
    was_repeated = "max_retries:" in text.partition("\n")[0]
    return not was_repeated and re.search(r"\bkind: (?:Timeout|Interrupted)\b", text) is not None
