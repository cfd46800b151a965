"""Wrap and unwrap keys by what can decrypt a backup: key pairs, passphrases, keys of KMS."""

import base64
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from kbackup import files
from kbackup.errors import ConfigurationError, KbackupError, NoKeyError, RefusedError, StoreError
from kbackup.stores.encrypted import KEY_BYTES

PASSPHRASE: Final = "passphrase:"  # noqa: S105  (a prefix)
"""What the name of a recipient begins with who knows a passphrase; its salt follows."""

_SCRYPT_N: Final = 2**17
_SCRYPT_R: Final = 8
_NONCE_BYTES: Final = 12

_PUBLIC: Final = "PUBLIC KEY"
_SHOW_PUBLIC: Final = "openssl pkey -in KEY -pubout shows it"

_SHOWN: Final = 16
"""Characters that are shown of another key: in private ones of X25519 they are always the same."""


class Recipient(Protocol):
    """Someone for whom keys are wrapped."""

    @property
    def name(self) -> str:
        """Its name in rows: the same for the same recipient."""
        ...

    def wrap(self, key: bytes, about: bytes) -> bytes:
        """Return *key* as nobody else can read it, bound to what it is *about*."""
        ...


class Opener(Recipient, Protocol):
    """A recipient that is here: plain data, which may cross a process."""

    def unwrap(self, wrapped: bytes, about: bytes) -> bytes:
        """Return what `wrap` was given.

        Raises:
            ValueError: If it is for somebody else, or about something else.
        """
        ...


def _suite() -> Any:
    from cryptography.hazmat.primitives import hpke  # noqa: PLC0415  (an extra)

    return hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An X25519 key, whose owner is elsewhere; its *name* is its PEM form without the marks."""

    name: str

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Read the one line of a PEM file's public key; `ConfigurationError` if it is none."""
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_der_public_key  # noqa: PLC0415

        shown = text[:80]
        try:
            der = base64.b64decode(text, validate=True)
            shown = f"{text[:_SHOWN]}..." if text else ""  # it may be a private key
            found: Any = load_der_public_key(der)
            x25519.X25519PrivateKey.generate().exchange(found)  # with some points nobody can
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigurationError(
                f"{shown!r} is not a recipient",
                "it is not the line between BEGIN and END of an X25519 public key",
                _SHOW_PUBLIC,
            ) from None
        return cls(text)

    def wrap(self, key: bytes, about: bytes) -> bytes:
        """Encrypt by HPKE: `Recipient.wrap`."""
        from cryptography.hazmat.primitives.serialization import load_der_public_key  # noqa: PLC0415

        public = load_der_public_key(base64.b64decode(self.name))
        found: bytes = _suite().encrypt(key, public, info=about)
        return found


@dataclass(frozen=True, slots=True)
class PrivateKey(PublicKey):
    """An X25519 key that is here."""

    secret: bytes = field(repr=False, default=b"")

    @classmethod
    def read(cls, path: Path) -> "PrivateKey":
        """Read a PEM file that its owner alone may read.

        Raises:
            ConfigurationError: If it holds no such key.
            RefusedError: If others may read it.
        """
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415

        do = f"give a recipient's; openssl pkey -in {path} -out OTHER removes a passphrase"
        pem = _read(path, "this key")
        try:
            found = forms.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            why = "it is not a PEM file with a key without a passphrase"
            raise ConfigurationError(f"{path} holds no usable key", why, do) from None
        if not isinstance(found, x25519.X25519PrivateKey):
            raise ConfigurationError(f"{path} holds no usable key", "it is not an X25519 key", do)
        public = found.public_key().public_bytes(
            forms.Encoding.DER, forms.PublicFormat.SubjectPublicKeyInfo
        )
        return cls(base64.b64encode(public).decode(), found.private_bytes_raw())

    def unwrap(self, wrapped: bytes, about: bytes) -> bytes:
        """Decrypt by HPKE: `Opener.unwrap`."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415

        private = x25519.X25519PrivateKey.from_private_bytes(self.secret)
        try:
            found: bytes = _suite().decrypt(wrapped, private, info=about)
        except InvalidTag:
            raise ValueError("it is wrapped for another key") from None
        return found


@dataclass(frozen=True, slots=True)
class Passphrase:
    """Who knows a passphrase; its *name* is `PASSPHRASE` and a salt."""

    name: str
    secret: bytes = field(repr=False, default=b"")

    @classmethod
    def of(cls, words: bytes, name: str | None = None) -> "Passphrase":
        """Derive the key of a passphrase by scrypt: a quarter of a second, and 128 MiB.

        *name* is that of a recipient that has been there before; None for a new one.
        """
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt  # noqa: PLC0415

        name = name or PASSPHRASE + secrets.token_hex(16)
        salt = name.removeprefix(PASSPHRASE).encode()
        return cls(name, Scrypt(salt, KEY_BYTES, _SCRYPT_N, _SCRYPT_R, 1).derive(words))

    def wrap(self, key: bytes, about: bytes) -> bytes:
        """Encrypt by AES-GCM: `Recipient.wrap`."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self.secret).encrypt(nonce, key, about)

    def unwrap(self, wrapped: bytes, about: bytes) -> bytes:
        """Decrypt by AES-GCM: `Opener.unwrap`."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        try:
            return AESGCM(self.secret).decrypt(
                wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], about
            )
        except InvalidTag:
            raise ValueError("it is wrapped under another passphrase") from None


_KMS_NAME: Final = re.compile(r"arn:[^:]+:kms:[a-z0-9-]+:\d+:(key|alias)/.+|alias/.+", re.ASCII)

_KMS_CONTEXT: Final = "kbackup"
"""The name in the encryption context under which stands what a wrapped key is about."""

_KMS_ANOTHER: Final = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})
_KMS_REFUSED: Final = frozenset(
    {"AccessDeniedException", "NotFoundException", "DisabledException", "KMSInvalidStateException"}
)


@dataclass(frozen=True, slots=True)
class KmsKey:
    """A symmetric key of AWS KMS, named by ARN or alias.  It never leaves KMS, which is asked."""

    name: str
    _clients: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _KMS_NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name[:80]!r} is not a KMS key", "expected an ARN, or alias/NAME"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return KmsKey, (self.name,)

    def wrap(self, key: bytes, about: bytes) -> bytes:
        """Have KMS encrypt *key*: `Recipient.wrap`.

        `NoKeyError`: the key must not be used, or is not there.  `StoreError`: KMS does not answer.
        """
        answer = self._ask("encrypt", about, Plaintext=key)
        found: bytes = answer["CiphertextBlob"]
        return found

    def unwrap(self, wrapped: bytes, about: bytes) -> bytes:
        """Have KMS decrypt what it has encrypted: `Opener.unwrap`; it raises as `wrap` too."""
        found: bytes = self._ask("decrypt", about, CiphertextBlob=wrapped)["Plaintext"]
        return found

    def _ask(self, action: str, about: bytes, **more: bytes) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415  (slow)

        what = f"kms:{action.capitalize()} with {self.name}"
        context = {_KMS_CONTEXT: about.decode()}
        try:
            return getattr(self._client(), action)(
                KeyId=self.name, EncryptionContext=context, **more
            )
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in _KMS_ANOTHER:
                raise ValueError("it is wrapped under another KMS key") from error
            if code in _KMS_REFUSED:
                do = "allow kms:Encrypt to sinks and kms:Decrypt to readers, or name another key"
                raise NoKeyError(what, str(error), do) from error
            raise StoreError(what, str(error), "run the command again") from error
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


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """What was said about encryption.

    *recipients_file* is a PEM file with more of them, *identity_file* one with a private key, and
    *own_file* has the backup's own key.  If it *takes_plain*, the backup holds objects that are not
    encrypted.
    """

    recipients: tuple[str, ...] = ()
    recipients_file: str | None = None
    identity_file: str | None = None
    passphrase_file: str | None = None
    kms_key: str | None = None
    own_file: str | None = None
    takes_plain: bool = False

    @property
    def is_given(self) -> bool:
        """Whether anything was said of keys."""
        return self != KeyOptions(takes_plain=self.takes_plain)

    def public_keys(self) -> Iterator[PublicKey]:
        """Yield the recipients given by public keys; `ConfigurationError` if one is none."""
        texts = [*self.recipients]
        if self.recipients_file is not None:
            texts += _pem_bodies(Path(self.recipients_file))
        for text in dict.fromkeys(texts):
            yield PublicKey.parse(text)

    def others(self) -> Iterator[Recipient]:
        """Yield the recipients that encrypt with a public key, or elsewhere."""
        yield from self.public_keys()
        if self.kms_key is not None:
            yield KmsKey(self.kms_key)

    def private_key(self) -> PrivateKey | None:
        """Return the private key, if one is given; it raises as `PrivateKey.read`."""
        return None if self.identity_file is None else PrivateKey.read(Path(self.identity_file))

    def passphrase(self) -> bytes | None:
        """Return the passphrase, if one is given, without the end of its line.

        `ConfigurationError`: it cannot be read.  `RefusedError`: others may read it.
        """
        if self.passphrase_file is None:
            return None
        words = _read(Path(self.passphrase_file), "this passphrase").rstrip(b"\r\n")
        if not words:
            do = "write it there, on one line"
            what = f"{self.passphrase_file} holds no passphrase"
            raise ConfigurationError(what, "it is empty", do)
        return words

    def unusable(self) -> Iterator[KbackupError]:
        """Yield what is wrong with each of them; the backup's own key may have yet to be made."""
        asked: tuple[Callable[[], object], ...] = (
            lambda: [*self.others()],
            self.private_key,
            self.passphrase,
            lambda: None if self.own_file is None else read_own(Path(self.own_file)),
        )
        for ask in asked:
            try:
                ask()
            except (ConfigurationError, RefusedError) as error:
                yield error


def by_name(name: str) -> Recipient:
    """Return the recipient of a row, who needs no secret to wrap keys for."""
    return KmsKey(name) if name.startswith(("arn:", "alias/")) else PublicKey.parse(name)


def named(text: str) -> Iterator[Recipient]:
    """Yield who *text* names: a public key, a PEM file of some, a passphrase, a key of KMS.

    A passphrase is written ``passphrase:FILE``.  `ConfigurationError`: it is none of these.
    `RefusedError`: others may read a passphrase.
    """
    if text.startswith(PASSPHRASE):
        if not (path := text.removeprefix(PASSPHRASE)):
            raise ConfigurationError(f"{text} names no file", "", f"write {PASSPHRASE}FILE")
        words = KeyOptions(passphrase_file=path).passphrase()
        if words is not None:
            yield Passphrase.of(words)
    elif os.path.isfile(text):  # noqa: PTH113  (of a text that is no path: False)
        yield from KeyOptions(recipients_file=text).public_keys()
    else:
        try:
            yield by_name(text)
        except ConfigurationError as error:
            why = f"there is no file of that name, and {error.why}"
            raise ConfigurationError(error.what, why, error.do) from None


def _read(path: Path, what: str) -> bytes:
    try:
        return files.read_private(path, what)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ConfigurationError:
    do = "name a file that the user who runs kbackup can read"
    return ConfigurationError(f"{path} cannot be read", error.strerror or str(error), do)


def _pem_bodies(path: Path) -> list[str]:
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConfigurationError(f"{path} cannot be read", why) from error
    bodies, lines, is_in = list[str](), list[str](), False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("-----BEGIN"):
            if (label := line.strip("-").removeprefix("BEGIN ")) != _PUBLIC:
                why = "recipients are public keys"
                raise ConfigurationError(f"{path} holds a {label}", why, _SHOW_PUBLIC)
            if is_in:
                break
            lines, is_in = [], True
        elif line.startswith("-----END"):
            bodies.append("".join(lines))
            is_in = False
        elif is_in:
            lines.append(line)
    if is_in:
        why = f"block {len(bodies) + 1} has no END line"
        raise ConfigurationError(
            f"{path} is cut short", why, "write its public keys again, all of them"
        )
    if not bodies:
        do = "put public keys into it as PEM blocks, one after the other"
        raise ConfigurationError(f"{path} names no recipient", "it holds no PEM block", do)
    return bodies


def read_own(path: Path) -> bytes | None:
    """Return a backup's own key; None where there is no such file.

    `ConfigurationError`: it holds none.  `RefusedError`: others than its owner may read it.
    """
    try:
        own = bytes.fromhex(files.read_private(path, "this key").decode())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError:
        own = b""
    if len(own) != KEY_BYTES:
        do = "put the file there that the backup's first run made"
        raise ConfigurationError(f"{path} holds no backup key", "it is not 64 hex digits", do)
    return own


def write_own(path: Path, own: bytes | None = None) -> bytes:
    """Write a backup's own key, a new one unless it is given, to a file that is not there yet.

    `ConfigurationError`: it cannot be written.
    """
    own = own or secrets.token_bytes(KEY_BYTES)
    try:
        files.write_private(path, f"{own.hex()}\n".encode())
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigurationError(f"{path} cannot be written", why) from error
    return own
