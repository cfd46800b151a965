"""Archived objects of S3: whether they can be read, and how to ask for them."""

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from kbackup.errors import StoreError
from kbackup.stores.archive import Thaw, Tier

if TYPE_CHECKING:
    from kbackup.stores.s3.requests import Requests  # imports boto3

_UNDER_WAY: Final = "RestoreAlreadyInProgress"


def thawed(requests: "Requests", key: str) -> Thaw:
    """Return how far an archived object has come: `Archive.thawed`."""
    answer = requests.send("head_object", key, Key=key)
    return read(answer.get("Restore", ""))


def read(header: str) -> Thaw:
    """Return what ``x-amz-restore`` says; an object without it was not asked for."""
    if 'ongoing-request="true"' in header:
        return Thaw("thawing")
    if 'ongoing-request="false"' not in header:
        return Thaw("frozen")
    date = re.search(r'expiry-date="([^"]*)"', header)
    try:
        return Thaw("ready", None if date is None else parsedate_to_datetime(date[1]))
    except ValueError:
        return Thaw("ready")


def thaw(requests: "Requests", key: str, days: int, tier: Tier) -> None:
    """Ask for an archived object: `Archive.thaw`."""
    request = {"Days": days, "GlacierJobParameters": {"Tier": tier}}
    try:
        requests.send("restore_object", key, Key=key, RestoreRequest=request)
    except StoreError as error:
        if error.place.get("s3_code") != _UNDER_WAY:
            raise
