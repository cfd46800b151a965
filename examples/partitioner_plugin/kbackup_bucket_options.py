"""The options of `BucketPartitioner`, in a module that costs nothing to import."""

from kbackup.options import integer

COUNT = integer("bucket.count", "How many buckets there are.", 16, ge=1, le=100)

OPTIONS = (COUNT,)
