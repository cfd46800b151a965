"""The S3 server itself, beside kbackup's own client of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import boto3

from kbackup.local.servers import LocalS3
from kbackup.stores import StoreSettings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def client_of(server: LocalS3) -> "S3Client":
    """Return a client that sees what is stored, and stores what kbackup would not."""
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint_url,
        aws_access_key_id=server.access_key_id,
        aws_secret_access_key=server.secret_access_key,
        region_name=server.region,
    )


def way_to(bucket: str, server: LocalS3, options: Mapping[str, Any] | None = None) -> StoreSettings:
    """Return how kbackup reaches a bucket of *server*."""
    login = {
        "aws.access.key.id": server.access_key_id,
        "aws.secret.access.key": server.secret_access_key,
        "s3.region": server.region,
    }
    return StoreSettings(f"s3://{bucket}", server.endpoint_url, {**login, **(options or {})})
