"""Sending one body: at once or in parts, each with its checksum."""

import base64
import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from kbackup.errors import StoreError
from kbackup.spool import Section
from kbackup.stores import ObjectHead
from kbackup.stores.s3 import outcomes

if TYPE_CHECKING:
    from kbackup.stores.s3.requests import Requests

_log: Final = logging.getLogger(__name__)

MAX_PARTS: Final = 10_000
"""S3's limit; parts grow where a body would need more."""

_CHUNK: Final = 1 << 20


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
        condition = self._condition() if features.conditional else {}
        if self.size <= part_bytes:
            digest = bytes.fromhex(self.sha256)
            requests.send(
                "put_object",
                self.key,
                body=self.body,
                Key=self.key,
                ContentLength=self.size,
                Metadata=self.metadata,
                **(_checksum(digest) if features.checksums else {}),
                **condition,
            )
        else:
            self._send_parts(requests, part_bytes, features, condition)

    def _condition(self) -> dict[str, Any]:
        if self.if_match is not None:
            return {"IfMatch": f'"{self.if_match}"'}
        return {"IfNoneMatch": "*"} if self.if_absent else {}

    def _send_parts(
        self, requests: "Requests", part_bytes: int, features: Features, condition: dict[str, Any]
    ) -> None:
        kind: dict[str, Any] = {"ChecksumAlgorithm": "SHA256"} if features.checksums else {}
        created = requests.send(
            "create_multipart_upload",
            self.key,
            Key=self.key,
            Metadata=self.metadata,
            **kind,
        )
        one: dict[str, Any] = {"Key": self.key, "UploadId": created["UploadId"]}
        length = max(part_bytes, -(-self.size // MAX_PARTS))
        try:
            parts = [
                _send_part(
                    requests,
                    one,
                    number,
                    Section(self.body, start, min(length, self.size - start)),
                    features,
                )
                for number, start in enumerate(range(0, self.size, length), 1)
            ]
            _complete(requests, one, parts, condition)
        except BaseException as error:
            _abort(requests, one, is_tried_again=not outcomes.is_worn_out(error))
            raise


def _complete(
    requests: "Requests",
    one: dict[str, Any],
    parts: list[dict[str, Any]],
    condition: dict[str, Any],
) -> None:
    done = requests.send(
        "complete_multipart_upload",
        one["Key"],
        MultipartUpload={"Parts": parts},
        **one,
        **condition,
    )
    if not done.get("ETag"):
        what = f"s3:PutObject on {requests.resource(one['Key'])}"
        raise StoreError(what, "the upload was completed without an ETag", "run again")


def _send_part(
    requests: "Requests", one: dict[str, Any], number: int, section: Section, features: Features
) -> dict[str, Any]:
    checksum = _checksum(_sha256(section)) if features.checksums else {}
    answer = requests.send(
        "upload_part",
        f"{one['Key']} part {number}",
        body=section,
        PartNumber=number,
        ContentLength=section.size,
        **one,
        **checksum,
    )
    return {"PartNumber": number, "ETag": answer["ETag"], **checksum}


def _abort(requests: "Requests", one: dict[str, Any], *, is_tried_again: bool) -> None:
    """Throw an upload's parts away, if that can be done; nobody sees them in any case.

    Asked once where a part has spent its budget: the same server is not worth another one.
    """
    try:
        requests.send("abort_multipart_upload", one["Key"], is_tried_again=is_tried_again, **one)
    except StoreError as error:
        if not outcomes.is_forgotten(error):
            _log.warning("the parts of an unfinished upload are left: %s", error)


def _checksum(digest: bytes) -> dict[str, Any]:
    return {"ChecksumSHA256": base64.b64encode(digest).decode()}


def _sha256(section: Section) -> bytes:
    digest = hashlib.sha256(usedforsecurity=False)
    section.seek(0)
    while chunk := section.read(_CHUNK):
        digest.update(chunk)
    return digest.digest()
