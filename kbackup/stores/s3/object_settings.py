"""What each request carries besides the body: encryption, access, storage class, tags."""

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from kbackup.errors import ConfigurationError, StoreError
from kbackup.stores.s3.options import (
    CANNED_ACL,
    CUSTOMER_KEY,
    ENCRYPTION,
    KMS_KEY,
    STORAGE_CLASS,
    TAGGING,
    TAGGING_ERROR,
    TAGS,
)

if TYPE_CHECKING:
    from kbackup.stores.s3.requests import Requests

_log: Final = logging.getLogger(__name__)

_CREATING: Final = frozenset({"put_object", "create_multipart_upload"})
_KEYED: Final = _CREATING | {"upload_part", "get_object", "head_object"}
"""What needs a customer's key with each request."""

_OFFSETS: Final = (
    ("startOffset", "first-offset"),
    ("endOffset", "last-offset"),
    ("recordCount", "records"),
)
"""The connectors' tags, and the facts that they are made of."""


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """How objects are stored.

    Attributes:
        creating: Parameters of the requests that create an object.
        keyed: Parameters of all requests that read or write a body or its headers.
        storage_class: Of the backup's objects; None for the bucket's usual one.
        tags: Further tags; None where objects are not tagged.
        must_tag: An object that cannot be tagged is an error.
    """

    creating: Mapping[str, Any]
    keyed: Mapping[str, Any]
    storage_class: str | None
    tags: tuple[tuple[str, str], ...] | None
    must_tag: bool

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Read them from the store's options.

        Raises:
            ConfigurationError: If they cannot go together.
        """
        encryption, key = ENCRYPTION.of(options), CUSTOMER_KEY.of(options)
        kms_key, acl = KMS_KEY.of(options), CANNED_ACL.of(options)
        creating: dict[str, Any] = {} if acl is None else {"ACL": acl}
        if kms_key is not None and encryption in (None, "AES256"):
            raise _combination(KMS_KEY.name, "aws:kms")
        if key is not None and encryption not in (None, "AES256"):
            raise _combination(CUSTOMER_KEY.name, "AES256")
        keyed = {}
        if key is not None:
            keyed = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": base64.b64decode(key)}
        elif encryption is not None:
            creating["ServerSideEncryption"] = encryption
            if kms_key is not None:
                creating["SSEKMSKeyId"] = kms_key
        pairs = tuple(_pair(text) for text in TAGS.of(options))
        return cls(
            creating,
            keyed,
            STORAGE_CLASS.of(options),
            pairs if TAGGING.of(options) else None,
            TAGGING_ERROR.of(options) == "fail",
        )

    def params(self, operation: str, metadata: Mapping[str, str] | None) -> dict[str, Any]:
        """Return what a request carries.

        Args:
            operation: The client's method.
            metadata: The object's facts, of a request that has them.
        """
        found = dict(self.keyed) if operation in _KEYED else {}
        if operation in _CREATING:
            found |= self.creating
            if self.storage_class is not None and "first-offset" in (metadata or {}):
                found["StorageClass"] = self.storage_class
        return found

    def tag(self, requests: "Requests", key: str, metadata: Mapping[str, str]) -> None:
        """Tag an object of the backup that has been stored, if tags are asked for.

        Raises:
            StoreError: If it cannot be tagged, and that is an error.
        """
        if self.tags is None or "first-offset" not in metadata:
            return
        tags = [(name, metadata[fact]) for name, fact in _OFFSETS if fact in metadata]
        tag_set = [{"Key": name, "Value": text} for name, text in (*tags, *self.tags)]
        try:
            requests.send("put_object_tagging", key, Key=key, Tagging={"TagSet": tag_set})
        except StoreError as error:
            if self.must_tag:
                raise
            _log.warning("%s; it is stored, without tags", error)


def _combination(name: str, encryption: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name} cannot be used",
        f"it works only with {ENCRYPTION.name}={encryption}",
        f"set {ENCRYPTION.name}={encryption}, or remove it",
        property=name,
    )


def _pair(text: str) -> tuple[str, str]:
    """Return a tag; what stands after the first colon is its value, further colons too."""
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise ConfigurationError(
            f"{TAGS.name}: {text!r} is not a tag", "expected name:value", "correct it",
            property=TAGS.name,
        )  # fmt: skip
    return name, value
