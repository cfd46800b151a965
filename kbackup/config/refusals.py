"""What a connector's file may ask for and this version cannot do: refused by name.

A row is a property, the values that would change what is written or read, and why not.  Formats,
converters and partitioners are not here: whether there is one, `kbackup.plugins` knows.

Source of names, defaults and effects: kafka-connect-storage-cloud 87eb7d39,
``S3SinkConnectorConfig``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kbackup.config.property import READING, SINK

_BOTH: Final = SINK | READING
_NOT_YET: Final = "this version of kbackup cannot do it"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One row.

    Attributes:
        name: The property; one that ends in a dot stands for all that begin so.
        applies: Whether a value, blanks dropped, asks for what cannot be done.
        why: The reason.
        do: What to do instead.
        commands: For which commands; the others do not use the property.
    """

    name: str
    applies: Callable[[str], bool]
    why: str
    do: str
    commands: frozenset[str] = _BOTH


def _given(text: str) -> bool:
    return bool(text)


def _true(text: str) -> bool:
    return text.lower() not in ("false", "")


def _other_than(*harmless: str) -> Callable[[str], bool]:
    return lambda text: text not in harmless


def _any_case(*words: str) -> Callable[[str], bool]:
    return lambda text: text.lower() in words


def _custom_credentials(text: str) -> bool:
    """A provider other than the AWS SDK's default chain, in any of its versions."""
    return bool(text) and not text.endswith(
        ("DefaultCredentialsProvider", "DefaultAWSCredentialsProviderChain")
    )


REFUSALS: Final = (
    Refusal(
        "behavior.on.null.values",
        _any_case("write"),
        "this version writes no tombstone files in the connectors' layout",
        "set it to ignore or fail; whole records keep tombstones: leave out format.class",
        SINK,
    ),
    Refusal(
        "s3.ssea.name",
        _given,
        "this version sends no encryption header; the bucket's default encryption applies "
        "(the connector sends none either for aws:kms without s3.sse.kms.key.id)",
        "set default encryption on the bucket, and remove it",
        SINK,
    ),
    Refusal(
        "s3.sse.customer.key",
        _given,
        "this version has no encryption with a customer's key",
        "use the bucket's default encryption, and remove it",
    ),
    Refusal(
        "s3.sse.kms.key.id",
        _given,
        "this version sends no encryption header; the bucket's default encryption applies",
        "set the key in the bucket's default encryption, and remove it",
        SINK,
    ),
    Refusal(
        "s3.acl.canned",
        _given,
        "this version sets no access control list",
        "use the bucket's policy, and remove it",
        SINK,
    ),
    Refusal(
        "s3.wan.mode",
        _true,
        "this version has no accelerate endpoint",
        "set it to false, or set store.url to the accelerate endpoint",
    ),
    Refusal("s3.proxy.", _given, _NOT_YET, "set HTTPS_PROXY, and remove it"),
    Refusal(
        "s3.object.tagging",
        _true,
        "this version sets no tags; first and last offset and the number of records are in each "
        "object's user metadata",
        "set it to false",
        SINK,
    ),
    Refusal(
        "s3.credentials.provider.class",
        _custom_credentials,
        "a Java class cannot be loaded",
        "use the AWS credential chain: AWS_PROFILE with role_arn, AWS_WEB_IDENTITY_TOKEN_FILE, "
        "or aws.access.key.id; then remove it",
    ),
    Refusal(
        "mode",
        _other_than("RESTORE_BACKUP", ""),
        "this version restores backups, not objects of any name",
        "set it to RESTORE_BACKUP",
        READING,
    ),
    Refusal(
        "filename.regex",
        _other_than(r"(.+)\+(\d+)\+.+$", ""),
        "names are read by directory.delim and file.delim",
        "set file.delim, and remove it",
        READING,
    ),
    Refusal(
        "format.json.schema.enable",
        _true,
        "this version reads JSON without schemas",
        "set it to false",
        READING,
    ),
    Refusal(
        "kafka.api.key",
        _given,
        "a managed connector's key; this is not one",
        "set security.protocol=SASL_SSL, sasl.mechanism=PLAIN, sasl.username and sasl.password",
    ),
    Refusal(
        "kafka.api.secret",
        _given,
        "a managed connector's secret; this is not one",
        "set sasl.password",
    ),
)

_BY_NAME: Final = {refusal.name: refusal for refusal in REFUSALS}
_PREFIXES: Final = tuple(name for name in _BY_NAME if name.endswith("."))


def find(name: str) -> Refusal | None:
    """Return the row for property *name*, None where there is none."""
    found = _BY_NAME.get(name)
    if found is None:
        prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), None)
        found = None if prefix is None else _BY_NAME[prefix]
    return found
