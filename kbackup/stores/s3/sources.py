"""The source of credentials that was asked for, and what it needs; nothing here needs boto3."""

from collections.abc import Mapping
from typing import Any

from kbackup.errors import ConfigurationError
from kbackup.stores.s3.options import (
    ACCESS_KEY_ID,
    PROVIDER,
    ROLE,
    ROLE_ARN,
    SECRET_ACCESS_KEY,
    STATIC,
    methods,
)


def chosen(options: Mapping[str, Any]) -> tuple[str, ...]:
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
