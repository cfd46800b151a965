"""A key of AWS KMS as a recipient: it never leaves KMS, which is asked to wrap and to unwrap."""

import re
from dataclasses import dataclass, field
from typing import Any, Final

from kbackup.errors import ConfigurationError, NoKeyError, StoreError

PREFIXES: Final = ("arn:", "alias/")
"""What the name of a key of KMS begins with."""

_NAME: Final = re.compile(r"arn:[^:]+:kms:[a-z0-9-]+:\d+:(key|alias)/.+|alias/.+", re.ASCII)

_CONTEXT: Final = "kbackup"
"""The name in the encryption context under which stands what a wrapped key is about."""

_ANOTHER: Final = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})
_REFUSED: Final = frozenset(
    {"AccessDeniedException", "NotFoundException", "DisabledException", "KMSInvalidStateException"}
)


@dataclass(frozen=True, slots=True)
class KmsKey:
    """A symmetric key of KMS.

    Attributes:
        name: Its ARN, or the alias that it was given by.
    """

    name: str
    _clients: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the name.

        Raises:
            ConfigurationError: If it is none.
        """
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name[:80]!r} is no key of KMS", "expected an ARN, or alias/NAME"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return KmsKey, (self.name,)

    def wrap(self, key: bytes, about: bytes) -> bytes:
        """Have KMS encrypt *key*: `Recipient.wrap`.

        Raises:
            NoKeyError: If it must not be used, or is not there.
            StoreError: If KMS does not answer.
        """
        answer = self._ask("encrypt", about, Plaintext=key)
        found: bytes = answer["CiphertextBlob"]
        return found

    def unwrap(self, wrapped: bytes, about: bytes) -> bytes:
        """Have KMS decrypt what it has encrypted: `Opener.unwrap`.

        Raises:
            NoKeyError: If it must not be used, or is not there.
            StoreError: If KMS does not answer.
            ValueError: If it is wrapped under another key.
        """
        found: bytes = self._ask("decrypt", about, CiphertextBlob=wrapped)["Plaintext"]
        return found

    def _ask(self, action: str, about: bytes, **more: bytes) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415  (slow)

        what = f"kms:{action.capitalize()} with {self.name}"
        context = {_CONTEXT: about.decode()}
        try:
            return getattr(self._client(), action)(
                KeyId=self.name, EncryptionContext=context, **more
            )
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in _ANOTHER:
                raise ValueError("it is wrapped under another key of KMS") from error
            if code in _REFUSED:
                do = "allow kms:Encrypt to sinks and kms:Decrypt to readers, or name another key"
                raise NoKeyError(what, str(error), do) from error
            raise StoreError(what, str(error), "run again") from error
        except BotoCoreError as error:
            raise StoreError(what, str(error), "check region, endpoint and network") from error

    def _client(self) -> Any:
        from botocore.config import Config  # noqa: PLC0415
        from botocore.session import Session  # noqa: PLC0415

        if not self._clients:
            region = self.name.split(":")[3] if self.name.startswith("arn:") else None
            config = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 5})
            self._clients.append(Session().create_client("kms", region_name=region, config=config))
        return self._clients[0]
