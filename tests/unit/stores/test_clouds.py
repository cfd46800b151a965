"""Azure Blob Storage and Google Cloud Storage: what the store makes of obstore, without a cloud.

Below it is obstore's own store in memory, which keeps conditions and metadata as the clouds do.
"""

import io
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError
from obstore.store import MemoryStore

from kbackup.config.loading import load
from kbackup.errors import (
    ConfigurationError,
    CorruptObjectError,
    KbackupError,
    ObjectKeyError,
    ObjectNotFoundError,
    StoreError,
)
from kbackup.stores import Names, Ranges, StoreSettings, open_store
from kbackup.stores.clouds import AzureStore, CloudStore, GoogleStore
from kbackup.testing import PART_BYTES, StoreContract, put_bytes

PLACES = {"az": "az://account/container/some/path", "gs": "gs://bucket/some/path"}
OPTIONS = {"s3.part.size": PART_BYTES, "s3.retry.backoff.ms": 1}

UNANSWERED = (
    "Generic MicrosoftAzure error: Error performing PUT http://h/c/a in 1ms - HTTP error: error "
    'sending request\n\nDebug source:\nGeneric {\n kind: Interrupted,\n message: "Connection reset '
    'by peer",\n}'
)
GIVEN_UP = UNANSWERED.replace(" - HTTP", ", after 2 retries, max_retries: 2, retry_timeout: 9s - H")


def answered(status: int, code: str = "", message: str = "") -> str:
    """Return the text of an error for an answer of the server."""
    said = f"<Error><Code>{code}</Code><Message>{message}\nRequestId:1</Message></Error>"
    why = f"Server returned non-2xx status code: {status} X: {said}"
    return f"Error performing GET http://h/c in 1ms - {why}"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """What is below both; the clients that are made are in its place."""
    found = MemoryStore()
    for name in ("AzureStore", "GCSStore"):
        monkeypatch.setattr(obstore.store, name, lambda *_, **__: found)
    return found


def opened(scheme: str = "gs") -> CloudStore:
    found = open_store(StoreSettings(PLACES[scheme], options=OPTIONS))
    assert isinstance(found, CloudStore)
    return found


@pytest.mark.usefixtures("memory")
class TestContract(StoreContract):
    @pytest.fixture
    def store(self) -> CloudStore:
        return opened()


class Scripted:
    """obstore, whose calls of one function end in errors: before it is done, or after."""

    def __init__(self, name: str, *script: tuple[str, Exception]) -> None:
        self.script, self.calls = [*script], 0
        self.exceptions, self.store = obstore.exceptions, obstore.store
        for each in ("put", "get", "list", "delete"):
            setattr(self, each, getattr(obstore, each))
        setattr(self, name, self._played(getattr(obstore, name)))

    def _played(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def played(*args: Any, **more: Any) -> Any:
            self.calls += 1
            when, error = self.script.pop(0) if self.script else ("never", Exception())
            if when == "before":
                raise error
            found = call(*args, **more)
            if when == "after":
                raise error
            return found

        return played


def scripted(name: str, *script: tuple[str, Exception], scheme: str = "gs") -> CloudStore:
    store = opened(scheme)
    store._obstore = Scripted(name, *script)  # type: ignore[assignment]
    return store


LOST = GenericError(UNANSWERED)


@pytest.mark.usefixtures("memory")
class TestLostAnswers:
    def test_ones_own_object_is_not_taken_for_anothers(self) -> None:
        """A put if absent whose answer was lost meets its own object when it is repeated."""
        store = scripted("put", ("after", LOST))

        assert put_bytes(store, "lock", b"mine", if_absent=True)
        assert store._obstore.calls == 2

    def test_another_ones_object_stays_anothers(self) -> None:
        """It loses all the same against who was faster."""
        store = scripted("put", ("before", LOST))
        put_bytes(opened(), "lock", b"other", if_absent=True)

        assert not put_bytes(store, "lock", b"mine", if_absent=True)

    def test_what_was_stored_after_all_is_no_error(self) -> None:
        """The last attempt is lost too, and the object is there."""
        store = scripted("put", ("after", GenericError(GIVEN_UP)))

        assert put_bytes(store, "a", b"mine")
        assert store._obstore.calls == 1  # object_store has tried often enough

    def test_what_was_not_stored_is_one(self) -> None:
        """Nothing is there: the error is the put's."""
        store = scripted("put", *[("before", LOST)] * 3)

        with pytest.raises(StoreError, match="write gs://bucket/some/path/a: Connection reset"):
            put_bytes(store, "a", b"mine", if_absent=True)

    def test_a_refusal_that_no_object_explains_is_an_error(self) -> None:
        """Nothing is in the way, and the server says so twice: such as a policy."""
        held = AlreadyExistsError(answered(409, "BlobImmutableDueToPolicy", "It is held."))
        store = scripted("put", ("before", held), ("before", held))

        with pytest.raises(StoreError, match=r"BlobImmutableDueToPolicy \(409\): It is held"):
            put_bytes(store, "a", b"mine", if_absent=True)

    def test_a_deletion_is_repeated(self) -> None:
        """A deletion whose answer was lost has nothing left to delete."""
        store = scripted("delete", ("after", LOST))
        put_bytes(store, "a", b"mine")

        store.delete("a")

        assert store.head("a") is None


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("scheme", "said"), [("az", "--account-name account"), ("gs", "gs://bucket")]
)
def test_what_cannot_be_asked_is_told_with_the_command_that_shows_it(
    scheme: str, said: str
) -> None:
    """The cloud's own rules may delete a backup, or keep what was deleted."""
    what, do = opened(scheme).untold()

    assert "lifecycle rules" in what
    assert do.endswith(said)


@pytest.mark.usefixtures("memory")
def test_parts_do_not_replace_what_came_meanwhile() -> None:
    """An object in parts, which have no condition, is looked for before they become one."""
    store = opened()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() == PART_BYTES:
                with ThreadPoolExecutor(1) as another:  # obstore's own thread can wait for nothing
                    another.submit(put_bytes, opened(), "a", b"other").result()
            return super().read(size)

    body = Slow(bytes(2 * PART_BYTES))
    digest = sha256(body.getbuffer()).hexdigest()

    assert not store.put("a", body, sha256=digest, metadata={}, if_absent=True)
    assert b"other" == store.open("a").read()


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("scheme", ["az", "gs"])
@pytest.mark.parametrize(
    "metadata",
    [
        {"first-offset": "7", "records": "1"},
        {"n": ""},
        {"n": " a  b "},
        {"n": "100%25 \u00fc\U0001f600\n\0"},
        {"n_m": "1", "n-m": "2", "N": "3", "1": "4", "_6e5f": "5", "n--m": "6"},
    ],
)
def test_metadata_come_back(scheme: str, metadata: dict[str, str]) -> None:
    """Whatever names and values are, they come back, told from each other."""
    store = opened(scheme)
    store.put("a", io.BytesIO(b"x"), sha256="00", metadata=metadata)

    head = store.head("a")

    assert head is not None
    assert {**metadata, "sha256": "00"} == head.metadata


@pytest.mark.parametrize(("scheme", "name"), [("az", "first_offset"), ("gs", "first-offset")])
def test_names_of_metadata_are_such_as_the_cloud_takes(
    memory: MemoryStore, scheme: str, name: str
) -> None:
    """Azure takes identifiers alone; values are printable ASCII."""
    opened(scheme).put("a", io.BytesIO(), sha256="00", metadata={"first-offset": "\u00fc"})

    found = obstore.get(memory, "some/path/a").attributes

    assert {name: "%C3%BC", "sha256": "00"} == found


@pytest.mark.usefixtures("memory")
def test_a_part_is_read_or_refused() -> None:
    """A range is exactly what was asked for, or an error that says why."""
    store = opened()
    put_bytes(store, "a", b"0123456789")
    assert isinstance(store, Ranges)

    assert b"345" == store.open_range("a", 3, 3).read()
    for start, length in ((8, 3), (11, 1), (0, 0)):
        with pytest.raises(CorruptObjectError, match="it ends before"):
            store.open_range("a", start, length)
    with pytest.raises(ObjectNotFoundError):
        store.open_range("b", 0, 1)


def test_an_altered_object_is_corrupt(memory: MemoryStore) -> None:
    """What is read is compared with the checksum that was stored."""
    obstore.put(memory, "some/path/a", b"altered", attributes={"sha256": "00" * 32})

    with pytest.raises(CorruptObjectError, match="0000 was stored"):
        opened().open("a")


@pytest.mark.usefixtures("memory")
def test_a_listing_that_servers_sort_by_utf_16_is_in_order() -> None:
    """Azurite sorts as JavaScript does, where emoji come before some other characters."""
    keys = ["a", "b\U0001f600", "b\ufb00", "b\uffee/c", "\U0001f600", "\uffee"]
    by_utf_16 = sorted(keys, key=lambda key: key.encode("utf-16-be"))
    store = opened()
    found = [
        {"path": f"some/path/{key}", "size": 1, "last_modified": None, "e_tag": "1"}
        for key in by_utf_16
    ]
    store._obstore = SimpleNamespace(  # type: ignore[assignment]
        list=lambda *_, **__: [found], exceptions=obstore.exceptions
    )

    assert sorted(keys) == [one.key for one in store.list("")]

    found.reverse()
    with pytest.raises(StoreError, match="not in order"):
        list(store.list(""))


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("scheme", "key"),
    [
        *(("gs", key) for key in ("", "a//b", "/a", "a/", "a/../b", ".", "a\nb", "a\x7f")),
        pytest.param("az", "a\\b", id="Azure would store it elsewhere"),
    ],
)
def test_what_names_no_object_is_refused(scheme: str, key: str) -> None:
    """A key that object_store would change, or panic at, is refused before."""
    store = opened(scheme)
    assert isinstance(store, Names)

    with pytest.raises(ObjectKeyError, match="slash"):
        put_bytes(store, key, b"x")


@pytest.mark.parametrize(
    ("error", "kind", "expected"),
    [
        pytest.param(
            PermissionDeniedError(answered(403, "AuthorizationFailure", "No.")),
            StoreError,
            "read az://account/container/some/path/a: AuthorizationFailure (403): No.",
            id="denied",
        ),
        pytest.param(
            FileNotFoundError(answered(404, "ContainerNotFound", "None.")),
            StoreError,
            "create it",
            id="no container",
        ),
        pytest.param(FileNotFoundError(answered(404)), ObjectNotFoundError, "no such", id="none"),
        pytest.param(GenericError(answered(503)), StoreError, "raise s3.part.retries", id="busy"),
        pytest.param(GenericError(GIVEN_UP), StoreError, "check store.url", id="unreachable"),
        pytest.param(
            AlreadyExistsError(answered(409, "BlobArchived")), StoreError, "rehydrate", id="cold"
        ),
        pytest.param(
            GenericError("Error performing token request: x"),
            StoreError,
            "set AZURE_STORAGE_ACCOUNT_KEY",
            id="no credentials",
        ),
    ],
)
@pytest.mark.usefixtures("memory")
def test_an_error_says_what_why_and_what_to_do(
    error: Exception, kind: type[KbackupError], expected: str
) -> None:
    """Exit code, the server's own words, and what helps."""
    store = scripted("get", ("before", error), scheme="az")

    with pytest.raises(kind) as found:
        store.open("a")

    assert expected in found.value.issue().text
    assert "\n" not in found.value.issue().text


@pytest.mark.usefixtures("memory")
def test_no_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a signature in a URL nor what the environment has."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "s3cret")
    text = "Generic error: https://h/c/a?sv=1&sig=abc%3D and s3cret"
    store = scripted("get", ("before", GenericError(text)), scheme="az")

    with pytest.raises(StoreError) as found:
        store.open("a")

    said = repr(found.value) + repr(store) + found.value.issue().text
    assert not any(secret in said for secret in ("s3cret", "sig=", "abc"))


@pytest.mark.parametrize(
    ("kind", "url", "is_good"),
    [
        (AzureStore, "az://account/container", True),
        (AzureStore, "az://account/container/a/b", True),
        (AzureStore, "az://account", False),
        (AzureStore, "az://container@account/x", False),
        (AzureStore, "az://account/container/a//b", False),
        (AzureStore, "az://account/container?sv=1", False),
        (GoogleStore, "gs://bucket", True),
        (GoogleStore, "gs://bucket/a/b/", True),
        (GoogleStore, "gs://", False),
        (GoogleStore, "gs://bucket/../x", False),
    ],
)
def test_a_url_names_a_place(kind: type[CloudStore], url: str, is_good: bool) -> None:
    """What is no place is refused before anything is opened."""
    if is_good:
        kind.check_url(url)
    else:
        with pytest.raises(ValueError, match="expected"):
            kind.check_url(url)


@pytest.mark.parametrize("scheme", ["az", "gs"])
def test_without_its_extra_a_store_says_how_to_install_it(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra is named, and nothing fails with a traceback."""
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)

    with pytest.raises(ConfigurationError) as found:
        opened(scheme)

    assert ".[clouds]" in found.value.do


def test_malformed_credentials_are_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has been asked yet."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "no base64!")

    with pytest.raises(ConfigurationError, match="Invalid Access Key") as found:
        opened("az")

    assert "base64!" not in str(found.value)


@pytest.mark.parametrize("command", ["sink", "restore", "verify"])
@pytest.mark.parametrize("url", PLACES.values())
def test_what_s3_alone_can_do_is_refused_by_name(command: Any, url: str) -> None:
    """A lock that would not be one, a class or a key is exit 2; what holds there too is taken."""
    given = {
        "store.url": url, "bootstrap.servers": "h:1", "topics": "t", "s3.part.size": "5242880",
        "s3.sse.customer.key": "k", "s3.object.lock.mode": "COMPLIANCE", "s3.wan.mode": "false",
        "s3.versions.as.of": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    environ = {f"KBACKUP_{name.upper().replace('.', '_')}": text for name, text in given.items()}
    refused = {"s3.sse.customer.key"}
    refused.add("s3.object.lock.mode" if command == "sink" else "s3.versions.as.of")

    with pytest.raises(ConfigurationError) as found:
        load(command, options={}, files=[], environ=environ)

    assert all(name in found.value.issue().text for name in refused)
    assert "s3.wan.mode" not in found.value.issue().text
