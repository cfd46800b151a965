"""An S3 server that somebody else has started, in the place of the tests' own."""

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import boto3


@dataclass(frozen=True, slots=True)
class OtherS3:
    """What `LocalS3` says of itself, of a server that a variable names.

    Buckets are made on it and never removed.

    Attributes:
        endpoint_url: Where it listens.
        access_key_id: Of who may make buckets.
        secret_access_key: The same.
        region: The one it signs for.
    """

    endpoint_url: str
    access_key_id: str
    secret_access_key: str
    region: str

    @classmethod
    def of_environment(cls) -> Self | None:
        """Return the one that ``KBACKUP_TEST_S3`` names, None without it."""
        url = os.environ.get("KBACKUP_TEST_S3")
        if not url:
            return None
        return cls(
            url,
            os.environ["AWS_ACCESS_KEY_ID"],
            os.environ["AWS_SECRET_ACCESS_KEY"],
            os.environ.get("AWS_REGION", "us-east-1"),
        )

    def create_bucket(self, name: str) -> None:
        """Create a bucket; an existing one stays as it is."""
        client = boto3.client(
            "s3", endpoint_url=self.endpoint_url, region_name=self.region,
            aws_access_key_id=self.access_key_id, aws_secret_access_key=self.secret_access_key,
        )  # fmt: skip
        with suppress(client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=name)
