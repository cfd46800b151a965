"""Sign tokens for Amazon MSK with IAM: the mechanism ``AWS_MSK_IAM``.

librdkafka does not know it, but MSK takes the same signature as a token of OAUTHBEARER, which AWS's
signer for Python makes.  A client asks for its next token in a thread of its own, when most of the
life of the last one is over, whatever the run does meanwhile.

Credentials are found as Java's ``IAMLoginModule`` finds them: a profile, else a role, else those of
the environment.  Source: aws-msk-iam-auth 2.3, ``MSKCredentialProvider``.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Final

from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from kbackup.errors import ConfigurationError, KafkaError
from kbackup.options import MSK_OPTIONS

_REGION: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.(?:vpce\.)?amazonaws\.com\b")
_SESSION_NAME: Final = "kbackup"


def signed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's properties with what signs its tokens in place of what says how.

    `ConfigurationError`: nothing names the cluster's region.  `KafkaError`: no credentials.
    """
    options = {name: properties.get(name) for name in MSK_OPTIONS}
    servers = properties["bootstrap.servers"]
    return without_tokens(properties) | {"oauth_cb": Tokens(region(servers), options)}


def without_tokens(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `signed` does, for a client that is never to connect."""
    kept = {name: value for name, value in properties.items() if name not in MSK_OPTIONS}
    return kept | {"sasl.mechanisms": "OAUTHBEARER"}


def region(servers: str) -> str:
    """Return the region that brokers' names, else the environment say, or `ConfigurationError`."""
    named = _REGION.search(servers)
    if named is not None:
        return named[1]
    found = os.environ.get("AWS_REGION") or Session().get_config_variable("region")
    if not found:
        raise ConfigurationError(
            "the region of the MSK cluster is not known",
            f"the broker's name does not contain it: {servers}",
            "set AWS_REGION to the cluster's region",
        )
    return str(found)


class Tokens:
    """Makes the tokens of one client: its ``oauth_cb``.

    The first one is made at once, so that what is wrong with the credentials is said in their own
    words.  The client would say after 10 s that there is no token.
    """

    def __init__(self, where: str, options: Mapping[str, str | None]) -> None:
        self._region, self._options = where, dict(options)
        self._first: tuple[str, float] | None = self._made()

    def __call__(self, _config: object) -> tuple[str, float]:
        """Return a token and when it expires, in seconds since the epoch."""
        first, self._first = self._first, None
        return first or self._made()

    def _made(self) -> tuple[str, float]:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415  (an extra)

        try:
            found = _credentials(self._region, *(self._options.get(name) for name in MSK_OPTIONS))
            token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
                self._region, _Found(found)
            )
        except (BotoCoreError, ClientError, ValueError) as error:
            raise KafkaError(
                "signing in to Amazon MSK",
                str(error),
                "check the AWS credentials: the profile, the role, or the environment's",
            ) from error
        return str(token), expires_ms / 1000


class _Found(CredentialProvider):
    """Credentials as AWS's signer takes them: renewed when they are about to expire."""

    METHOD = CANONICAL_NAME = "kbackup"

    def __init__(self, credentials: Any) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Any:
        return self._credentials.get_frozen_credentials()


@lru_cache(16)
def _credentials(
    where: str,
    profile: str | None,
    role: str | None,
    session_name: str | None,
    external_id: str | None,
    sts_region: str | None,
) -> Any:
    """Return what all clients of this process share: a role is assumed once an hour."""
    session = Session(profile=profile)
    own = session.get_credentials()
    if own is None:
        raise ValueError("no AWS credentials were found")
    if profile is not None or role is None:
        return own
    extra = {"RoleSessionName": session_name or _SESSION_NAME}
    if external_id is not None:
        extra["ExternalId"] = external_id
    fetcher = AssumeRoleCredentialFetcher(
        partial(session.create_client, region_name=sts_region or where), own, role, extra_args=extra
    )
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
