"""What a listing shows of a partition from one object on, in that object's directory."""

import string
from collections.abc import Iterator

from kbackup.errors import ObjectKeyError
from kbackup.naming import Layout, ObjectKey
from kbackup.stores import Store, StoredObject


def from_on(store: Store, layout: Layout, key: str) -> Iterator[tuple[StoredObject, ObjectKey]]:
    """Yield the objects that begin where *key* does or later, with that one, in the order of names.

    The listing begins there: what is before costs nothing.  Nothing is yielded where names are not
    in the order of offsets, as in a dated layout.

    Args:
        store: Where they are.
        layout: How they are named.
        key: An object's, whether or not it is there.

    Raises:
        ObjectKeyError: If the layout has no such key.
        StoreError: If the store does not answer.
    """
    first = layout.parse(key)
    if not layout.has_folders:
        return
    after = key.removesuffix(f"{first.view}{first.extension}")
    for one in store.list(after.rstrip(string.digits), after=after):
        try:
            parts = layout.parse(one.key)
        except ObjectKeyError:
            continue
        if layout.is_main(parts) or one.key == key:
            yield one, parts
