"""What is in a bucket: its objects, what they say about themselves, what is missing or overlaps."""
