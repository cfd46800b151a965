"""The bucket or folder: whether it can be read and written, and what happens to a backup in it."""

import hashlib
import io
import logging
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from kbackup.config import Settings
from kbackup.config.settings import PLACES
from kbackup.doctor import Check, failed
from kbackup.errors import KbackupError, counted
from kbackup.naming import Layout
from kbackup.runs import wiring
from kbackup.stores import Store, open_store
from kbackup.stores.abilities import Bucket, BucketFacts

_log: Final = logging.getLogger(__name__)

_EXACT_S: Final = 2.0
"""Servers report their time in whole seconds, and an answer takes a while."""

_CLOCKS_S: Final = 30.0
"""How far clocks may differ before a warning."""

_REFUSED_S: Final = 900.0
"""How far clocks may differ before S3 refuses requests."""

_UNTOLD: Final = "not checkable"


def open_for(settings: Settings) -> Store | Check:
    """Return the store, or why there is none to check."""
    if not settings.url:
        do = "name the bucket, -b BUCKET, or a folder, --store-url file:///FOLDER"
        return Check("store", "bucket", "warn", f"not checked: no {PLACES[0].name}", do)
    try:
        return open_store(wiring.store_settings(settings))
    except KbackupError as error:
        return failed("store", "bucket", error)


def checks(store: Store, settings: Settings, *, writes: bool) -> Iterator[Check]:
    """Yield the checks of the store.

    Args:
        store: As `open_for` returns it.
        settings: As for a run.
        writes: Put probe objects into the folder of run records, and delete them.
    """
    layout = wiring.layout(settings)
    readable = _readable(store, settings, layout)
    yield readable
    if readable.level == "fail":
        return  # no other request would be answered
    ahead = None
    if writes:
        written, ahead = _probe(store, settings, layout)
        yield from written
    if isinstance(store, Bucket):
        try:
            facts = store.bucket_facts()
        except KbackupError as error:
            yield failed("store", "facts", error)
            return
        yield _clock(facts.clock_ahead_s, facts.untold.get("clock_ahead_s", ""))
        yield from _facts(facts, layout)
    else:
        yield _clock(ahead, "" if writes else "without --write-probe")


def _readable(store: Store, settings: Settings, layout: Layout) -> Check:
    where = f"{settings.url}/{layout.prefix()}"
    try:
        first = next(iter(store.list(layout.prefix())), None)
        if first is None:
            return Check("store", "readable", "ok", f"{where} can be listed; it holds nothing yet")
        store.head(first.key)  # needs the right to read it
    except KbackupError as error:
        return failed("store", "readable", error)
    return Check("store", "readable", "ok", f"{where} can be listed and read")


def _probe(store: Store, settings: Settings, layout: Layout) -> tuple[list[Check], float | None]:
    """Write, read and delete probes; also return how far the store's clock is ahead, in seconds."""
    key = f"{layout.records_prefix()}probe-{secrets.token_hex(8)}"
    body = b"kbackup doctor was here\n"
    sha256 = hashlib.sha256(body).hexdigest()
    done, found = ["put", "head", "delete"], []
    try:
        store.put(key, io.BytesIO(body), sha256=sha256, metadata={})
        now = datetime.now(UTC)
        head = store.head(key)
        if isinstance(store, Bucket):
            store.probe_upload(key)
            done[2:2] = ["upload in parts", "abort"]
            found.append(_conditions(store.probe_conditions(key)))
        store.delete(key)
    except KbackupError as error:
        _remove(store, key)
        return [failed("store", "writable", error)], None
    if head is None or head.size != len(body):
        why = f"{settings.url}/{key} was stored, but cannot be found"
        return [Check("store", "writable", "fail", why, "do not use this store")], None
    text = f"{settings.url}: {', '.join(done)}"
    written = Check("store", "writable", "ok", text)
    return [written, *found], (head.modified - now).total_seconds()


def _conditions(missing: tuple[str, ...]) -> Check:
    if not missing:
        text = "an object is stored or replaced only if no other run was faster"
        return Check("store", "conditional writes", "ok", text)
    text = f"the server ignores {', '.join(missing)}: when two runs meet, one may replace more "
    text += "records with fewer"
    do = "do not use --no-lock, and make sure that no other tool writes to this topics.dir"
    return Check("store", "conditional writes", "warn", text, do)


def _remove(store: Store, key: str) -> None:
    """Delete what a failed probe may have left; the first error matters more than one here."""
    try:
        store.delete(key)
    except KbackupError as error:
        _log.warning("the probe object %s may remain: %s", key, error)


def _clock(ahead_s: float | None, why: str) -> Check:
    do = "set the clock of this host, or of the store"
    if ahead_s is None:
        return Check("store", "clock", "warn", f"{_UNTOLD}{f': {why}' if why else ''}")
    text = f"the store's is {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}"
    if abs(ahead_s) <= _EXACT_S:
        return Check("store", "clock", "ok", "the store's is the same as this host's")
    if abs(ahead_s) > _REFUSED_S:
        return Check("store", "clock", "fail", text, do)
    if abs(ahead_s) > _CLOCKS_S:
        return Check("store", "clock", "warn", text, do)
    return Check("store", "clock", "ok", text)


def _facts(facts: BucketFacts, layout: Layout) -> Iterator[Check]:
    def untold(name: str, attribute: str) -> Check:
        return Check("store", name, "warn", f"{_UNTOLD}: {facts.untold.get(attribute, '')}")

    if facts.versioning is None:
        yield untold("versioning", "versioning")
    elif facts.versioning == "Enabled":
        yield Check("store", "versioning", "ok", "on")
    else:
        text = "off: an object that is deleted or overwritten by mistake is gone"
        yield Check("store", "versioning", "warn", text, "turn on versioning for the bucket")
    if facts.object_lock is None:
        yield untold("object lock", "object_lock")
    else:
        yield Check("store", "object lock", "ok", facts.object_lock or "off")
    if facts.rules is None:
        yield untold("lifecycle", "rules")
    else:
        yield from _lifecycle(facts, layout)


def _lifecycle(facts: BucketFacts, layout: Layout) -> Iterator[Check]:
    keys, rules = layout.prefix(), facts.rules or ()
    aborting = [
        rule for rule in rules if rule.abort_days is not None and keys.startswith(rule.prefix)
    ]
    if aborting:
        days = counted(aborting[0].abort_days or 0, "day")
        text = f"unfinished uploads are aborted after {days}"
        yield Check("store", "lifecycle", "ok", text)
    else:
        text = "what a killed run leaves of an unfinished upload is kept, and billed, for ever"
        do = "add a rule AbortIncompleteMultipartUpload of 7 days"
        yield Check("store", "lifecycle", "warn", text, do)
    for rule in rules:
        is_ours = keys.startswith(rule.prefix) or rule.prefix.startswith(keys)
        if rule.expire_days is not None and is_ours:
            text = f"rule {rule.name} deletes objects under {rule.prefix or 'any key'} "
            text += f"after {counted(rule.expire_days, 'day')}: a restore will find them missing"
            yield Check("store", "expiration", "warn", text, "leave the backup out of the rule")
