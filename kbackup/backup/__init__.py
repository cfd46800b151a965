"""What is in a bucket: its objects, what they say of themselves, what is missing or overlaps."""
