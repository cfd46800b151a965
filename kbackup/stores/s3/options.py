"""The options of the S3 store, and what they come to: provider, addressing, proxy, parameters.

A request that creates an object carries encryption, access and lock, and the storage class if
there are records in it; one that reads an object, or writes a part of it, a customer's key alone.
Tags are a request of their own.  Lists, deletes and completions carry nothing.
Nothing here needs boto3.
"""

import base64
import binascii
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import quote, urlsplit

from kbackup.errors import ConfigurationError, StoreError
from kbackup.options import (
    DURATION_MOST_MS,
    Option,
    Suspicion,
    boolean,
    integer,
    milliseconds,
    names,
    optional_text,
    parsed,
    read_days,
    words,
)

if TYPE_CHECKING:
    from kbackup.stores.s3.requests import Requests

ANONYMOUS: Final = "anonymous"
"""Stands for requests that are not signed."""

STATIC: Final = "static"
"""Stands for ``aws.access.key.id`` and ``aws.secret.access.key``."""

ROLE: Final = "role"
"""Stands for the role that ``s3.credentials.provider.sts.role.arn`` names."""

_PROFILE: Final = (
    "assume-role", "sso", "shared-credentials-file", "login", "custom-process", "config-file",
)  # fmt: skip

_BY_CLASS: Final[dict[str, tuple[str, ...]]] = {
    "DefaultCredentialsProvider": (),
    "DefaultAWSCredentialsProviderChain": (),
    "EnvironmentVariableCredentialsProvider": ("env",),
    "ProfileCredentialsProvider": _PROFILE,
    "ProcessCredentialsProvider": ("custom-process",),
    "SsoCredentialsProvider": ("sso",),
    "InstanceProfileCredentialsProvider": ("iam-role",),
    "ContainerCredentialsProvider": ("container-role",),
    "EC2ContainerCredentialsProviderWrapper": ("container-role", "iam-role"),
    "WebIdentityTokenFileCredentialsProvider": ("assume-role-with-web-identity",),
    "WebIdentityTokenCredentialsProvider": ("assume-role-with-web-identity",),
    "AwsWebIdentityTokenCredentialsProvider": ("assume-role-with-web-identity",),
    "AwsAssumeRoleCredentialsProvider": (ROLE,),
    "StsAssumeRoleCredentialsProvider": (ROLE,),
    "STSAssumeRoleSessionCredentialsProvider": (ROLE,),
    "StaticCredentialsProvider": (STATIC,),
    "AWSStaticCredentialsProvider": (STATIC,),
    "AnonymousCredentialsProvider": (ANONYMOUS,),
}

_PACKAGES: Final = ("", "com.amazonaws.", "software.amazon.awssdk.", "io.confluent.connect.s3.auth")


def methods(class_name: str) -> tuple[str, ...]:
    """Return botocore's methods, or one of the words above, for a provider; none: the whole chain.

    `ValueError`: it is another class, which only a JVM could load.
    """
    package, _, name = class_name.rpartition(".")
    is_known = package == "" or package.startswith(_PACKAGES[1:])
    if name not in _BY_CLASS or not is_known:
        raise ValueError(
            "a Java class cannot be loaded; have credential_process in the AWS profile call a "
            "program that prints the credentials, set AWS_PROFILE, and remove it"
        )
    return _BY_CLASS[name]


def _one_of(*choices: str) -> Callable[[str], object]:
    def check(text: str) -> None:
        if text not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")

    return check


_encryption: Final = _one_of("AES256", "aws:kms", "aws:kms:dsse")
_canned_acl: Final = _one_of(
    "private", "public-read", "public-read-write", "authenticated-read", "aws-exec-read",
    "bucket-owner-read", "bucket-owner-full-control", "log-delivery-write",
)  # fmt: skip
_storage_class: Final = _one_of(
    "STANDARD", "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING",
    "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE", "EXPRESS_ONEZONE",
)  # fmt: skip


def _moment(text: str) -> datetime:
    """Return a time with its zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("expected a time, such as 2026-11-20T10:00:00Z") from error
    if found.tzinfo is None:
        raise ValueError("expected a time with its zone, such as 2026-11-20T10:00:00Z")
    return found


def as_of(options: Mapping[str, Any]) -> datetime | None:
    """Return the time of which the bucket is read; None for now."""
    text = AS_OF.of(options)
    return None if text is None else _moment(text)


def _customer_key(text: str) -> None:
    try:
        length = len(base64.b64decode(text, validate=True))
    except binascii.Error:
        length = 0
    if length != 32:
        raise ValueError("expected 32 bytes in base64")


def _never_fits(text: str) -> bool:
    """Whether S3 would refuse these tags beside the three of each object."""
    given = [pair.partition(":")[0].strip() for pair in text.split(",") if pair.strip()]
    every = ["startOffset", "endOffset", "recordCount", *given]
    return len(every) > 10 or len(set(every)) < len(every)


def _check_bucket(text: str) -> None:
    if re.search(r"[/\s'\"]", text):
        raise ValueError(
            "expected the bucket's name alone, such as backups; folders are topics.dir"
        )


BUCKET: Final = optional_text(
    "s3.bucket.name",
    "Bucket that holds the backup.",
    check=_check_bucket,
    aliases=("s3.bucket",),
    mistaken=("bucket",),
    short=("-b", "--bucket"),
    example="backups",
    is_place=True,
)
REGION: Final = optional_text(
    "s3.region",
    "Region of the bucket.  Default: from the AWS configuration, else us-west-2.",
    mistaken=("aws.region",),
    short=("--region",),
    example="eu-central-1",
)
PATH_STYLE: Final = boolean(
    "s3.path.style.access.enabled",
    "Put the bucket's name into the path, not into the host name.",
    True,
    aliases=("s3.path.style.access", "s3.path_style"),
)
PART_SIZE: Final = integer(
    "s3.part.size",
    "Size of an upload part in bytes.  Objects of up to two parts are uploaded in one request.",
    26_214_400,
    ge=5_242_880,
    le=2_147_483_647,
)
ATTEMPTS: Final = integer(
    "s3.part.retries",
    "Total attempts for one request to S3; 1 means no retry.",
    3,
    ge=1,
    le=2_147_483_647,
)
BACKOFF_MS: Final = milliseconds(
    "s3.retry.backoff.ms",
    "Milliseconds to wait before the second attempt; doubled for each further one.",
    200,
    ge=0,
    le=DURATION_MOST_MS,
)
ACCESS_KEY_ID: Final = optional_text(
    "aws.access.key.id",
    "Access key; ignored without its secret key; default: the AWS credential chain.",
    is_secret=True,
    mistaken=("aws.access.key",),
    ignored_without="aws.secret.access.key",
    aliases=("s3.credentials.provider.aws.access.key.id",),
)
SECRET_ACCESS_KEY: Final = optional_text(
    "aws.secret.access.key",
    "Secret key that belongs to the access key; ignored without it.",
    is_secret=True,
    mistaken=("aws.secret.key",),
    ignored_without="aws.access.key.id",
    aliases=("s3.credentials.provider.aws.secret.access.key",),
)

PROVIDER: Final = optional_text(
    "s3.credentials.provider.class",
    "Where credentials come from: the class name of a provider in the AWS SDK for Java, 1 or 2, "
    "which selects the same source here; default: the AWS credential chain.",
    check=methods,
    example="ProfileCredentialsProvider",
)
ROLE_ARN: Final = optional_text(
    "s3.credentials.provider.sts.role.arn",
    "Role to assume, using the other credentials.",
    aliases=("sts.role.arn",),
    example="arn:aws:iam::123456789012:role/backup",
)
ROLE_SESSION: Final = optional_text(
    "s3.credentials.provider.sts.role.session.name",
    "Session name for the assumed role.",
    aliases=("sts.role.session.name",),
    needs=("s3.credentials.provider.sts.role.arn",),
)
ROLE_EXTERNAL_ID: Final = optional_text(
    "s3.credentials.provider.sts.role.external.id",
    "External id that the role requires.",
    aliases=("sts.role.external.id",),
    needs=("s3.credentials.provider.sts.role.arn",),
)
ROLE_REGION: Final = optional_text(
    "s3.credentials.provider.sts.region",
    "Region of AWS STS, which grants the role; default: the bucket's.",
    aliases=("sts.region", "s3.credentials.provider.sts.aws.region"),
    needs=("s3.credentials.provider.sts.role.arn",),
)
PROXY_URL: Final = optional_text(
    "s3.proxy.url",
    "HTTP proxy for S3; default: HTTPS_PROXY or HTTP_PROXY.",
    example="http://proxy:3128",
)
PROXY_USER: Final = optional_text(
    "s3.proxy.user",
    "User name for the proxy.",
    aliases=("s3.proxy.username",),
    needs=("s3.proxy.url",),
)
PROXY_PASSWORD: Final = optional_text(
    "s3.proxy.password",
    "Password for the proxy.",
    is_secret=True,
    needs=("s3.proxy.url", "s3.proxy.user"),
)
ACCELERATE: Final = boolean(
    "s3.wan.mode",
    "Use the bucket's accelerate endpoint, which has the bucket in its host name.",
    False,
)
ENCRYPTION: Final = optional_text(
    "s3.ssea.name",
    "Server-side encryption to request: AES256, aws:kms or aws:kms:dsse; default: the bucket's.",
    check=_encryption,
    example="aws:kms",
)
_COPYING: Final = frozenset({"sink", "copy"})
"""The commands that store objects of records."""
_STORING: Final = _COPYING | {"reindex", "accept", "expire", "keys"}
"""The commands that store what belongs to a backup."""

KMS_KEY: Final = optional_text(
    "s3.sse.kms.key.id",
    "KMS key for aws:kms; default: the account's own key for S3.",
    commands=_STORING,
    needs=("s3.ssea.name",),
)
CUSTOMER_KEY: Final = optional_text(
    "s3.sse.customer.key",
    "Your own key, which S3 encrypts with but does not keep: 32 bytes in base64, with "
    "s3.ssea.name=AES256. Reading the objects needs the same key.",
    check=_customer_key,
    is_secret=True,
)
CANNED_ACL: Final = optional_text(
    "s3.acl.canned",
    "Access control list of each object.",
    commands=_STORING,
    check=_canned_acl,
    example="bucket-owner-full-control",
)
STORAGE_CLASS: Final = optional_text(
    "s3.storage.class",
    "Storage class of the backup's objects, such as STANDARD_IA or GLACIER_IR; the ledger, run "
    "records and locks stay in the bucket's usual one.",
    commands=_COPYING,
    check=_storage_class,
    example="STANDARD_IA",
)
LOCK_MODE: Final = optional_text(
    "s3.object.lock.mode",
    "Object Lock mode of each object except locks and success markers: GOVERNANCE or COMPLIANCE.",
    commands=_STORING,
    check=_one_of("GOVERNANCE", "COMPLIANCE"),
    needs=("s3.object.lock.days",),
    example="COMPLIANCE",
)
LOCK_DAYS: Final = parsed(
    "s3.object.lock.days",
    "For how many days Object Lock protects an object, from when it is stored.",
    "days",
    0,
    read_days,
    commands=_STORING,
    needs=("s3.object.lock.mode",),
    example="30",
)
_OF_A_TIME: Final = (
    "restore", "list", "cat", "query", "verify", "against", "status", "restore-status", "configs",
    "groups", "access", "config", "copy",
)  # fmt: skip
AS_OF: Final = optional_text(
    "s3.versions.as.of",
    "Read a versioned bucket as it was at this time.",
    check=_moment,
    commands=frozenset(_OF_A_TIME),
    example="2026-11-20T10:00:00Z",
)
TAGGING: Final = boolean(
    "s3.object.tagging",
    "Tag each object with startOffset, endOffset and recordCount, once it is stored.",
    False,
    commands=_COPYING,
)
TAGS: Final = names(
    "s3.object.tagging.key.value.pairs",
    "More tags, as name:value.",
    commands=_COPYING,
    example="team:orders",
    suspicions=(
        Suspicion(
            lambda text: any(pair.count(":") > 1 for pair in text.split(",")),
            "the value is all that follows the first colon; the connector ends it at the second",
            "choose a value without a colon",
        ),
        Suspicion(
            _never_fits,
            "S3 takes ten tags with ten names, and startOffset, endOffset and recordCount are "
            "three: no object could be tagged",
            "name seven others at most, each once",
        ),
    ),
)
TAGGING_ERROR: Final = words(
    "s3.object.behavior.on.tagging.error",
    "What to do when an object cannot be tagged: ignore warns, fail ends its partition.",
    ("ignore", "fail"),
    "ignore",
    any_case=True,
    commands=_COPYING,
)

OPTIONS: Final = tuple(each for each in tuple(vars().values()) if isinstance(each, Option))
"""All that are declared above."""


def addressing_style(
    options: Mapping[str, Any], endpoint_url: str | None = None
) -> Literal["path", "virtual"]:
    """Return where the bucket's name stands: in the path, or in the host name.

    Raises:
        ConfigurationError: If it would have to be in both, or the server is not Amazon's and would
            have to be.
    """
    if not ACCELERATE.of(options):
        return "path" if PATH_STYLE.of(options) else "virtual"
    if endpoint_url is not None:
        raise ACCELERATE.refusal(
            "store.url names a server, and only Amazon's own have accelerate endpoints",
            f"set {ACCELERATE.name}=false, or remove store.url",
        )
    if options.get(PATH_STYLE.name):
        why = "an accelerate endpoint has the bucket in its host name"
        raise ACCELERATE.refusal(why, f"set {PATH_STYLE.name}=false")
    return "virtual"


def proxies_of(options: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the proxy by the scheme of what is asked; `ConfigurationError` if it is no URL."""
    text = PROXY_URL.of(options)
    if text is None:
        return None
    wrong = ConfigurationError(
        f"{PROXY_URL.name} is not the URL of a proxy",
        "expected http://HOST:PORT",
        "correct it",
        property=PROXY_URL.name,
    )
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        _ = url.port
    except ValueError as error:  # such as brackets around what is no address
        raise wrong from error
    if url.scheme not in ("http", "https") or not url.hostname:
        raise wrong
    own, _, place = url.netloc.rpartition("@")
    user, password = PROXY_USER.of(options), PROXY_PASSWORD.of(options)
    if user is not None:
        own = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    found = f"{url.scheme}://{own}@{place}" if own else f"{url.scheme}://{place}"
    return {"http": found, "https": found}


def chosen_provider(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what `methods` says of the provider that was named; empty for the whole chain.

    Raises:
        ConfigurationError: If it lacks what it needs: no other source takes its place.
    """
    found = methods(PROVIDER.of(options) or "DefaultCredentialsProvider")
    keys = ACCESS_KEY_ID.of(options), SECRET_ACCESS_KEY.of(options)
    if found == (STATIC,) and None in keys:
        raise ConfigurationError(
            "there are no credentials",
            f"{PROVIDER.name} requires static ones",
            f"set {ACCESS_KEY_ID.name} and {SECRET_ACCESS_KEY.name}",
            property=ACCESS_KEY_ID.name,
        )
    if found == (ROLE,) and ROLE_ARN.of(options) is None:
        raise ConfigurationError(
            "there are no credentials",
            f"{PROVIDER.name} requires a role",
            f"set {ROLE_ARN.name}",
            property=ROLE_ARN.name,
        )
    return found


_log: Final = logging.getLogger(__name__)

_CREATING: Final = frozenset({"put_object", "copy_object", "create_multipart_upload"})
_KEYED: Final = _CREATING | {"upload_part", "upload_part_copy", "get_object", "head_object"}
"""What needs a customer's key with each request."""

_PASSING: Final = re.compile(r"(?:^|/)_kbackup/(?:locks/|success/|probe-)")
"""Begins the keys of what is written again and again, or deleted at once."""

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
        lock: The mode and the days of Object Lock; None for what the bucket says.
        tags: Further tags; None where objects are not tagged.
        must_tag: An object that cannot be tagged is an error.
    """

    creating: Mapping[str, Any]
    keyed: Mapping[str, Any]
    storage_class: str | None
    lock: tuple[str, int] | None
    tags: tuple[tuple[str, str], ...] | None
    must_tag: bool

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Read the store's options; `ConfigurationError` if they cannot go together."""
        encryption, key = ENCRYPTION.of(options), CUSTOMER_KEY.of(options)
        kms_key, acl = KMS_KEY.of(options), CANNED_ACL.of(options)
        creating: dict[str, Any] = {} if acl is None else {"ACL": acl}
        if kms_key is not None and encryption in (None, "AES256"):
            raise _combination(KMS_KEY, "aws:kms")
        if key is not None and encryption not in (None, "AES256"):
            raise _combination(CUSTOMER_KEY, "AES256")
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
            _lock(options),
            pairs if TAGGING.of(options) else None,
            TAGGING_ERROR.of(options) == "fail",
        )

    def params(
        self, operation: str, key: str, metadata: Mapping[str, str] | None
    ) -> dict[str, Any]:
        """Return what a request carries, of which client's method and for which object."""
        found = dict(self.keyed) if operation in _KEYED else {}
        if operation in _CREATING:
            found |= self.creating
            if self.storage_class is not None and "first-offset" in (metadata or {}):
                found["StorageClass"] = self.storage_class
            if self.lock is not None and _PASSING.search(key) is None:
                mode, days = self.lock
                until = datetime.fromtimestamp(time.time(), UTC) + timedelta(days=days)
                found |= {"ObjectLockMode": mode, "ObjectLockRetainUntilDate": until}
                if operation == "put_object":  # S3 locks nothing that comes without a checksum
                    found["ChecksumAlgorithm"] = "SHA256"
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


def _lock(options: Mapping[str, Any]) -> tuple[str, int] | None:
    mode, days = LOCK_MODE.of(options), LOCK_DAYS.of(options)
    return None if mode is None or not days else (mode, days)


def _combination(option: Option[Any], encryption: str) -> ConfigurationError:
    needed = f"{ENCRYPTION.name}={encryption}"
    return option.refusal(f"it works only with {needed}", f"set {needed}, or remove it")


def _pair(text: str) -> tuple[str, str]:
    """Return a tag; what stands after the first colon is its value, further colons too."""
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise ConfigurationError(
            f"{TAGS.name}: {text!r} is not a tag", "expected name:value", "correct it",
            property=TAGS.name,
        )  # fmt: skip
    return name, value
