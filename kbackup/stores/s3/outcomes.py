"""What a `StoreError` of ours says a request came to.  Needs no botocore: see `errors` for that."""

from typing import Final

from kbackup.errors import StoreError

NOT_IMPLEMENTED: Final = 501
"""The status of a server that lacks what a request asks for."""

TOO_MANY_REQUESTS: Final = 429


def not_implemented(error: StoreError) -> bool:
    """Whether the server lacks a feature that the request used."""
    return error.place.get("status") == NOT_IMPLEMENTED


def is_taken(error: StoreError) -> bool:
    """Whether a condition failed: the key is taken, or the object is another one by now."""
    return error.place.get("s3_code") == "PreconditionFailed"


def is_missing(error: StoreError) -> bool:
    """Whether there is no such object to replace."""
    return error.place.get("s3_code") == "NoSuchKey"


def is_forgotten(error: StoreError) -> bool:
    """Whether there is no such upload: completed before, aborted, or never heard of."""
    return error.place.get("s3_code") == "NoSuchUpload"


def is_lost(error: StoreError) -> bool:
    """Whether the request may have been carried out all the same."""
    status = error.place.get("status")
    return status is None or (status >= 500 and status != NOT_IMPLEMENTED)


def is_worn_out(error: BaseException) -> bool:
    """Whether the budget of attempts has been spent on a server that did not get to it."""
    return isinstance(error, StoreError) and (
        is_lost(error) or error.place.get("status") == TOO_MANY_REQUESTS
    )
