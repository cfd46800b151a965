"""Identify a backup: by an id, written once into the bucket, or else by where the bucket is.

::

    _kbackup/backup/7f3a90c1.json      {"id": "...", "topics_dir": "topics", "created": "..."}

The name ends with a digest of ``topics.dir``, for several may share the folder.  A copy of a bucket
has the id too, and so has the same bucket under another address.  Positions name the id: a restore
goes on from a copy.
"""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import uuid4

import orjson

from kbackup import clock
from kbackup.catalog.ledger.stream import folder
from kbackup.errors import CorruptObjectError, ObjectNotFoundError, RefusedError, StoreError
from kbackup.naming import Layout
from kbackup.stores import Store, put_json

_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
"""Positions name the id, and their metadata is small."""


@dataclass(frozen=True, slots=True)
class BackupIdentity:
    """Which backup this is.

    *address* is a digest of where it is, as this run reaches it; *id* is empty where nobody has
    written one, as in a bucket of a connector.
    """

    address: str
    id: str = ""
    is_encrypted: bool = False

    @property
    def name(self) -> str:
        """What positions call it: its id, or its address where it has none."""
        return self.id or self.address


def key(layout: Layout) -> str:
    """Return the key of the object that holds the id."""
    return f"{folder(layout, 'backup').removesuffix('/')}.json"


def read(store: Store, layout: Layout, address: str) -> BackupIdentity:
    """Return which backup this is; one whose id may not be read has none.

    An id that is there, and cannot be read, raises `CorruptObjectError`.
    """
    found = BackupIdentity(address)
    try:
        with store.open(key(layout)) as body:
            said = orjson.loads(body.read())
        return replace(found, id=_checked(said), is_encrypted=said.get("encrypted") is True)
    except ObjectNotFoundError:
        return found
    except StoreError as error:
        if not error.is_denied:
            raise
        return found
    except (ValueError, LookupError, TypeError) as error:
        raise CorruptObjectError(
            f"{key(layout)} does not hold the backup's id",
            str(error),
            "put it back from a copy of the bucket; without it, the positions that consumer "
            "groups keep do not count as this backup's",
        ) from error


def ensure(store: Store, layout: Layout, address: str, now: datetime) -> BackupIdentity:
    """Return which backup this is, after giving it an id if it has none; of two givers one wins.

    It raises as `read` does, and as `check_apart`.
    """
    found = read(store, layout, address)
    if found.id:
        return found
    check_apart(store, layout)
    mine = uuid4().hex
    said = {"id": mine, "topics_dir": layout.topics_dir, "created": clock.rfc3339(now)}
    if put_json(store, key(layout), said, if_absent=True):
        return replace(found, id=mine)
    return read(store, layout, address)


def mark_encrypted(store: Store, layout: Layout) -> None:
    """Have a backup with an id say that it is encrypted, from now on."""
    with store.open(key(layout)) as body:
        said = orjson.loads(body.read())
    put_json(store, key(layout), said | {"encrypted": True})


def check_apart(store: Store, layout: Layout) -> None:
    """Refuse (`RefusedError`) a new backup in a folder of another's topics, or around another's.

    Where topics have the same names, the objects of the inner one are also objects of the outer one
    by their keys.  What lies deeper than the next folder is not looked for.
    """
    delim, folders = layout.directory_delim, [layout.topics_dir]
    while folders[-1]:
        folders.append(folders[-1].rpartition(delim)[0])
    inner = Layout(f"{layout.prefix()}any", directory_delim=delim)
    # of an empty topics.dir, an inner one's records are where its own are
    inside = [one for one in _ids_beside(store, inner) if one != key(layout)]
    outer = (Layout(name, directory_delim=delim) for name in folders[1:])
    around = [key(one) for one in outer if key(one) in _ids_beside(store, one)]
    how = "around" if inside else "within"
    if inside or around:
        raise RefusedError(
            f"topics.dir={layout.topics_dir} lies {how} another backup",
            f"{(inside or around)[0]} is the id of that one, and objects of the inner one could be "
            "taken for the outer one's",
            "choose a topics.dir beside it",
        )


def _ids_beside(store: Store, layout: Layout) -> list[str]:
    """Return the keys of all ids where that of *layout* would be; none if they may not be seen."""
    try:
        return [entry.key for entry in store.list(f"{layout.records_prefix()}backup/")]
    except StoreError as error:
        if not error.is_denied:
            raise
        return []


def _checked(said: object) -> str:
    if not isinstance(said, dict):
        raise TypeError("it is not a JSON object")
    found = said["id"]
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise TypeError("its id is not 1 to 64 letters, digits and hyphens")
    return found
