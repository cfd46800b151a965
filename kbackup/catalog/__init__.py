"""What is in a backup: objects, what they say of themselves, the ledger, what covers what.

Owns that one answer.  It asks no store and reads no object: what is known comes as arguments.
"""
