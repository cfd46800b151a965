"""Credentials: static ones, a role, or botocore's chain, the whole of it or the part asked for."""

import functools
import os
from collections.abc import Mapping
from typing import Any, Final

from boto3.session import Session
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    Credentials,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import NoCredentialsError
from botocore.session import Session as Core

from kbackup.stores.s3 import sources
from kbackup.stores.s3.options import (
    ACCESS_KEY_ID,
    ANONYMOUS,
    PROVIDER,
    REGION,
    ROLE,
    ROLE_ARN,
    ROLE_EXTERNAL_ID,
    ROLE_REGION,
    ROLE_SESSION,
    SECRET_ACCESS_KEY,
    STATIC,
)

_SESSION: Final = "kbackup"
"""Name of a role's session where none is given."""


def session(core: Core, options: Mapping[str, Any]) -> Session:
    """Return a session with the credentials that *options* ask for.

    Args:
        core: Made for it alone.
        options: Those of the store.

    Raises:
        ConfigurationError: If there is no such source.
    """
    chosen = sources.chosen(options)
    keys, role = _static(options), ROLE_ARN.of(options)
    resolver = core.get_component("credential_provider")
    if chosen and chosen[0] not in (ROLE, STATIC, ANONYMOUS):
        kept = [one for one in resolver.providers if one.METHOD in chosen]
        resolver = CredentialResolver(kept)
        core.register_component("credential_provider", resolver)
    if role is not None:
        assumed = _Role(core, resolver if keys is None else Credentials(*keys), role, options)
        core.register_component("credential_provider", CredentialResolver([assumed]))
        keys = None
    access_key, secret_key = keys or (None, None)
    return Session(access_key, secret_key, region_name=REGION.of(options), botocore_session=core)


def is_anonymous(options: Mapping[str, Any]) -> bool:
    """Whether requests are not signed."""
    return sources.chosen(options) == (ANONYMOUS,) and _static(options) is None


def _static(options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the keys that were given, or those of the variables that only Java's SDK knows."""
    access_key, secret_key = ACCESS_KEY_ID.of(options), SECRET_ACCESS_KEY.of(options)
    if access_key is not None and secret_key is not None:
        return access_key, secret_key
    if "AWS_ACCESS_KEY_ID" in os.environ or PROVIDER.of(options) is not None:
        return None
    found = os.environ.get("AWS_ACCESS_KEY"), os.environ.get("AWS_SECRET_KEY")
    return (found[0], found[1]) if found[0] and found[1] else None


class _Role(CredentialProvider):
    """A role that is assumed with other credentials, and assumed again before it runs out."""

    METHOD = "assume-role"

    def __init__(
        self,
        core: Core,
        source: Credentials | CredentialResolver,
        role: str,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(core)
        self._core, self._source, self._role, self._options = core, source, role, options

    def load(self) -> DeferredRefreshableCredentials:
        """Return the role's credentials; they are asked for when they are used."""
        options, given = self._options, self._source
        source = given.load_credentials() if isinstance(given, CredentialResolver) else given
        if source is None:
            raise NoCredentialsError
        more = {"RoleSessionName": ROLE_SESSION.of(options) or _SESSION}
        if (external_id := ROLE_EXTERNAL_ID.of(options)) is not None:
            more["ExternalId"] = external_id
        region = ROLE_REGION.of(options) or REGION.of(options) or "us-west-2"
        fetcher = AssumeRoleCredentialFetcher(
            functools.partial(self._core.create_client, region_name=region),
            source, self._role, more,
        )  # fmt: skip
        return DeferredRefreshableCredentials(
            method=self.METHOD, refresh_using=fetcher.fetch_credentials
        )
