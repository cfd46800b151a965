"""The schemas of a backup, registered in the registry of the target before the first record.

`plan` says what is registered under which subjects, and asks what the registry has against it;
`registering` does it; `target` is what a run knows of both.
"""
