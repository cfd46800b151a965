"""Versions of an object, as a server lists them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from kbackup.config import loading
from kbackup.stores.s3 import bucket

SECOND = datetime(2026, 11, 20, 10, 0, 0, tzinfo=UTC)


def found(key: str, version: str, *, after_s: int = 0, size: int | None = 1) -> dict[str, Any]:
    """A version, or without a size a delete marker, as S3 lists it: its times have seconds."""
    told = {"Key": key, "VersionId": version, "LastModified": SECOND + timedelta(seconds=after_s)}
    return told if size is None else {**told, "Size": size, "ETag": f'"{version}"'}


def hidden(keys: Iterable[str]) -> list[dict[str, Any]]:
    """An object under a delete marker for each key."""
    return [one for key in sorted(keys) for one in (found(key, "2", size=None), found(key, "1"))]


class Server:
    """A server with versions, the newest of each key first, which it lists some a page.

    As some do, it lists nothing behind a key that does not begin with what is asked for.
    """

    def __init__(self, every: Sequence[dict[str, Any]], *, most: int) -> None:
        self.every, self.most = every, most
        self.requests, self.deleted = 0, list[str]()

    def send(self, operation: str, about: str, **params: Any) -> Any:  # noqa: ARG002
        """Answer, or delete."""
        if operation == "delete_object":
            self.deleted.append(params["VersionId"])
            return {}
        self.requests += 1
        prefix, after = params["Prefix"], params.get("KeyMarker", "")
        if not after.startswith(prefix) and after:
            return {"IsTruncated": False}
        version = params.get("VersionIdMarker")
        places = [(one["Key"], one["VersionId"]) for one in self.every]
        at = places.index((after, version)) + 1 if version else sum(k <= after for k, _ in places)
        left = [one for one in self.every[at:] if one["Key"].startswith(prefix)]
        page, more = left[: self.most], left[self.most :]
        latest = {one["Key"]: one for one in reversed(self.every)}
        page = [{**one, "IsLatest": one is latest[one["Key"]]} for one in page]
        answer: dict[str, Any] = {
            "Versions": [one for one in page if "Size" in one],
            "DeleteMarkers": [one for one in page if "Size" not in one],
            "IsTruncated": bool(more),
        }
        if more:
            answer["NextKeyMarker"] = page[-1]["Key"]
            if more[0]["Key"] == page[-1]["Key"]:
                answer["NextVersionIdMarker"] = page[-1]["VersionId"]
        return answer

    def etag(self, answer: dict[str, Any], key: str) -> str:  # noqa: ARG002
        """The one listed."""
        return str(answer["ETag"]).strip('"')


def test_of_one_second_the_version_is_meant_wherever_a_page_ends() -> None:
    """A marker that is on the page before does not hide it."""
    server: Any = Server(hidden("a"), most=1)

    assert "1" == bucket.at(server, "a", SECOND)


THERE = [f"topics/a/a+{number:05}{end}" for number in range(200) for end in (".avro", ".keys.avro")]


@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        pytest.param(THERE[7:8], 1, id="one"),
        pytest.param(THERE[30:60], 11, id="together"),
        pytest.param([THERE[0], THERE[-1]], 2, id="far apart"),
        pytest.param(THERE[::40], 10, id="all over"),
        pytest.param(
            ["x", "topics/a/a+00009.avro", "topics/a/gone", "topics/b"], 4, id="some not there"
        ),
        pytest.param(THERE, 134, id="all"),
    ],
)
def test_versions_of_many_objects_are_listed_together(wanted: list[str], most: int) -> None:
    """What lies far apart is asked for by itself, whatever is between."""
    server: Any = Server(hidden(THERE), most=6)

    found = [(one["Key"], one["VersionId"]) for one in bucket.every(server, wanted)]

    assert sorted((key, each) for key in wanted if key in THERE for each in "12") == sorted(found)
    assert server.requests <= most


@pytest.mark.parametrize("seed", range(20))
def test_versions_are_found_of_whatever_objects_are_asked_for(seed: int) -> None:
    """In no more requests than there are keys, but for what ends a page; none comes twice."""
    chance = Random(seed)
    there = {"".join(chance.choices("ab/+", k=chance.randint(1, 5))) for _ in range(60)}
    wanted = {*chance.sample(sorted(there), 20), "a", "b/", "never"}
    server: Any = Server(hidden(there), most=5)

    found = [(one["Key"], one["VersionId"]) for one in bucket.every(server, wanted)]

    assert sorted((key, each) for key in wanted & there for each in "12") == sorted(found)
    assert server.requests <= 2 * len(wanted)


def test_the_newest_version_goes_last() -> None:
    """Whoever dies before it leaves what was there, and no older object in its place."""
    versions = [found("a", "3"), found("a", "2", size=None), found("a", "1"), found("a.keys", "9")]
    server: Any = Server(versions, most=9)

    bucket.S3Bucket(server).delete_versions("a")

    assert ["1", "2", "3"] == server.deleted


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        pytest.param(
            [found("a", "long"), found("a", "short")], "long", id="two of one second: the later"
        ),
        pytest.param(
            [found("a", "evil", after_s=1), found("a", "long"), found("a", "short")], "long",
            id="not ours, a second later",
        ),
        pytest.param(
            [found("a", "gone", after_s=1, size=None), found("a", "long")], "long",
            id="a delete marker, a second later",
        ),
        pytest.param(
            [found("a", "gone", size=None), found("a", "long")], "long",
            id="a delete marker of the same second: the version",
        ),
        pytest.param(
            [found("a", "long", after_s=9), found("a", "gone", size=None, after_s=-1),
             found("a", "old", after_s=-2)], None, id="deleted before",
        ),
        pytest.param([found("a", "late", after_s=1)], None, id="not there yet"),
    ],
)  # fmt: skip
def test_the_version_of_a_time_is_the_one_that_was_stored(
    listed: list[dict[str, Any]], wanted: str | None
) -> None:
    """By the server's times alone: the ledger, with whatever it names, may be gone too."""
    server: Any = Server([found("0", "0"), *listed, found("a.keys", "9")], most=2)

    every = {one.key: one.etag for one in bucket.listed(server, "", "", SECOND)}

    assert wanted == bucket.at(server, "a", SECOND)
    assert {"0": "0", "a.keys": "9"} | ({"a": wanted} if wanted else {}) == every


@pytest.mark.parametrize("command", ["restore", "configs", "groups", "access"])
def test_all_that_a_restore_brings_back_can_be_of_a_time(command: loading.Command) -> None:
    """Access and settings too: after an attack, what is there now is the attacker's."""
    given, time = {"s3_bucket_name": "b", "bootstrap_servers": "h:1"}, "2026-11-20T10:00:00Z"
    extra = [f"s3.versions.as.of={time}"]
    settings = loading.load(command, options=given, files=[], environ={}, extra=extra).settings

    assert time == settings.options_of("stores").get("s3.versions.as.of")


@pytest.mark.parametrize("command", ["sink", "reindex", "accept", "expire", "copy", "keys"])
def test_all_that_is_stored_is_locked(command: loading.Command) -> None:
    """Wrapped keys and copies too: a backup without them is none."""
    given = {"s3_bucket_name": "b", "bootstrap_servers": "h:1", "topics": "orders"}
    lock = {"s3.object.lock.mode": "COMPLIANCE", "s3.object.lock.days": 30}
    extra = [f"{name}={text}" for name, text in lock.items()]
    found = loading.load(
        command, options=given if command == "sink" else {"s3_bucket_name": "b"}, files=[],
        environ={}, extra=extra,
    )  # fmt: skip

    assert lock.items() <= found.settings.options_of("stores").items()
