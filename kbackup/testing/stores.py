"""The contract suite of the extension point of stores, and a store that fails by script."""

import hashlib
import io
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import BinaryIO, Final
from uuid import uuid4

import pytest

from kbackup.errors import CorruptObjectError, ObjectNotFoundError, StoreError
from kbackup.stores import ObjectHead, Store, StoredObject, StoreSettings, metadata_of
from kbackup.stores.memory import MemoryStore

PART_BYTES: Final = 5 * 1024 * 1024
"""The smallest part S3 accepts: `StoreContract` stores larger and smaller bodies."""


def put_bytes(
    store: Store, key: str, data: bytes, *, if_absent: bool = False, if_match: str | None = None
) -> bool:
    """Put *data* with its checksum and one more fact, ``records`` = ``7``."""
    return store.put(
        key,
        io.BytesIO(data),
        sha256=hashlib.sha256(data).hexdigest(),
        metadata={"records": "7"},
        if_absent=if_absent,
        if_match=if_match,
    )


def etag(store: Store, key: str) -> str:
    """Return the etag of an existing object."""
    head = store.head(key)
    assert head is not None
    return head.etag


def open_bytes(store: Store, key: str) -> bytes:
    """Return an object's content."""
    with store.open(key) as file:
        return file.read()


class StoreContract:
    """What `Store` promises, as tests.  A subclass provides a fixture ``store``, which is empty."""

    @pytest.mark.parametrize(
        "size",
        [
            pytest.param(0, id="empty"),
            pytest.param(1, id="one byte"),
            pytest.param(PART_BYTES, id="just one part"),
            pytest.param(2 * PART_BYTES + 1, id="a byte more than two parts"),
        ],
    )
    def test_what_is_put_is_what_is_opened(self, store: Store, size: int) -> None:
        """An object comes back byte for byte, whatever its size."""
        data = bytes(range(251)) * (size // 251 + 1)
        put_bytes(store, "topics/a", data[:size])

        assert data[:size] == open_bytes(store, "topics/a")

    def test_a_body_is_put_whole_wherever_it_stands(self, store: Store) -> None:
        """A body is stored from its start, and stays open for its owner."""
        body = io.BytesIO(b"orders")
        body.seek(3)

        store.put("a", body, sha256=hashlib.sha256(b"orders").hexdigest(), metadata={})

        assert (b"orders", False) == (open_bytes(store, "a"), body.closed)

    def test_an_opened_object_can_be_read_in_any_order(self, store: Store) -> None:
        """An object can be read from the end, as readers of columnar formats do."""
        put_bytes(store, "a", b"0123456789")

        with store.open("a") as file:
            at_first = file.tell()
            file.seek(-3, 2)
            tail = file.read()
            file.seek(2)

            assert (0, b"789", b"23") == (at_first, tail, file.read(2))

    def test_facts_are_kept_with_the_object(self, store: Store) -> None:
        """An object's metadata can be read without its body."""
        put_bytes(store, "a", b"orders")

        head = store.head("a")

        assert head is not None
        expected = {"records": "7", "sha256": hashlib.sha256(b"orders").hexdigest()}
        assert (6, expected) == (head.size, dict(head.metadata))
        assert abs(datetime.now(UTC) - head.modified) < timedelta(minutes=5)

    def test_an_opened_object_tells_no_other_facts(self, store: Store) -> None:
        """An object that is opened, where it tells its metadata, tells what `Store.head` does."""
        put_bytes(store, "a", b"orders")

        head = store.head("a")
        with store.open("a") as body:
            told = metadata_of(body)

        assert head is not None
        assert told in (None, head.metadata)

    def test_a_put_replaces_object_and_facts(self, store: Store) -> None:
        """
        A key holds what was put last, and the etag distinguishes it from what was there before.
        """
        put_bytes(store, "a", b"first")
        before = store.head("a")
        put_bytes(store, "a", b"second")
        after = store.head("a")

        assert b"second" == open_bytes(store, "a")
        assert before is not None
        assert after is not None
        assert hashlib.sha256(b"second").hexdigest() == after.metadata["sha256"]
        assert before.etag != after.etag

    def test_put_if_absent_leaves_another_object_alone(self, store: Store) -> None:
        """Of two bodies put if absent, the first stays, and putting it again succeeds."""
        first = put_bytes(store, "a", b"mine", if_absent=True)
        again = put_bytes(store, "a", b"mine", if_absent=True)
        other = put_bytes(store, "a", b"other", if_absent=True)

        assert (True, True, False) == (first, again, other)
        assert b"mine" == open_bytes(store, "a")

    def test_put_if_absent_holds_for_large_objects_too(self, store: Store) -> None:
        """A multipart upload does not replace an object that exists either."""
        put_bytes(store, "a", b"mine")
        large = bytes(PART_BYTES + 1)

        assert not put_bytes(store, "a", large, if_absent=True)
        assert b"mine" == open_bytes(store, "a")

    def test_of_many_who_put_if_absent_one_wins(self, store: Store) -> None:
        """A lock has one holder, however many try to take it at once."""
        bodies = [f"host {n}".encode() for n in range(8)]

        with ThreadPoolExecutor(8) as pool:
            won = [*pool.map(lambda data: put_bytes(store, "lock", data, if_absent=True), bodies)]

        assert 1 == won.count(True)
        assert bodies[won.index(True)] == open_bytes(store, "lock")

    @pytest.mark.parametrize(
        "size", [pytest.param(30, id="small"), pytest.param(PART_BYTES + 1, id="in parts")]
    )
    def test_a_replacement_takes_the_place_of_what_was_compared(
        self, store: Store, size: int
    ) -> None:
        """
        A put with the existing object's etag replaces it; with another etag, it changes nothing.
        """
        put_bytes(store, "a", b"ten")
        ten = etag(store, "a")
        twenty, thirty = bytes(size - 1), bytes(size)

        first = put_bytes(store, "a", thirty, if_match=ten)
        late = put_bytes(store, "a", twenty, if_match=ten)
        again = put_bytes(store, "a", thirty, if_match=ten)

        assert (True, False, True) == (first, late, again)
        assert thirty == open_bytes(store, "a")
        assert put_bytes(store, "a", b"more", if_match=etag(store, "a"))

    def test_what_has_gone_is_not_replaced(self, store: Store) -> None:
        """A replacement creates nothing if the object has been deleted meanwhile."""
        put_bytes(store, "a", b"ten")
        ten = etag(store, "a")
        store.delete("a")

        assert not put_bytes(store, "a", b"twenty", if_match=ten)
        assert store.head("a") is None

    def test_a_missing_object_is_named_as_missing(self, store: Store) -> None:
        """
        Opening a missing object is always the same error; asking whether it exists is not an error.
        """
        with pytest.raises(ObjectNotFoundError, match="topics/none"):
            store.open("topics/none")

        assert store.head("topics/none") is None

    def test_deleting_twice_is_no_error(self, store: Store) -> None:
        """Two that each believe they hold a lock can both give it up."""
        put_bytes(store, "a", b"mine")
        store.delete("a")
        store.delete("a")

        assert store.head("a") is None
        assert [] == [*store.list("")]
        assert put_bytes(store, "a", b"other", if_absent=True)

    def test_a_listing_is_in_the_order_of_utf8_bytes(self, store: Store) -> None:
        """Listings are in the order of whole keys; a slash is a character like any other."""
        keys = ["a-b", "a.b/c", "a/b", "a/b-c", "a0", "b/c/d", "z", "é", "\uffee", "😀"]
        for key in reversed(keys):
            put_bytes(store, key, key.encode())

        found = [*store.list("")]

        assert sorted(keys, key=str.encode) == [one.key for one in found]
        assert [len(one.key.encode()) for one in found] == [one.size for one in found]

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            pytest.param("topics/a/", ["topics/a/1", "topics/a/2"], id="a folder"),
            pytest.param("topics/a", ["topics/a/1", "topics/a/2", "topics/ab/1"], id="half a name"),
            pytest.param("topics/a/1", ["topics/a/1"], id="a whole key"),
            pytest.param("topics/c", [], id="nothing"),
            pytest.param("../topics/a", [], id="not a path"),
        ],
    )
    def test_a_listing_holds_what_begins_with_its_prefix(
        self, store: Store, prefix: str, expected: list[str]
    ) -> None:
        """A prefix is text, not a folder."""
        for key in ("topics/a/1", "topics/a/2", "topics/ab/1", "topics/b/1", "other"):
            put_bytes(store, key, b"x")

        assert expected == [one.key for one in store.list(prefix)]

    @pytest.mark.parametrize(
        ("after", "expected"),
        [
            pytest.param("topics/a/1", ["topics/a/2"], id="a key"),
            pytest.param("topics/a/0", ["topics/a/1", "topics/a/2"], id="no key that is there"),
            pytest.param("other", ["topics/a/1", "topics/a/2"], id="before the prefix"),
            pytest.param("topics/b", [], id="behind all that begins with it"),
        ],
    )
    def test_a_listing_may_begin_behind_a_key(
        self, store: Store, after: str, expected: list[str]
    ) -> None:
        """What is new is found without listing all that is old."""
        for key in ("topics/a/1", "topics/a/2", "topics/b/1", "other"):
            put_bytes(store, key, b"x")

        assert expected == [one.key for one in store.list("topics/a", after=after)]

    def test_what_is_listed_agrees_with_head(self, store: Store) -> None:
        """A listing and an object's metadata agree, so a plan made from a listing holds."""
        put_bytes(store, "a", b"orders")

        [listed] = store.list("")
        head = store.head("a")

        assert head is not None
        assert (listed.size, listed.etag) == (head.size, head.etag)
        assert abs(listed.modified - head.modified) < timedelta(seconds=2)  # some keep no more

    @pytest.mark.parametrize(
        "key",
        [
            pytest.param("a%2Fb", id="percent"),
            pytest.param("a+0+0000000001.avro", id="plus"),
            pytest.param("a b  c", id="blanks"),
            pytest.param("😀/\u202e", id="emoji, right to left"),
            pytest.param("e\u0301/\u00e9", id="composed and not"),
            pytest.param("a=b&c=d?e#f;g:h@i", id="marks of a URL"),
            pytest.param("<a>'\"&amp;</a>", id="marks of XML"),
            pytest.param("a\\b*c|d", id="marks of a shell"),
            pytest.param("p=" + "x" * 253, id="name of 255 bytes"),
        ],
    )
    def test_a_key_survives(self, store: Store, key: str) -> None:
        """A key may contain text from a record; it is listed as it was written."""
        put_bytes(store, key, b"x")

        assert [key] == [one.key for one in store.list("")]
        assert b"x" == open_bytes(store, key)
        assert store.head(key) is not None

    def test_threads_do_not_disturb_each_other(self, store: Store) -> None:
        """One store serves all threads of a task."""
        keys = [f"topics/{n}" for n in range(24)]

        def there_and_back(key: str) -> bytes:
            put_bytes(store, key, key.encode() * 1000)
            return open_bytes(store, key)

        with ThreadPoolExecutor(8) as pool:
            found = [*pool.map(there_and_back, keys)]

        assert [key.encode() * 1000 for key in keys] == found
        assert sorted(keys) == [one.key for one in store.list("topics/")]


class FaultyStore:
    """A store that fails by script: one word for each call; after the last, calls succeed.

    ========  =====================================================================
    ok        the call succeeds
    503       any status: nothing happens, `StoreError`
    lost      the call succeeds, but its answer is lost: `StoreError`
    corrupt   nothing happens, `CorruptObjectError`
    missing   nothing happens, `ObjectNotFoundError`
    half      half of a listing, then `StoreError`; nothing of any other call
    ========  =====================================================================

    Attributes:
        script: The remaining words.
        calls: Each scripted call: method, key or prefix, word.
    """

    def __init__(
        self,
        script: str,
        store: Store | None = None,
        *,
        methods: frozenset[str] = frozenset({"put", "open", "list", "head", "delete"}),
    ) -> None:
        """Wrap *store*, an empty one in memory if None; only calls to *methods* take a word."""
        self.script = script.split()
        self.calls: list[tuple[str, str, str]] = []
        self._store = MemoryStore(StoreSettings(f"memory://{uuid4()}")) if store is None else store
        self._methods = methods

    @staticmethod
    def check_url(url: str) -> None:
        """Accept any."""

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
        """Put, or fail as the script says."""
        word = self._word("put", key)
        done = self._store.put(
            key, body, sha256=sha256, metadata=metadata, if_absent=if_absent, if_match=if_match
        )
        self._lose(word, "put", key)
        return done

    def open(self, key: str) -> BinaryIO:
        """Open, or fail as the script says."""
        word = self._word("open", key)
        file = self._store.open(key)
        self._lose(word, "open", key)
        return file

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """List, or fail as the script says, before the first object or in the middle."""
        word = self._word("list", prefix, in_progress="half")
        found = [*self._store.list(prefix, after=after)]
        yield from found[: len(found) // 2] if word == "half" else found
        self._lose("lost" if word == "half" else word, "list", prefix)

    def head(self, key: str) -> ObjectHead | None:
        """Request the metadata, or fail as the script says."""
        word = self._word("head", key)
        head = self._store.head(key)
        self._lose(word, "head", key)
        return head

    def delete(self, key: str) -> None:
        """Delete, or fail as the script says."""
        word = self._word("delete", key)
        self._store.delete(key)
        self._lose(word, "delete", key)

    def _word(self, method: str, about: str, in_progress: str = "lost") -> str:
        word = self.script.pop(0) if self.script and method in self._methods else "ok"
        self.calls.append((method, about, word))
        if word in ("ok", "lost", in_progress):
            return word
        what, why = f"{method} {about}", f"scripted {word}"
        kinds = {"corrupt": CorruptObjectError, "missing": ObjectNotFoundError}
        raise kinds.get(word, StoreError)(what, why)

    def _lose(self, word: str, method: str, about: str) -> None:
        if word == "lost":
            raise StoreError(f"{method} {about}", "scripted loss of the answer")
