"""Unfinished uploads of S3."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kbackup.errors import StoreError
from kbackup.stores.s3 import outcomes
from kbackup.stores.uploads import UnfinishedUpload

if TYPE_CHECKING:
    from kbackup.stores.s3.requests import Requests  # imports boto3


def unfinished(requests: "Requests", prefix: str) -> Iterator[UnfinishedUpload]:
    """Yield the unfinished uploads page by page: `Uploads.unfinished`."""
    at: dict[str, Any] = {}
    while True:
        page = requests.send("list_multipart_uploads", prefix, Prefix=prefix, **at)
        for entry in page.get("Uploads", ()):
            yield UnfinishedUpload(entry["Key"], entry["UploadId"], entry["Initiated"])
        if not page.get("IsTruncated"):
            return
        following = {
            "KeyMarker": page.get("NextKeyMarker", ""),
            "UploadIdMarker": page.get("NextUploadIdMarker", ""),
        }
        if following == at or not following["KeyMarker"]:
            raise StoreError(
                f"s3:ListBucketMultipartUploads on {requests.resource(prefix)}",
                "the listing is not complete: the server reports more objects, but not where "
                "the listing continues",
                "use another kind of bucket",
            )
        at = following


def abort(requests: "Requests", upload: UnfinishedUpload) -> None:
    """Throw an upload's parts away: `Uploads.abort`."""
    try:
        requests.send("abort_multipart_upload", upload.key, Key=upload.key, UploadId=upload.id)
    except StoreError as error:
        if not outcomes.is_forgotten(error):
            raise
