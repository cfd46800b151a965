"""The options of the S3 store."""

from typing import Final

from kbackup.options import boolean, integer, optional_text

BUCKET: Final = optional_text(
    "s3.bucket.name",
    "Bucket that holds the backup.",
    mistaken=("bucket", "s3.bucket"),
    short=("-b", "--bucket"),
    example="backups",
    is_place=True,
)
REGION: Final = optional_text(
    "s3.region",
    "Region of the bucket; default: what the AWS credential chain says, else us-west-2.",
    mistaken=("aws.region",),
    short=("--region",),
    example="eu-central-1",
)
PATH_STYLE: Final = boolean(
    "s3.path.style.access.enabled",
    "Put the bucket's name into the path, not into the host name.",
    True,
    aliases=("s3.path.style.access",),
)
PART_SIZE: Final = integer(
    "s3.part.size",
    "Size of an upload part in bytes; a smaller object is sent in one request.",
    26_214_400,
    ge=5_242_880,
    le=2_147_483_647,
)
ATTEMPTS: Final = integer(
    "s3.part.retries",
    "Total attempts for one request to S3; 1 means no retry.",
    3,
    ge=1,
    le=2_147_483_647,
)
BACKOFF_MS: Final = integer(
    "s3.retry.backoff.ms",
    "Milliseconds to wait before the second attempt; doubled for each further one.",
    200,
    ge=0,
)
ACCESS_KEY_ID: Final = optional_text(
    "aws.access.key.id",
    "Access key; default: the AWS credential chain.",
    is_secret=True,
    mistaken=("aws.access.key",),
    needs=("aws.secret.access.key",),
    aliases=("s3.credentials.provider.aws.access.key.id",),
)
SECRET_ACCESS_KEY: Final = optional_text(
    "aws.secret.access.key",
    "Secret key that belongs to the access key.",
    is_secret=True,
    mistaken=("aws.secret.key",),
    needs=("aws.access.key.id",),
    aliases=("s3.credentials.provider.aws.secret.access.key",),
)

OPTIONS: Final = (
    BUCKET,
    REGION,
    PATH_STYLE,
    PART_SIZE,
    ATTEMPTS,
    BACKOFF_MS,
    ACCESS_KEY_ID,
    SECRET_ACCESS_KEY,
)
