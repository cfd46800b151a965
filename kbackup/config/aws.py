"""Secrets from AWS Secrets Manager and the Parameter Store of Systems Manager.

They are spelled as in the configuration of Kafka Connect, and read with AWS's own credentials:
those of the environment, a profile, a container or an instance.  What is read is kept in memory
alone, for as long as a configuration is read.

Source: ``com.amazonaws.kafka.config.providers``, ``SecretsManagerConfigProvider`` and
``SsmParamStoreConfigProvider``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from kbackup.errors import ConfigurationError

SECRETS_MANAGER: Final = "secretsmanager"
PARAMETERS: Final = "ssm"

_DO: Final = {
    SECRETS_MANAGER: "correct its name and region, or allow secretsmanager:GetSecretValue and, for "
    "a key of your own, kms:Decrypt",
    PARAMETERS: "correct its name and region, or allow ssm:GetParameter and, for a key of your "
    "own, kms:Decrypt",
}
_CONNECTION: Final = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 3})


@dataclass(frozen=True, slots=True)
class Place:
    """Where an alias of ``config.providers`` looks.

    Attributes:
        region: None for that of the environment or, where a name has one, its own.
        endpoint: Of a VPC; None for AWS's own.
    """

    region: str | None = None
    endpoint: str | None = None


_ANYWHERE: Final = Place()


@dataclass(frozen=True, slots=True)
class AwsSecrets:
    """What one configuration asks AWS for; each secret is asked for once.

    Args:
        places: Where each alias looks; the others as the environment says.
    """

    environ: Mapping[str, str]
    places: Mapping[str, Place] = field(default_factory=dict)
    _found: dict[tuple[str, Place, str], str] = field(default_factory=dict, init=False, repr=False)

    def of_secrets_manager(self, reference: str, alias: str, text: str) -> str:
        """Return what a secret, which is a JSON object, has under a key.

        Args:
            text: What follows: ``ID:key``; the ID may be an ARN, and have ``%3A`` for a colon.

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
                reference, f"secret {name} is no JSON object", "store its keys and values"
            )
        if pairs.get(key) is None:
            raise ConfigurationError(reference, f"secret {name} has no {key}")
        found = pairs[key]
        if isinstance(found, dict | list):
            raise ConfigurationError(reference, f"{key} of secret {name} is no text")
        return found if isinstance(found, str) else json.dumps(found)

    def of_parameters(self, reference: str, alias: str, text: str) -> str:
        """Return the value of a parameter, decrypted.

        Args:
            text: What follows: ``NAME`` or ``:NAME``.

        Raises:
            ConfigurationError: If it cannot be read.
        """
        name = _without_ttl(text).removeprefix(":")
        if not name:
            raise ConfigurationError(reference, f"expected ${{{alias}:NAME}}")
        return self._read(PARAMETERS, reference, alias, unquote(name))

    def _read(self, service: str, reference: str, alias: str, name: str) -> str:
        place = self.places.get(alias, _ANYWHERE)
        asked = service, place, name
        if asked not in self._found:
            try:
                self._found[asked] = _answer(self._client(service, place, name), service, name)
            except (BotoCoreError, ClientError, ValueError, KeyError) as error:
                what = "secret" if service == SECRETS_MANAGER else "parameter"
                why = "it holds bytes, not text" if isinstance(error, KeyError) else str(error)
                raise ConfigurationError(
                    reference, f"{what} {name} cannot be read: {why}", _DO[service]
                ) from error
        return self._found[asked]

    def _client(self, service: str, place: Place, name: str) -> Any:
        of_name = name.split(":")[3] if name.startswith("arn:") and name.count(":") > 3 else None
        variables = self.environ.get("AWS_REGION") or self.environ.get("AWS_DEFAULT_REGION")
        return Session().create_client(
            service,
            region_name=place.region or of_name or variables or None,
            endpoint_url=place.endpoint,
            config=_CONNECTION,
        )


def _answer(client: Any, service: str, name: str) -> str:
    if service == SECRETS_MANAGER:
        return str(client.get_secret_value(SecretId=name)["SecretString"])
    return str(client.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])


def _without_ttl(text: str) -> str:
    """Return a name without the seconds after which a connector's worker would read it anew."""
    return text.partition("?ttl=")[0]
