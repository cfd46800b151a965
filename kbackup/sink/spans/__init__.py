"""Several tasks for one partition: they read spans of it side by side, and store them in order.

The driver divides long backlogs and hands out their spans, the lowest first, to tasks that ask; a
task that dies gives its spans back.  A span's files are held back until its turn has come: until
the run has committed the group's position up to its start.
"""
