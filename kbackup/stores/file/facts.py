"""What is kept of an object beside it: its metadata, as a JSON list of mostly one."""

import json
from pathlib import Path
from typing import TypeAlias

from kbackup.errors import CorruptObjectError
from kbackup.stores.file.status import sha256_of

Facts: TypeAlias = dict[str, str]
"""Metadata of one object, its ``sha256`` among it."""

Candidates: TypeAlias = list[Facts]
"""All that may apply to what is under a key; the content's own checksum decides."""


def read(path: Path, key: str) -> Candidates:
    """Read the facts written for *key*; none for an object that another tool put there.

    Raises:
        CorruptObjectError: If what is at *path* was not written here.
    """
    do = "remove it; the object then counts as one that another tool stored"
    try:
        return _parsed(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []
    except (ValueError, RecursionError) as error:
        raise CorruptObjectError(str(path), "no facts of ours", do, key=key) from error


def applying(candidates: Candidates, path: Path, *, with_sha256: bool = False) -> Facts:
    """Return those facts of *candidates* that apply to the object at *path*."""
    if len(candidates) == 1:
        return candidates[0]
    if not candidates and not with_sha256:
        return {}
    found = sha256_of(path)
    return next((f for f in candidates if f["sha256"] == found), {"sha256": found})


def _parsed(text: bytes) -> Candidates:
    facts = json.loads(text)
    if not isinstance(facts, list) or not all(map(_are_facts, facts)):
        raise ValueError("not a list of facts")
    return facts


def _are_facts(entry: object) -> bool:
    is_text = isinstance(entry, dict) and all(isinstance(text, str) for text in entry.values())
    return is_text and "sha256" in entry  # type: ignore[operator]
