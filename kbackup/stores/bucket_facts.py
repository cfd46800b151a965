"""Facts about a bucket beyond its objects; not every store has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """An enabled rule of a bucket.

    Attributes:
        name: Its ID.
        prefix: The keys it is about begin with this; empty for all.
        abort_days: Days after which unfinished uploads are thrown away; None: not by this rule.
        expire_days: Days after which objects are deleted; None: not by this rule.
    """

    name: str
    prefix: str
    abort_days: int | None
    expire_days: int | None


@dataclass(frozen=True, slots=True)
class BucketFacts:
    """What a server says about a bucket; None where it does not.

    Attributes:
        clock_ahead_s: Seconds that the server's clock is ahead of this host's.
        versioning: ``Enabled``, ``Suspended``, or empty where it was never switched on.
        object_lock: What new objects are locked for, such as ``GOVERNANCE 30 days`` or ``on``;
            empty where there is no lock.
        rules: The enabled lifecycle rules that abort uploads or delete objects.
        untold: Why, for each of these attributes that is None.
    """

    clock_ahead_s: float | None
    versioning: str | None
    object_lock: str | None
    rules: tuple[LifecycleRule, ...] | None
    untold: Mapping[str, str]


@runtime_checkable
class Bucket(Protocol):
    """A store that knows such facts, and can try an upload in parts."""

    def bucket_facts(self) -> BucketFacts:
        """Ask for the facts; what is denied, or not implemented, is None.

        Raises:
            StoreError: If the bucket does not answer at all.
        """
        ...

    def probe_upload(self, key: str) -> None:
        """Upload *key*, a few bytes, in parts; then begin to again and abort it.

        Raises:
            StoreError: If one of the steps is refused.
        """
        ...

    def probe_conditions(self, key: str) -> tuple[str, ...]:
        """Try conditions that must fail on *key*, where an object is; it may be another one then.

        Returns:
            What the server does not keep to, such as ``If-Match on PutObject``; empty where it
            keeps to all that `Store.put` relies on.

        Raises:
            StoreError: If a request fails for another reason.
        """
        ...
