"""What a backup's objects are to each other: which of them cover which offsets.

Owns that one answer.  It asks no store and reads no object: what is known comes as arguments.
"""
