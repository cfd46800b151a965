"""The options of `BucketPartitioner`, in a module that is cheap to import."""

from kbackup.options import integer

COUNT = integer("bucket.count", "Number of buckets.", 16, ge=1, le=100)

OPTIONS = (COUNT,)
