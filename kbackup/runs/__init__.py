"""The parts of a run that commands share: context, lock, summary, record, status, positions.

Owns what each command needs of settings, and what a run leaves in the bucket for the next one.  It
writes dead letters to Kafka, and moves no other record: that is for the tasks of sink and restore.

Whatever asks the store raises `StoreError` where that does not answer; docstrings name other
errors.
"""
