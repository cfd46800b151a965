"""What sink and restore share: a run's context, lock, summary, record, status and positions.

It knows what each of them needs of settings, and what a run leaves in the bucket for the next one.
It never moves a record: that is for the tasks of the two.  Whatever asks the store raises
`StoreError` where that does not answer; docstrings name other errors.
"""
