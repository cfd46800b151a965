"""``restore --follow``: `following` lists the bucket again and again, and restores what is new.

`lookout` lists, `ready` leaves what is not whole yet, `visit` plans what has changed; `asides`
remembers what failed and when to try it again, and `remarks` reports each thing once.
"""
