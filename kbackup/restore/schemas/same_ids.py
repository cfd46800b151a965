"""Whether a restore that continues finds the ids of schemas that it began with.

Restored records have the ids of the registry that was given then.  With another registry, the rest
would get other ids, and nobody could read both.  Each position holds some of the ids, because the
URL of a registry says little: it may change, and a registry may be set up anew under the same one.
"""

from collections.abc import Mapping
from typing import Final

from kbackup.errors import RefusedError
from kbackup.reports import Mark

_HALF: Final = 8
"""Ids that a position holds of the lowest, and of the highest; a broker takes 4,096 bytes."""

_NO_SCHEMAS: Final[Mapping[int, int]] = {}

Ids = Mapping[str, Mapping[int, int]]
"""By part, "key" or "value": the id in the target of each of the backup's."""


def noted(mark: Mark, ids: Ids | None) -> tuple[tuple[str, int, int], ...] | None:
    """Return what a position holds of *ids*, once records were written with them: `Mark.ids`.

    Args:
        mark: The position before; what it holds, it keeps.
        ids: Those of a topic; None where no registry is given.
    """
    if mark.ids or ids is None:
        return mark.ids
    every = sorted((part, old, new) for part, known in ids.items() for old, new in known.items())
    return tuple(every if len(every) <= 2 * _HALF else every[:_HALF] + every[-_HALF:])


def check(mark: Mark, ids: Ids | None) -> None:
    """Check that records which are restored from now on get the ids of those before.

    Args:
        mark: The position.
        ids: Those of a topic; None where no registry is given.

    Raises:
        RefusedError: If they do not.
    """
    now = ids or {}
    before = mark.ids
    if before is None:  # no registry was given: records have the ids of the backup
        has_written = mark.total is None or mark.total > 0
        before = tuple(
            (part, old, old) for part, known in now.items() for old in known if has_written
        )
    for part, old, then in before:
        new = now.get(part, _NO_SCHEMAS).get(old, old)
        if new != then:
            where = mark.source.where
            raise RefusedError(
                f"{where}: schema {old} of the {part}s would get another id than before",
                f"it is {then} in the records that are restored, and would be {new} in the rest",
                "give --schema-registry-url as when this restore began, and not if it was not "
                "given then; or restore into a new topic with --rename",
                topic=where.topic,
                partition=where.partition,
            )
