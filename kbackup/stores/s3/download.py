"""Fetch one object: resume where a body broke off, and compare what came with its checksum."""

from typing import Any, Final

from botocore.exceptions import FlexibleChecksumError

from kbackup.errors import CorruptObjectError, StoreError, counted
from kbackup.files import Spool
from kbackup.stores.s3 import errors, outcomes
from kbackup.stores.s3.requests import Requests

_CHUNK: Final = 1 << 20


def fetch(requests: Requests, key: str, memory_bytes: int) -> Spool:
    """Return an object whole and checked, at 0.

    Args:
        requests: To its bucket.
        key: Its key.
        memory_bytes: What may stay in memory.

    Raises:
        ObjectNotFoundError: No such object.
        CorruptObjectError: It does not match a checksum, or was replaced meanwhile.
        StoreError: Not reachable, not authorised, or broken off too often.
    """
    answer = requests.send("get_object", key, Key=key, ChecksumMode="ENABLED")
    spool = Spool(memory_bytes, expected_bytes=answer["ContentLength"])
    try:
        _receive(requests, key, answer, spool)
        _compare(requests.resource(key), spool.sha256, answer["Metadata"].get("sha256"))
        spool.metadata = answer["Metadata"]
        spool.seek(0)
    except BaseException:
        spool.close()
        raise
    return spool


def fetch_range(requests: Requests, key: str, start: int, length: int, memory_bytes: int) -> Spool:
    """Return a part of an object, at 0; one that breaks off is fetched again from its start.

    Args:
        requests: To its bucket.
        key: Its key.
        start: The first byte.
        length: How many.
        memory_bytes: What may stay in memory.

    Raises:
        ObjectNotFoundError: No such object.
        CorruptObjectError: The object ends before.
        StoreError: Not reachable, not authorised, broken off too often, or a server that does not
            send parts.
    """
    spool, attempt = Spool(memory_bytes, expected_bytes=length), 1
    try:
        while True:
            why = _read_range(requests, key, start, length, spool)
            if spool.size == length:
                break
            why += f" after {spool.size} of {counted(length, 'byte')}"
            attempt = _again(requests, key, attempt, why)
            spool.restart()
        spool.seek(0)
    except BaseException:
        spool.close()
        raise
    return spool


def _read_range(requests: Requests, key: str, start: int, length: int, spool: Spool) -> str:
    asked = f"{start}-{start + length - 1}"
    answer = requests.send("get_object", key, Key=key, Range=f"bytes={asked}")
    sent = answer.get("ContentRange", "")
    if not sent.startswith(f"bytes {asked}/"):
        answer["Body"].close()
        why = f"asked for bytes {asked}, the server sent {sent or 'all of it'}"
        raise CorruptObjectError(requests.resource(key), why, "run again")
    spool.metadata = answer["Metadata"]
    return _read(requests.resource(key), answer["Body"], spool)


def _again(requests: Requests, key: str, attempt: int, why: str) -> int:
    """Wait, and return the number of the next attempt.

    Raises:
        StoreError: If there is none.
    """
    if attempt >= requests.attempts.total:
        what, why = f"s3:GetObject on {requests.resource(key)}", f"{requests.host}: {why}"
        raise StoreError(what, why, "check the network, or raise s3.part.retries")
    return requests.attempts.wait(attempt, requests.resource(key), why)


def _compare(resource: str, found: str, stored: str | None) -> None:
    if stored is not None and found != stored:
        why = f"its sha256 is {found}; {stored} was stored"
        raise CorruptObjectError(resource, why, "restore another copy of it")


def _receive(requests: Requests, key: str, answer: Any, spool: Spool) -> None:
    size, attempt = answer["ContentLength"], 1
    try:
        etag = requests.etag(answer, key)
    except StoreError:
        answer["Body"].close()
        raise
    while True:
        why = _read(requests.resource(key), answer["Body"], spool)
        if spool.size == size:
            return
        why += f" after {spool.size} of {counted(size, 'byte')}"
        attempt = _again(requests, key, attempt, why)
        answer = _read_on(requests, key, spool, etag)


def _read(resource: str, body: Any, spool: Spool) -> str:
    """Move what comes into the spool, and return why there was no more."""
    try:
        for chunk in body.iter_chunks(_CHUNK):
            spool.write(chunk)
    except errors.NETWORK as error:
        return errors.transient(error) or type(error).__name__
    except FlexibleChecksumError as error:
        raise CorruptObjectError(resource, str(error), "restore another copy of it") from error
    finally:
        body.close()
    return "body too short"


def _read_on(requests: Requests, key: str, spool: Spool, etag: str) -> Any:
    start = spool.size
    try:
        answer = requests.send(
            "get_object", key, Key=key, Range=f"bytes={start}-", IfMatch=f'"{etag}"'
        )
    except StoreError as error:
        if not outcomes.is_taken(error):
            raise
        why = "it was replaced while it was read"
        raise CorruptObjectError(requests.resource(key), why, "run again") from error
    if not answer.get("ContentRange", "").startswith(f"bytes {start}-"):
        spool.restart()  # this server sends the whole again
    return answer
