"""Objects of the connectors' layout that lack their companions: values, keys, headers."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kbackup.backup.file_sets import BackupFile, FileSet
from kbackup.backup.findings import Finding
from kbackup.naming import Layout, ObjectKey, View
from kbackup.plurals import counted, form

_VIEWS: Final = ((View.KEY, "keys"), (View.HEADERS, "headers"))


def lacking(
    sets: Sequence[FileSet], layout: Layout, promised: Callable[[FileSet], frozenset[View]]
) -> Iterator[Finding]:
    """Name value objects whose sibling is missing, and siblings without their value object.

    Only an object itself says that it was stored with siblings: they can be switched on later, or
    off.

    Args:
        sets: Of one partition, by start offset.
        layout: How objects are named.
        promised: Returns which siblings a set says it has; asked where others have some that it
            lacks, or none has any.
    """
    values = [files for files in sets if not files.is_whole]
    complete = [files for files in values if files.main is not None]
    for view, name in _VIEWS:
        mains = [files for files in complete if view is View.HEADERS or not files.is_tombstones]
        having = [at for at, files in enumerate(mains) if _sibling(files, view) is not None]
        without = [at for at, files in enumerate(mains) if _sibling(files, view) is None]
        extension = _sibling(mains[having[0]], view) if having else None
        if not having and not (mains and view in promised(mains[0])):
            continue  # where one has none, and the others neither, none was stored
        broken = [at for at in without if view in promised(mains[at])]
        for at in broken:
            yield _without_sibling(mains[at], layout, view, name, extension)
        quiet = len(without) - len(broken)
        if quiet and having:
            have = form(quiet, "has", "have")
            text = f"{counted(quiet, 'value object')} {have} no {name} object"
            yield Finding("missing_object", values[0].where, text=text, is_error=False)
    for files in values:
        if files.main is None:
            yield from _without_value(files, values, layout)
    if layout.is_dated:
        yield from _without_index(complete)


def _without_index(sets: Sequence[FileSet]) -> Iterator[Finding]:
    """Count objects without their index: nothing is lost, but they can only be read whole."""
    lone = [files for files in sets if files.index is None]
    if lone:
        more = f", and {len(lone) - 1} more" if len(lone) > 1 else ""
        text = f"{lone[0].id}{more}: no index, so it is restored but can only be read whole"
        yield Finding("missing_object", lone[0].where, text=text, is_error=False)


def _sibling(files: FileSet, view: View) -> BackupFile | None:
    return files.keys if view is View.KEY else files.headers


def _without_sibling(
    files: FileSet, layout: Layout, view: View, name: str, pattern: BackupFile | None
) -> Finding:
    assert files.main is not None  # noqa: S101  (callers chose such sets)
    text = f"the {name} object of {files.main.key} is missing"
    key = files.main.key if pattern is None else key_of(files, layout, view, pattern.extension)
    offsets = (files.start_offset, files.start_offset)
    return Finding("missing_object", files.where, key, offsets, text)


def _without_value(files: FileSet, values: Sequence[FileSet], layout: Layout) -> Iterator[Finding]:
    """Judge siblings without their value: keys of tombstones, a run cut off, or a loss.

    In the directory of tombstones their keys stand for the value.
    """
    beside = [each for each in values if each.encoded_partition == files.encoded_partition]
    patterns = [each.main for each in beside if each.main is not None]
    if not patterns:
        return  # a directory of keys alone is where a connector puts tombstones
    found = files.files[0].key
    if files.start_offset > max(each.start_offset for each in beside if each.main is not None):
        text = "its value object is not there: a run was interrupted, the next one completes it"
        yield Finding("missing_object", files.where, found, text=text, is_error=False)
        return
    key = key_of(files, layout, patterns[0].view, patterns[0].extension)
    offsets = (files.start_offset, files.start_offset)
    text = f"{found} is there, its value object is missing"
    yield Finding("missing_object", files.where, key, offsets, text)


def key_of(files: FileSet, layout: Layout, view: View, extension: str) -> str:
    """Return the key of an object of *files*' place."""
    where = files.where
    return layout.key(
        ObjectKey(
            where.topic,
            where.partition,
            files.start_offset,
            files.encoded_partition,
            extension,
            view,
        )
    )
