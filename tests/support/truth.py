"""A client of the S3 server itself, beside kbackup's own."""

from typing import TYPE_CHECKING

import boto3

from kbackup.local.servers import LocalS3

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
