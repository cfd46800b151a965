"""Send bodies at once or in parts, each with its checksum, and fetch them again.

What breaks off while it is fetched goes on where it was, and is compared with its checksum.  What a
`StoreError` of ours says a request came to is here too.  All of it needs no botocore until a body
comes: see `requests` for that.
"""

import base64
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypedDict

from kbackup.errors import CorruptObjectError, StoreError, counted
from kbackup.files import Section, Spool, file_sha256
from kbackup.stores import ObjectHead, is_kept

if TYPE_CHECKING:
    from kbackup.stores.s3.requests import Requests

NOT_IMPLEMENTED: Final = 501
"""The status of a server that lacks what a request asks for."""

TOO_MANY_REQUESTS: Final = 429


def not_implemented(error: StoreError) -> bool:
    """Whether the server lacks a feature that the request used."""
    return error.place.get("status") == NOT_IMPLEMENTED


def is_taken(error: StoreError) -> bool:
    """Whether a condition failed: the key is taken, or the object is another one by now."""
    return error.place.get("s3_code") == "PreconditionFailed"


def is_missing(error: StoreError) -> bool:
    """Whether there is no such object to replace."""
    return error.place.get("s3_code") == "NoSuchKey"


def is_forgotten(error: StoreError) -> bool:
    """Whether there is no such upload: completed before, aborted, or never heard of."""
    return error.place.get("s3_code") == "NoSuchUpload"


def is_lost(error: StoreError) -> bool:
    """Whether the request may have been carried out all the same."""
    status = error.place.get("status")
    return status is None or (status >= 500 and status != NOT_IMPLEMENTED)


def is_worn_out(error: BaseException) -> bool:
    """Whether the budget of attempts has been spent on a server that did not get to it."""
    return isinstance(error, StoreError) and (
        is_lost(error) or error.place.get("status") == TOO_MANY_REQUESTS
    )


_log: Final = logging.getLogger(__name__)

MAX_PARTS: Final = 10_000
"""S3's limit; parts grow where a body would need more."""

_CHUNK: Final = 1 << 20


def in_parts(size: float, part_bytes: int) -> bool:
    """Whether so many bytes are sent in parts: those of more than two.

    Parts cost two more requests, and another pass over the body for their checksums.
    """
    return size > 2 * part_bytes


class PutCondition(TypedDict, total=False):
    """What must hold for a body to be stored, as S3 takes it."""

    IfMatch: str
    IfNoneMatch: str


class ChecksumType(TypedDict, total=False):
    """Which checksums the parts of an upload have, as S3 takes it."""

    ChecksumAlgorithm: str


class Checksum(TypedDict, total=False):
    """Of a body, in base64, as S3 takes it."""

    ChecksumSHA256: str


@dataclass(frozen=True, slots=True)
class Features:
    """What not every server has.

    Attributes:
        conditional: Writes that fail where an object is there already.
        checksums: Checksums of what is sent.
    """

    conditional: bool = True
    checksums: bool = True

    def less(self) -> "Features | None":
        """Return what to try after a server said that it lacks one of these, None if none is left.

        Checksums go first, and come back if it was not them: without conditional writes two
        writers may meet, while a body is checked once more when it is read.
        """
        match self.conditional, self.checksums:
            case True, True:
                return Features(conditional=True, checksums=False)
            case True, False:
                return Features(conditional=False, checksums=True)
            case False, True:
                return Features(conditional=False, checksums=False)
        return None


@dataclass(frozen=True, slots=True)
class Upload:
    """A body on its way: what `Store.put` was given, and its size in bytes."""

    key: str
    body: BinaryIO
    size: int
    sha256: str
    metadata: dict[str, str]
    if_absent: bool
    if_match: str | None = None

    @property
    def is_conditional(self) -> bool:
        """Whether what is there decides."""
        return self.if_absent or self.if_match is not None

    def may_replace(self, there: ObjectHead | None) -> bool:
        """Whether the body may take the place of what is *there*."""
        etag = None if there is None else there.etag
        return not is_kept(etag, if_absent=self.if_absent, if_match=self.if_match)

    def send(self, requests: "Requests", part_bytes: int, features: Features) -> None:
        """Store the body as an object, visible only once it is whole.

        Raises:
            StoreError: It is not known to be stored; no parts are left, if that could be helped.
        """
        condition: PutCondition = self._condition() if features.conditional else {}
        if not in_parts(self.size, part_bytes):
            digest = bytes.fromhex(self.sha256)
            checksum: Checksum = _checksum(digest) if features.checksums else {}
            requests.send(
                "put_object",
                self.key,
                body=self.body,
                Key=self.key,
                ContentLength=self.size,
                Metadata=self.metadata,
                **checksum,
                **condition,
            )
        else:
            self._send_parts(requests, part_bytes, features, condition)

    def _condition(self) -> PutCondition:
        if self.if_match is not None:
            return {"IfMatch": f'"{self.if_match}"'}
        return {"IfNoneMatch": "*"} if self.if_absent else {}

    def _send_parts(
        self, requests: "Requests", part_bytes: int, features: Features, condition: PutCondition
    ) -> None:
        begun = _Begun.begin(requests, self.key, self.metadata, features)
        length = max(part_bytes, -(-self.size // MAX_PARTS))
        parts = (
            begun.send(number, Section(self.body, start, min(length, self.size - start)))
            for number, start in enumerate(range(0, self.size, length), 1)
        )
        begun.finish(parts, condition)


@dataclass(frozen=True, slots=True)
class _StoredPart:
    """A part that is stored; the checksum is empty where the server takes none."""

    number: int
    etag: str
    checksum: Checksum

    def named(self) -> dict[str, object]:
        """Return what completing the upload says of it."""
        return {"PartNumber": self.number, "ETag": self.etag, **self.checksum}


@dataclass(frozen=True, slots=True)
class _Begun:
    """An upload in parts that the server knows of."""

    requests: "Requests"
    key: str
    upload_id: str
    features: Features

    @classmethod
    def begin(
        cls, requests: "Requests", key: str, metadata: Mapping[str, str], features: Features
    ) -> "_Begun":
        """Begin one."""
        kind: ChecksumType = {"ChecksumAlgorithm": "SHA256"} if features.checksums else {}
        created = requests.send(
            "create_multipart_upload", key, Key=key, Metadata=dict(metadata), **kind
        )
        return cls(requests, key, created["UploadId"], features)

    def finish(self, parts: Iterable[_StoredPart], condition: PutCondition) -> None:
        """Make the object of its *parts*, which are stored as they are asked for."""
        try:
            self._complete([*parts], condition)
        except BaseException as error:
            self._abort(is_tried_again=not is_worn_out(error))
            raise

    def send(self, number: int, section: Section) -> _StoredPart:
        """Store one part."""
        checksum: Checksum = _checksum(file_sha256(section)) if self.features.checksums else {}
        answer = self.requests.send(
            "upload_part",
            f"{self.key} part {number}",
            body=section,
            PartNumber=number,
            ContentLength=section.size,
            Key=self.key,
            UploadId=self.upload_id,
            **checksum,
        )
        return _StoredPart(number, answer["ETag"], checksum)

    def copy(self, number: int, source: Mapping[str, Any], start: int, end: int) -> _StoredPart:
        """Store one part of what another object holds from *start* on, before *end*."""
        answer = self.requests.send(
            "upload_part_copy",
            f"{self.key} part {number}",
            PartNumber=number,
            CopySourceRange=f"bytes={start}-{end - 1}",
            Key=self.key,
            UploadId=self.upload_id,
            **source,
        )["CopyPartResult"]
        told = answer.get("ChecksumSHA256")
        checksum: Checksum = {} if told is None else {"ChecksumSHA256": told}
        return _StoredPart(number, answer["ETag"], checksum)

    def _complete(self, parts: Sequence[_StoredPart], condition: PutCondition) -> None:
        """Make the object of its *parts*."""
        done = self.requests.send(
            "complete_multipart_upload",
            self.key,
            MultipartUpload={"Parts": [part.named() for part in parts]},
            Key=self.key,
            UploadId=self.upload_id,
            **condition,
        )
        if not done.get("ETag"):
            what = f"s3:PutObject on {self.requests.resource(self.key)}"
            raise StoreError(
                what, "the upload was completed without an ETag", "run the command again"
            )

    def _abort(self, *, is_tried_again: bool) -> None:
        """Throw the parts away, if that can be done; nobody sees them in any case."""
        # once where a part has spent its budget: the same server is not worth another one
        try:
            self.requests.send(
                "abort_multipart_upload",
                self.key,
                is_tried_again=is_tried_again,
                Key=self.key,
                UploadId=self.upload_id,
            )
        except StoreError as error:
            if not is_forgotten(error):
                _log.warning("the parts of an unfinished upload are left: %s", error)


COPIED_BYTES_MAX: Final = 5 * 2**30
"""S3's limit of what one request copies."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a server tells of an object that was sent in parts.

    Attributes:
        length: Bytes of each but the last.
        checksum: That of their sha256, one after the other.
    """

    length: int
    checksum: str

    @classmethod
    def of(cls, requests: "Requests", key: str) -> "Parts | None":
        """Ask for it; None where the server does not tell."""
        whole = requests.send("head_object", key, Key=key, ChecksumMode="ENABLED")
        first = requests.send("head_object", key, Key=key, PartNumber=1)
        length, checksum = first["ContentLength"], whole.get("ChecksumSHA256")
        is_told = checksum is not None and length < whole["ContentLength"]
        return cls(length, checksum) if is_told else None


def copy(
    requests: "Requests", bucket: str, key: str, found: ObjectHead, parts: Parts | None = None
) -> str | None:
    """Have the server copy an object of *bucket* that it still has as it was *found*.

    Nothing is copied where one is here.  More than `COPIED_BYTES_MAX` are copied in its *parts*.

    Returns:
        The sha256 of the copy, in hexadecimal; empty where it is not that of the object, None
        where the server does not tell it.

    Raises:
        StoreError: If it does not.
    """
    source: dict[str, Any] = {
        "CopySource": {"Bucket": bucket, "Key": key},
        "CopySourceIfMatch": f'"{found.etag}"',
    }
    if parts is not None:
        # s3transfer, which copies for boto3, knows no condition for what is there already, tells
        # no checksum, and sends each part once, for attempts are ours here
        begun = _Begun.begin(requests, key, found.metadata, Features())
        starts = enumerate(range(0, found.size, parts.length), 1)
        begun.finish(
            (
                begun.copy(number, source, start, min(start + parts.length, found.size))
                for number, start in starts
            ),
            {"IfNoneMatch": "*"},
        )
        # of parts S3 tells but one checksum of theirs; the object's was compared with what was
        # sent, whose sha256 is among its facts
        is_same = Parts.of(requests, key) == parts
        return found.metadata["sha256"] if is_same else ""
    answer = requests.send(
        "copy_object",
        key,
        Key=key,
        **source,
        IfNoneMatch="*",
        MetadataDirective="REPLACE",  # by the same: what else the source has, no put would
        Metadata=dict(found.metadata),
        TaggingDirective="REPLACE",
        ChecksumAlgorithm="SHA256",
    )
    try:  # of parts it would be another kind of checksum, with their number behind a hyphen
        said = base64.b64decode(answer["CopyObjectResult"]["ChecksumSHA256"], validate=True)
    except (KeyError, ValueError):
        return None
    return said.hex()


def _checksum(digest: bytes) -> Checksum:
    return {"ChecksumSHA256": base64.b64encode(digest).decode()}


def fetch(requests: "Requests", key: str, memory_bytes: int) -> Spool:
    """Return an object whole and checked, at 0; so many bytes may stay in memory.

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


def fetch_range(
    requests: "Requests", key: str, start: int, length: int, memory_bytes: int
) -> Spool:
    """Return a part of an object, at 0; one that breaks off is fetched again from its start.

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


def _read_range(requests: "Requests", key: str, start: int, length: int, spool: Spool) -> str:
    asked = f"{start}-{start + length - 1}"
    answer = requests.send("get_object", key, Key=key, Range=f"bytes={asked}")
    sent = answer.get("ContentRange", "")
    if not sent.startswith(f"bytes {asked}/"):
        answer["Body"].close()
        why = f"asked for bytes {asked}, the server sent {sent or 'all of it'}"
        raise CorruptObjectError(requests.resource(key), why, "run the command again")
    spool.metadata = answer["Metadata"]
    return _read(requests.resource(key), answer["Body"], spool)


def _again(requests: "Requests", key: str, attempt: int, why: str) -> int:
    """Wait, and return the number of the next attempt, if there is one."""
    if attempt >= requests.attempts.total:
        what, why = f"s3:GetObject on {requests.resource(key)}", f"{requests.host}: {why}"
        raise StoreError(what, why, "check the network, or raise s3.part.retries")
    return requests.attempts.wait(attempt, requests.resource(key), why)


def _compare(resource: str, found: str, stored: str | None) -> None:
    if stored is not None and found != stored:
        why = f"its sha256 is {found}; {stored} was stored"
        raise CorruptObjectError(resource, why, "replace it with another copy")


def _receive(requests: "Requests", key: str, answer: Any, spool: Spool) -> None:
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
    from botocore.exceptions import FlexibleChecksumError  # noqa: PLC0415

    from kbackup.stores.s3.requests import NETWORK, transient  # noqa: PLC0415

    try:
        for chunk in body.iter_chunks(_CHUNK):
            spool.write(chunk)
    except NETWORK as error:
        return transient(error) or type(error).__name__
    except FlexibleChecksumError as error:
        raise CorruptObjectError(resource, str(error), "replace it with another copy") from error
    finally:
        body.close()
    return "body too short"


def _read_on(requests: "Requests", key: str, spool: Spool, etag: str) -> Any:
    start = spool.size
    try:
        answer = requests.send(
            "get_object", key, Key=key, Range=f"bytes={start}-", IfMatch=f'"{etag}"'
        )
    except StoreError as error:
        if not is_taken(error):
            raise
        why = "it was replaced while it was read"
        raise CorruptObjectError(requests.resource(key), why, "run the command again") from error
    if not answer.get("ContentRange", "").startswith(f"bytes {start}-"):
        spool.restart()  # this server sends the whole again
    return answer
