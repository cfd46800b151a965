"""Sending one body: at once or in parts, each with its checksum."""

import base64
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, TypedDict

from kbackup.errors import StoreError
from kbackup.files import Section
from kbackup.stores import ObjectHead
from kbackup.stores.s3 import outcomes

if TYPE_CHECKING:
    from kbackup.stores.s3.requests import Requests

_log: Final = logging.getLogger(__name__)

MAX_PARTS: Final = 10_000
"""S3's limit; parts grow where a body would need more."""

_CHUNK: Final = 1 << 20


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
    """A body on its way.

    Attributes:
        key: Where to.
        body: Seekable, *size* bytes from 0.
        size: Bytes.
        sha256: Of the body, in hexadecimal.
        metadata: User metadata.
        if_absent: Leave another object alone.
        if_match: Leave any object alone but the one with this etag.
    """

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
        if self.if_match is not None:
            return there is not None and there.etag == self.if_match
        return there is None or not self.if_absent

    def send(self, requests: "Requests", part_bytes: int, features: Features) -> None:
        """Store the body as an object, visible only once it is whole.

        Raises:
            StoreError: It is not known to be stored; no parts are left, if that could be helped.
        """
        condition: PutCondition = self._condition() if features.conditional else {}
        if self.size <= part_bytes:
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
        kind: ChecksumType = {"ChecksumAlgorithm": "SHA256"} if features.checksums else {}
        created = requests.send(
            "create_multipart_upload",
            self.key,
            Key=self.key,
            Metadata=self.metadata,
            **kind,
        )
        begun = _Begun(requests, self.key, created["UploadId"], features)
        length = max(part_bytes, -(-self.size // MAX_PARTS))
        try:
            parts = [
                begun.send(number, Section(self.body, start, min(length, self.size - start)))
                for number, start in enumerate(range(0, self.size, length), 1)
            ]
            begun.complete(parts, condition)
        except BaseException as error:
            begun.abort(is_tried_again=not outcomes.is_worn_out(error))
            raise


@dataclass(frozen=True, slots=True)
class _Part:
    """A part that is stored.

    Attributes:
        number: From 1.
        etag: The server's.
        checksum: Of its content; empty where the server takes none.
    """

    number: int
    etag: str
    checksum: Checksum

    def named(self) -> dict[str, object]:
        """Return what completing the upload says of it."""
        return {"PartNumber": self.number, "ETag": self.etag, **self.checksum}


@dataclass(frozen=True, slots=True)
class _Begun:
    """An upload in parts that the server knows of.

    Attributes:
        requests: To the server.
        key: Of the object that it is to become.
        upload_id: The server's.
        features: What the server has.
    """

    requests: "Requests"
    key: str
    upload_id: str
    features: Features

    def send(self, number: int, section: Section) -> _Part:
        """Store one part."""
        checksum: Checksum = _checksum(_sha256(section)) if self.features.checksums else {}
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
        return _Part(number, answer["ETag"], checksum)

    def complete(self, parts: Sequence[_Part], condition: PutCondition) -> None:
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
            raise StoreError(what, "the upload was completed without an ETag", "run again")

    def abort(self, *, is_tried_again: bool) -> None:
        """Throw the parts away, if that can be done; nobody sees them in any case.

        Asked once where a part has spent its budget: the same server is not worth another one.
        """
        try:
            self.requests.send(
                "abort_multipart_upload",
                self.key,
                is_tried_again=is_tried_again,
                Key=self.key,
                UploadId=self.upload_id,
            )
        except StoreError as error:
            if not outcomes.is_forgotten(error):
                _log.warning("the parts of an unfinished upload are left: %s", error)


def _checksum(digest: bytes) -> Checksum:
    return {"ChecksumSHA256": base64.b64encode(digest).decode()}


def _sha256(section: Section) -> bytes:
    digest = hashlib.sha256(usedforsecurity=False)
    section.seek(0)
    while chunk := section.read(_CHUNK):
        digest.update(chunk)
    return digest.digest()
