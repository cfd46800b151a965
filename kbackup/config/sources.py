"""Merge options, variables and files to one value for each property, with where it came from.

An option overrides a variable, a variable a file (the last file wins), and a file the default.
Names are as given, except for aliases: `known` knows what they mean.

Kafka's own providers of such values, and those of AWS, work under any alias that
``config.providers`` gives them.

Source: ``org.apache.kafka.common.config.ConfigTransformer`` and the providers beside it;
``com.amazonaws.kafka.config.providers``, ``SecretsManagerConfigProvider`` and
``SsmParamStoreConfigProvider``.

Only values of configuration files and of our variables are resolved, never anything read from S3
or Kafka; the result is not resolved again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from kbackup.config import files, foreign_names
from kbackup.config.issues import (
    MASK,
    ConfigIssue,
    Given,
    Origin,
    Value,
    error,
    is_secret,
    short,
    warning,
)
from kbackup.config.property import VARIABLES, read_pairs, variable
from kbackup.config.settings import ALIASES, BY_NAME, by_attribute
from kbackup.errors import ConfigurationError
from kbackup.options import read_names

_REFERENCE: Final = re.compile(r"\$\{([\w.-]+):([^{}]*)\}")
_BARE: Final = re.compile(r"(?<![\w$\\])\$[A-Za-z_]\w*|<[A-Za-z][\w .-]*>|\{\{[^{}]*\}\}", re.ASCII)
_BRACED: Final = re.compile(r"\$\{[^{}]*\}")
_VARIABLE: Final = re.compile(
    r"\$[A-Z][A-Z0-9_]+|\$\{\w+\}|<[A-Z][A-Z0-9_ -]*>|\{\{.*\}\}", re.ASCII
)
_LITERAL: Final = re.compile(
    r"(filename\.regex|topic\.regex\.list|_comment"
    r"|transforms\..+\.(regex|replacement|pattern|format))"
)
"""Properties of others in which dollar signs and brackets have their own meaning."""

_KAFKA: Final = "org.apache.kafka.common.config.provider"
_AWS: Final = "com.amazonaws.kafka.config.providers"
_CLASSES: Final = {
    "FileConfigProvider": (_KAFKA, "file"),
    "DirectoryConfigProvider": (_KAFKA, "directory"),
    "EnvVarConfigProvider": (_KAFKA, "env"),
    "SecretsManagerConfigProvider": (_AWS, "secretsmanager"),
    "SsmParamStoreConfigProvider": (_AWS, "ssm"),
}
"""Kafka's and AWS's providers: the package and what each reads."""

BUILT_IN: Final[Mapping[str, str]] = {
    kind: kind for kind in ("env", "file", "secretsmanager", "ssm")
}
"""Aliases that need no ``config.providers``, and what each reads."""


def provider_kind(class_name: str) -> str:
    """Return what a class reads, such as ``file``; `ValueError`: it is none of Kafka's or AWS's."""
    package, _, name = class_name.rpartition(".")
    of_package, kind = _CLASSES.get(name, ("", ""))
    if not kind or package not in ("", of_package):
        raise ValueError("a Java class cannot be loaded; Kafka's own providers and AWS's are known")
    return kind


SECRETS_MANAGER: Final = "secretsmanager"
PARAMETERS: Final = "ssm"

_DO: Final = {
    SECRETS_MANAGER: "correct its name and region, or allow secretsmanager:GetSecretValue and, for "
    "a key of your own, kms:Decrypt",
    PARAMETERS: "correct its name and region, or allow ssm:GetParameter and, for a key of your "
    "own, kms:Decrypt",
}


@dataclass(frozen=True, slots=True)
class AwsSecrets:
    """What one configuration asks AWS for, with AWS's own credentials; each secret once.

    Args:
        places: The ``region`` and ``endpoint`` that an alias was given; without, those of the
            environment, or of a name that has a region of its own.
    """

    environ: Mapping[str, str]
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    _found: dict[tuple[str, str], str] = field(default_factory=dict, init=False, repr=False)

    def of_secrets_manager(self, reference: str, alias: str, text: str) -> str:
        """Return what a secret, which is a JSON object, has under a key.

        Args:
            text: What follows the alias: ``ID:key``; the ID may be an ARN, and have ``%3A`` for a
                colon.

        Raises:
            ConfigurationError: If it cannot be read, or has no such text.
        """
        name, _, key = _without_ttl(text).rpartition(":")
        if not name or not key:
            raise ConfigurationError(reference, f"expected ${{{alias}:ID:key}}")
        name = unquote(name)
        whole = self._read(SECRETS_MANAGER, reference, alias, name)
        try:
            pairs = json.loads(whole)
        except ValueError:
            pairs = None
        if not isinstance(pairs, dict):  # what it is must not be quoted
            raise ConfigurationError(
                reference, f"secret {name} is not a JSON object", "store its keys and values"
            )
        if pairs.get(key) is None:
            raise ConfigurationError(reference, f"secret {name} has no {key}")
        found = pairs[key]
        if isinstance(found, dict | list):
            raise ConfigurationError(reference, f"{key} of secret {name} is not text")
        return found if isinstance(found, str) else json.dumps(found)

    def of_parameters(self, reference: str, alias: str, text: str) -> str:
        """Return the value, decrypted, of a parameter that is ``NAME`` or ``:NAME`` in *text*."""
        name = _without_ttl(text).removeprefix(":")
        if not name:
            raise ConfigurationError(reference, f"expected ${{{alias}:NAME}}")
        return self._read(PARAMETERS, reference, alias, unquote(name))

    def _read(self, service: str, reference: str, alias: str, name: str) -> str:
        # only where a reference names one: AWS's library takes a while to import
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        asked = alias, name
        if asked not in self._found:
            try:
                self._found[asked] = _answer(self._client(service, alias, name), service, name)
            except (BotoCoreError, ClientError, ValueError, KeyError) as error:
                what = "secret" if service == SECRETS_MANAGER else "parameter"
                why = "it holds bytes, not text" if isinstance(error, KeyError) else str(error)
                raise ConfigurationError(
                    reference, f"{what} {name} cannot be read: {why}", _DO[service]
                ) from error
        return self._found[asked]

    def _client(self, service: str, alias: str, name: str) -> Any:
        from botocore.config import Config  # noqa: PLC0415
        from botocore.session import Session  # noqa: PLC0415

        place = self.places.get(alias, {})
        of_name = name.split(":")[3] if name.startswith("arn:") and name.count(":") > 3 else None
        variables = self.environ.get("AWS_REGION") or self.environ.get("AWS_DEFAULT_REGION")
        return Session().create_client(
            service,
            region_name=place.get("region") or of_name or variables or None,
            endpoint_url=place.get("endpoint"),
            config=Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 3}),
        )


def _answer(client: Any, service: str, name: str) -> str:
    if service == SECRETS_MANAGER:
        return str(client.get_secret_value(SecretId=name)["SecretString"])
    return str(client.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])


def _without_ttl(text: str) -> str:
    """Return a name without the seconds after which a connector's worker would read it anew."""
    return text.partition("?ttl=")[0]


def resolve_references(
    text: str,
    environ: Mapping[str, str],
    folder: Path,
    providers: Mapping[str, str] = BUILT_IN,
    asked: AwsSecrets | None = None,
) -> str:
    """Return *text* with its references replaced.

    Args:
        folder: What a relative path in ``${file:...}`` is relative to.
        providers: What each alias reads; a reference with another alias stays as it is.
        asked: Keeps what AWS answered, for more than this text.

    Raises:
        ConfigurationError: There is no such variable, file, key or secret.
    """
    aws = asked or AwsSecrets(environ)

    def replaced(match_: re.Match[str]) -> str:
        match providers.get(match_[1]):
            case "env":
                name = match_[2].removeprefix(":")
                found = environ.get(name)
                if found is None:
                    raise ConfigurationError(match_[0], f"the variable {name} is not set")
                if not _is_text(found):
                    why = f"the variable {name} holds bytes that are not UTF-8"
                    raise ConfigurationError(match_[0], why, "write it in UTF-8")
                return found
            case "directory":
                return _from_directory(match_[0], match_[2], folder)
            case "file":
                return _from_file(match_[0], match_[2], folder)
            case "secretsmanager":
                return aws.of_secrets_manager(match_[0], match_[1], match_[2])
            case "ssm":
                return aws.of_parameters(match_[0], match_[1], match_[2])
        return match_[0]

    return _REFERENCE.sub(replaced, text)


def _from_file(reference: str, place: str, folder: Path) -> str:
    name, colon, key = place.rpartition(":")
    if not colon or not name or not key:
        raise ConfigurationError(reference, "expected ${file:PATH:key}")
    entries = files.read(folder / name, otherwise=files.parse_properties)
    found = {entry.name: entry.text for entry in entries}.get(key)
    if found is None:
        raise ConfigurationError(reference, f"{folder / name} has no {key}")
    return found


def _from_directory(reference: str, place: str, folder: Path) -> str:
    name, colon, key = place.rpartition(":")
    if not colon or not name or not key or "/" in key:
        raise ConfigurationError(reference, "expected ${directory:PATH:FILE}")
    path = folder / name / key
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(reference, f"{path} cannot be read: {error}") from error


def has_reference(text: str, providers: Mapping[str, str] = BUILT_IN) -> bool:
    """Whether *text* holds something that `resolve_references` replaces."""
    return any(match[1] in providers for match in _REFERENCE.finditer(text))


def unfilled(name: str, text: str, *, is_secret: bool) -> str | None:
    """Return what in *text* looks like a placeholder that nobody filled in, None if nothing.

    A secret may hold any character, so only one that is a placeholder as a whole counts, and what
    names a provider of Connect's, such as ``${vault:path:key}``.
    """
    declared = BY_NAME.get(name)
    if _LITERAL.fullmatch(name) if declared is None else declared.is_literal:
        return None
    if is_secret:
        match = _VARIABLE.fullmatch(text.strip()) or _REFERENCE.search(text)
    else:
        match = _BRACED.search(text) or _BARE.search(text)
    return None if match is None else match[0]


_PROVIDERS: Final = "config.providers"
READ_ELSEWHERE: Final = frozenset(
    {"KBACKUP_ARCHIVE", "KBACKUP_CACHE_DIR", "KBACKUP_CONFIG", "KBACKUP_KAFKA"}
)
"""Our variables that are not settings: the command line and the local services read them."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What was given.

    Attributes:
        values: For each name the value that counts.
        connectors: The files that are of a connector of Kafka Connect.
    """

    values: Given = field(default_factory=Given)
    issues: list[ConfigIssue] = field(default_factory=list)
    connectors: set[str] = field(default_factory=set)

    @property
    def is_complete(self) -> bool:
        """Whether every file could be read."""
        return all(issue.code != "file" for issue in self.issues)


def merge(
    options: Mapping[str, object],
    paths: Sequence[Path],
    environ: Mapping[str, str],
    extra: Sequence[str],
) -> Merged:
    """Return what was given, with placeholders resolved."""
    merged = Merged()
    for path in paths:
        _add_file(merged, path)
    _add_variables(merged, environ)
    _add_extra(merged, extra)
    for name, value in options.items():
        if value is not None and value != ():
            declared = by_attribute().get(name) or BY_NAME.get(name)
            merged.values[declared.name if declared else name] = Value(value, Origin("option"))
    _refuse_secrets_in_pairs(merged)
    providers, places = _providers(merged)
    asked = AwsSecrets(environ, places)
    for name, given in list(merged.values.items()):
        if not _is_text(given.text):
            why, do = "it holds bytes that are not UTF-8", "write it in UTF-8"
            merged.issues.append(
                ConfigIssue("error", "value", name, str(given.origin), name, why, do)
            )
            continue
        read = {} if given.folder is None else providers
        _check_left_over(merged, name, given, read)
        if not has_reference(given.text, read):
            continue
        try:
            folder = given.folder or Path()
            text = resolve_references(str(given.value), environ, folder, providers, asked)
        except ConfigurationError as problem:
            why = f"{problem.what} cannot be resolved: {problem.why}"
            do = problem.do or "set it, or write the value itself"
            merged.issues.append(error("placeholder", name, given, why, do))
        else:
            merged.values[name] = Value(text, given.origin)
    return merged


def _is_text(text: str) -> bool:
    """Whether *text* is Unicode: neither Kafka nor a store has names for anything else."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _add_file(merged: Merged, path: Path) -> None:
    try:
        entries = files.read(path)
    except ConfigurationError as problem:
        merged.issues.append(
            ConfigIssue("error", "file", "", f"file {path}", problem.what, problem.why, problem.do)
        )
        return
    found: dict[str, Value] = {}
    spelled: dict[str, str] = {}
    holds_credentials = False
    for entry in entries:
        name = ALIASES.get(entry.name, entry.name)
        origin = Origin("file", f"{path}:{entry.line}")
        if name in found and spelled[name] == entry.name:
            why = f"it is set again here, and the last value counts; first: {found[name].origin}"
            merged.issues.append(warning("repeated", name, Value(entry.text, origin), why))
        elif name in found and entry.name != name:
            continue  # the name overrides its alias
        spelled[name] = entry.name
        found[name] = Value(entry.text, origin, folder=path.parent)
        holds_credentials |= bool(
            entry.text.strip()
            and is_secret(name)
            and not has_reference(entry.text)
            and unfilled(name, entry.text, is_secret=True) is None
        )
    merged.values.update(found)
    if "connector.class" in found:
        merged.connectors.add(str(path))
    if holds_credentials and files.is_open_to_others(path):
        merged.issues.append(
            ConfigIssue(
                "warning",
                "readable_credentials",
                "",
                f"file {path}",
                f"configuration file {path}",
                "it holds credentials and any user can read it",
                f"chmod o-r {path}",
            )
        )


def _add_variables(merged: Merged, environ: Mapping[str, str]) -> None:
    for given, text in environ.items():
        if not given.startswith(VARIABLES) or given in READ_ELSEWHERE:
            continue
        origin = Origin("env", given)
        name = foreign_names.name_of_variable(given)
        if name is None:
            why, do = foreign_names.nearest_variable(given)
            merged.issues.append(
                ConfigIssue("warning", "unknown_name", given, str(origin), given, why, do)
            )
            continue
        declared = BY_NAME.get(name)
        proper = "" if declared is None else environ.get(declared.variable, "")
        if declared is not None and given != declared.variable and proper:
            if text and text != proper:
                why = f"{declared.variable} is set to something else"
                do = "remove one of them"
                merged.issues.append(error("value", name, Value(text, origin), why, do))
            continue  # the name overrides its other spellings
        merged.values[name] = Value(text, origin, folder=Path())


def _add_extra(merged: Merged, extra: Sequence[str]) -> None:
    for pair in extra:
        name, equals, text = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            text = "expected -X NAME=VALUE, such as flush.size=1000"
            merged.issues.append(ConfigIssue("error", "option", "", "option", "-X", text))
            continue
        name = ALIASES.get(name, name)
        if is_secret(name):
            merged.issues.append(_secret(name, text))
            continue
        merged.values[name] = Value(text, Origin("option"))


def _secret(name: str, text: str) -> ConfigIssue:
    why = "any user on this machine can read the command line"
    do = f"set it in a file, or in the variable {variable(name)}"
    return error("secret", name, Value(text, Origin("option")), why, do)


def _refuse_secrets_in_pairs(merged: Merged) -> None:
    """Refuse a secret among the ``NAME=VALUE`` of an option, as `_add_extra` refuses others."""
    for name, value in list(merged.values.items()):
        declared = BY_NAME.get(name)
        if value.origin.kind != "option" or declared is None or declared.read is not read_pairs:
            continue
        try:
            secrets = [pair for pair in declared.read(value.value) if is_secret(pair)]
        except ValueError:  # which is reported as what it is
            continue
        merged.issues.extend(_secret(name, f"{pair}={MASK}") for pair in secrets)


def _providers(merged: Merged) -> tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]:
    """Take ``config.providers`` out of what was given."""
    given = {
        name: merged.values.pop(name)
        for name in list(merged.values)
        if name == _PROVIDERS or name.startswith(f"{_PROVIDERS}.")
    }
    found = dict(BUILT_IN)
    aliases = read_names(given[_PROVIDERS].value) if _PROVIDERS in given else ()
    for alias in aliases:
        name = f"{_PROVIDERS}.{alias}.class"
        value = given.pop(name, None)
        if value is None:
            merged.issues.append(error("missing", name, None, "it is not set", "name its class"))
            continue
        try:
            found[alias] = provider_kind(value.text)
        except ValueError as problem:
            do = "write such values as ${env:NAME} or ${file:PATH:key}"
            merged.issues.append(error("unsupported", name, value, str(problem), do))
    given.pop(_PROVIDERS, None)
    places = {
        alias: {
            word: value.text
            for word in ("region", "endpoint")
            if (value := given.pop(f"{_PROVIDERS}.{alias}.param.{word}", None)) and value.text
        }
        for alias, kind in found.items()
        if kind in ("secretsmanager", "ssm")
    }
    if given:
        names = ", ".join(sorted(given))
        why = "accepted, but without effect here"
        merged.issues.append(ConfigIssue("warning", "no_effect", names, "", names, why))
    return found, places


def _check_left_over(merged: Merged, name: str, given: Value, providers: Mapping[str, str]) -> None:
    left = _REFERENCE.sub(lambda one: "" if one[1] in providers else one[0], given.text)
    found = unfilled(name, left, is_secret=is_secret(name))
    if found is not None:
        what = "it" if is_secret(name) else short(found)
        merged.issues.append(
            error(
                "placeholder",
                name,
                given,
                f"{what} is a placeholder that was never filled in",
                "write the value itself"
                if given.folder is None
                else "write the value, or ${env:NAME}, ${file:PATH:key}, ${secretsmanager:ID:key}",
            )
        )
