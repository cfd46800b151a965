"""Find the reasons to refuse a restore before its first record: pure functions of the plan.

Source: the order and meaning of the checks are those of "Checks before the first record"
in the documentation's explanation of guarantees.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kbackup import converters, formats, plugins
from kbackup.catalog.column import reads
from kbackup.catalog.findings import Finding
from kbackup.catalog.ledger.rows import PartitionLedger
from kbackup.catalog.listing import FactsOf, FileSet, Window
from kbackup.catalog.reading import facts
from kbackup.config import Settings
from kbackup.errors import (
    ConfigurationError,
    FeedbackLoopError,
    FewerPartitionsError,
    IllegalTopicNameError,
    IncompleteBackupError,
    KbackupError,
    MergedTopicsError,
    RefusedError,
    RetentionError,
    TargetNotEmptyError,
    counted,
    some,
)
from kbackup.naming import View, alike, check_topic
from kbackup.naming.renaming import is_internal
from kbackup.pipeline.views import CONVERTER, ReadOptions, ViewSpec, kept, registers, written_of
from kbackup.records import TopicPartition
from kbackup.restore.job import SAME
from kbackup.stores import Heads

APPEND_TIME: Final = "append_time"
"""Code of the warning that the target replaces the records' timestamps."""

_OLDEST_TAKEN: Final = (
    "message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms",  # the only one before Kafka 3.6
)

DEFAULT_MESSAGE_BYTES: Final = 1_048_588
"""Kafka's default of ``max.message.bytes``."""

_RENAME: Final = "--rename 'copy_of_$0'"


@dataclass(frozen=True, slots=True)
class Target:
    """A target topic as it stands before the restore.

    Attributes:
        partitions: Their number; None where the topic does not exist.
        records: Offsets between log start and end, of the partitions in which this restore has no
            position; once it has one in some, only of those that it is to write to.
        has_position: This restore has committed a position in some partition.
        config: Its settings, as far as they may be read.
    """

    partitions: int | None = None
    records: int = 0
    has_position: bool = False
    config: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class TopicCopy:
    """One topic's restore: from where to where.

    Attributes:
        partitions: Partitions of the backup.
        is_named: The operator named the source topic, instead of taking all that were found.
        is_same_cluster: The target cluster is the one the backup was made from; None: not known.
        is_watched: A sink of the same cluster backs the target topic up.
        oldest_timestamp: Lowest record timestamp in ms where known.
        known_partitions: How many the ledger says there were; 0 where it does not say.
        original: The settings of the topic that was backed up, as far as they are known.
        there: The target as it stands.
    """

    source: str
    target: str
    partitions: int
    is_named: bool = False
    is_same_cluster: bool | None = None
    is_watched: bool = False
    oldest_timestamp: int | None = None
    known_partitions: int = 0
    original: Mapping[str, str] = field(default_factory=dict)
    there: Target = field(default_factory=Target)

    @property
    def is_compacted(self) -> bool:
        """Whether the topic that was backed up was."""
        return "compact" in self.original.get("cleanup.policy", "")

    @property
    def message_bytes(self) -> int:
        """The original's ``max.message.bytes``; Kafka's default where it had none of its own."""
        return int(self.original.get("max.message.bytes", DEFAULT_MESSAGE_BYTES))


def grows(copy: TopicCopy, *, follows: bool, creates: bool) -> bool:
    """Whether the restore adds the partitions that its target lacks, as its source got them.

    Keys move to other partitions when a topic grows, and it never shrinks again.  So only a copy
    of this restore's own grows, or one without records while a restore follows.
    """
    if not creates or copy.there.partitions is None or copy.there.partitions >= copy.partitions:
        return False
    return copy.there.has_position or (follows and not copy.there.records)


def refusals(
    copy: TopicCopy, settings: Settings, *, now_ms: int, partitions: int
) -> Iterator[KbackupError]:
    """Yield every reason not to begin this topic's restore.

    *copy* is to the target with the settings that it has or is created with, and *partitions* is
    how many it has then, or is given by this restore.
    """
    yield from _name(copy)
    loop = None if settings.allow_same_topic else _feedback(copy)
    if loop is not None:
        yield loop
        return  # that it is not empty follows, and would only hide the reason
    if settings.partition_map == SAME and partitions < copy.partitions:
        has = "would have" if copy.there.partitions is None else "has"
        yield FewerPartitionsError(
            f"{copy.target} {has} {counted(partitions, 'partition')}, the backup has "
            f"{copy.partitions}",
            "records would have to change partition",
            "add partitions, choose another name, or --partition-map modulo or key",
            topic=copy.target,
        )
    yield from _retention(copy, now_ms)
    yield from _compaction(copy)
    if copy.there.partitions is None:
        if settings.if_exists == "resume":
            yield TargetNotEmptyError(
                f"there is no topic {copy.target} to resume into",
                "--if-exists resume requires a position",
                "leave out --if-exists resume to begin at the start",
                topic=copy.target,
            )
        if not settings.create_topics:
            yield RefusedError(
                f"topic {copy.target} does not exist",
                "--no-create-topics was given",
                "create it, or leave the option out",
                topic=copy.target,
            )
        return
    yield from _not_empty(copy, settings.if_exists)


def _name(copy: TopicCopy) -> Iterator[KbackupError]:
    try:
        check_topic(copy.target)
    except IllegalTopicNameError as error:
        yield error
        return
    if is_internal(copy.target) and not (copy.is_named and copy.source == copy.target):
        yield IllegalTopicNameError(
            f"{copy.target} is an internal topic",
            "Kafka or one of its services keeps its own state there",
            "leave it out, or name it with --topics if you really mean it",
            topic=copy.target,
        )


def _feedback(copy: TopicCopy) -> KbackupError | None:
    do = f"{_RENAME}   or, if you really mean it, --allow-same-topic"
    if copy.target != copy.source or copy.there.partitions is None:
        if not copy.is_watched:
            return None
        what = f"a sink of this cluster backs {copy.target} up"
        why = "each restored record would be backed up again"
    elif copy.is_same_cluster:
        what = f"restore would write to the topic it was backed up from ({copy.target})"
        why = "it would hold each restored record twice, and each would be backed up again"
    elif copy.is_same_cluster is None and copy.there.records:
        what = f"{copy.target} may be the topic that was backed up"
        why = "the backup does not say which cluster it comes from, and the topic has records"
        do = f"{_RENAME}   or, if it is another cluster, --allow-same-topic"
    else:
        return None
    return FeedbackLoopError(what, why, do, topic=copy.target)


def _not_empty(copy: TopicCopy, if_exists: str) -> Iterator[KbackupError]:
    if if_exists == "resume" and not copy.there.has_position:
        yield TargetNotEmptyError(
            f"there is no position to resume from in {copy.target}",
            "this restore has not committed one: another group, or it never ran",
            "leave out --if-exists resume to begin at the start",
            topic=copy.target,
        )
    elif if_exists != "append" and copy.there.records:
        yield TargetNotEmptyError(
            f"{copy.target} is not empty",
            f"it holds {counted(copy.there.records, 'offset')}, and this restore of {copy.source} "
            "has no position there",
            "choose another name, or --if-exists append to add to what is there",
            topic=copy.target,
        )


def _retention(copy: TopicCopy, now_ms: int) -> Iterator[KbackupError]:
    config = copy.there.config or {}
    retention = _number(config, "retention.ms")
    deletes = "delete" in config.get("cleanup.policy", "delete")
    append_time = config.get("message.timestamp.type") == "LogAppendTime"
    if append_time or copy.oldest_timestamp is None:
        return
    age = now_ms - copy.oldest_timestamp
    limits = {name: _number(config, name) for name in _OLDEST_TAKEN}
    too_small = [name for name, limit in limits.items() if age > limit >= 0]
    if too_small:
        yield RetentionError(
            f"{copy.target} does not take records as old as these",
            f"its {too_small[0]} is {limits[too_small[0]]}, the oldest is {age} ms old",
            "raise it on the topic, or restore into a topic that kbackup creates",
            topic=copy.target,
        )
    if deletes and 0 <= retention < age:
        yield RetentionError(
            f"{copy.target} would delete restored records at once",
            f"its retention.ms is {retention}, the oldest record is {age} ms old",
            "set retention.ms=-1 on the topic until the restore has been checked",
            topic=copy.target,
        )


def too_large(copy: TopicCopy, stored_bytes: int) -> Iterator[KbackupError]:
    """Refuse a target that keeps fewer bytes of a partition than there are to restore.

    How many the records take in its log is not known: they may be compressed otherwise there.
    """
    config = copy.there.config or {}
    limit = _number(config, "retention.bytes")
    if "delete" in config.get("cleanup.policy", "delete") and 0 <= limit < stored_bytes:
        yield RetentionError(
            f"{copy.target} would delete restored records",
            f"its retention.bytes is {limit}, and the objects of one partition have {stored_bytes}",
            "set retention.bytes=-1 on the topic until the restore has been checked",
            topic=copy.target,
        )


def _compaction(copy: TopicCopy) -> Iterator[KbackupError]:
    if "compact" in (copy.there.config or {}).get("cleanup.policy", "") and not copy.is_compacted:
        yield RetentionError(
            f"{copy.target} would delete restored records",
            "its cleanup.policy is compact, and that of the topic that was backed up is not known "
            "to be: only the newest record of each key would stay",
            "leave cleanup.policy=delete until the restore has been checked",
            topic=copy.target,
        )


def _number(config: Mapping[str, str], name: str) -> int:
    """Return a setting; -1 where it is not given, or no number, which the cluster refuses."""
    try:
        return int(config.get(name, -1))
    except ValueError:
        return -1


def unreplicable(copy: TopicCopy, factor: int | None, brokers: int) -> list[KbackupError]:
    """Refuse more replicas than brokers, as the cluster would; *factor* is None for its default."""
    if copy.there.partitions is not None or factor is None or factor <= brokers:
        return []
    return [
        RefusedError(
            f"{copy.target} cannot be created with --replication-factor {factor}",
            f"the cluster has {brokers} broker{'s' if brokers > 1 else ''}",
            "give fewer, or leave it to the cluster's default",
            topic=copy.target,
        )
    ]


def warnings(copy: TopicCopy) -> Iterator[tuple[str, str]]:
    """Yield what the target would change, and what the operator should know."""
    config, name = copy.there.config or {}, copy.target
    if copy.oldest_timestamp is None and _number(config, "retention.ms") >= 0:
        why = "how old these are is not known in advance"
        yield "retention", f"{name} deletes old records, and {why}"
    if _number(config, "retention.bytes") >= 0:
        yield "retention", f"{name} deletes records beyond its retention.bytes"
    if "compact" in config.get("cleanup.policy", ""):
        yield "compacted", f"{name} is compacted: it will keep only the newest record of each key"
    if config.get("message.timestamp.type") == "LogAppendTime":
        yield APPEND_TIME, f"{name} has LogAppendTime: it replaces the records' timestamps"


def small_messages(copy: TopicCopy, limit: int | None) -> list[tuple[str, str]]:
    """Warn of a target that takes smaller messages than its original did.

    How large the records of a backup are is not known before they are read.
    """
    if limit is None or limit >= copy.message_bytes:
        return []
    is_default = copy.message_bytes == DEFAULT_MESSAGE_BYTES
    than = "Kafka's default" if is_default else f"the {copy.message_bytes} of {copy.source}"
    text = (
        f"its max.message.bytes is {limit}, less than {than}: records larger than that are bad "
        "records; raise it first"
    )
    return [("message_size", f"{copy.target}: {text}")]


def collisions(copies: Iterable[TopicCopy], there: Collection[str] = ()) -> Iterator[KbackupError]:
    """Yield the reasons that concern several topics at once, with those that are *there*."""
    by_target: dict[str, list[str]] = {}
    by_metric: dict[str, set[str]] = {}
    for copy in copies:
        by_target.setdefault(copy.target, []).append(copy.source)
        by_metric.setdefault(copy.target.replace(".", "_"), set()).add(copy.target)
    for target, sources in sorted(by_target.items()):
        if len(sources) > 1:
            yield MergedTopicsError(
                f"{' and '.join(sorted(sources))} would both be written to {target}",
                "their records could not be told apart again",
                "restore them one by one with --if-exists append, or choose another renaming",
                topic=target,
            )
    taken = {name.replace(".", "_"): name for name in sorted(there)}
    for metric, targets in by_metric.items():
        new = sorted(targets.difference(there))
        both = sorted({*targets, taken.get(metric, new[0])}) if new else []
        if len(both) > 1:
            yield alike(both, new[0], "choose another renaming")


PARTITIONS_BELIEVED: Final = 10_000
"""A backup without a ledger may name partitions below this without a question."""


def unbelievable(copy: TopicCopy, highest: int) -> list[KbackupError]:
    """Refuse a *highest* partition that only a planted or mistaken name can have."""
    known = copy.known_partitions
    if highest < known or (not known and highest < PARTITIONS_BELIEVED):
        return []
    says = f"the ledger says {known}" if known else "no ledger says so"
    return [
        RefusedError(
            f"{copy.source}: an object's name claims that there is a partition {highest}",
            f"{says}; the target would get {counted(highest + 1, 'partition')}",
            "check that object; move it away, or restore with --partitions",
            topic=copy.target,
        )
    ]


def untimed(where: TopicPartition, sets: Sequence[FileSet], window: Window) -> list[KbackupError]:
    """Refuse to choose by time among records whose layout does not store timestamps."""
    values = next((files for files in sets if not (files.is_whole or files.is_generic)), None)
    if values is None or not window.has_times:
        return []
    do = "choose by --as-of, which goes by when objects were stored"
    if not _are_spread(sets):
        do += ", or by --from-offset and --to-offset"
    return [
        RefusedError(
            f"{where}: {values.id} does not say when its records were written",
            "objects of values alone store no timestamps",
            do,
            topic=where.topic,
        )
    ]


def unplaced(
    where: TopicPartition, sets: Sequence[FileSet], window: Window, facts_of: FactsOf
) -> list[KbackupError]:
    """Refuse to cut an object of values at an offset when its rows do not know theirs."""
    # they are counted from the first one, which is wrong where one was left out: in a partition
    # spread over directories, by compaction, an aborted transaction or a tombstone
    is_spread = _are_spread(sets)
    for files in (each for each in sets if not each.is_whole):
        known, first = facts_of(files), files.start_offset
        if known is None and not is_spread:
            continue  # another tool's: nothing says that an offset was left out
        last = None if known is None else known.last_offset
        if (known is None or not known.is_dense) and window.offset.divides(first, last):
            why, do = (
                "objects of values alone store the first one only, and here some were left out",
                "choose offsets at which objects begin, as their names say",
            )
            if known is None:  # objects of one time, side by side, may hold offsets in turns
                why = "objects of values in several directories say where they begin, not where "
                why += "they end"
                do = "choose by --as-of, which goes by when objects were stored, or restore all"
            what = f"{where}: {files.id} does not say which offsets its records have"
            return [RefusedError(what, why, do, topic=where.topic)]
    return []


def _are_spread(sets: Sequence[FileSet]) -> bool:
    return len({files.encoded_partition for files in sets if not files.is_whole}) > 1


def unconvertible(
    topic: str, sets: Iterable[FileSet], options: ReadOptions
) -> tuple[list[tuple[str, str]], list[KbackupError]]:
    """Find out which objects the configured converters cannot read.

    The format of what a sink writes, or its converter, may have changed since they were stored.

    Returns:
        Warnings of those that their format's own converter reads, and the errors of the others.
    """
    found = _by_format(sets)
    warnings, errors = [], list[KbackupError]()
    for (view, form), keys in sorted(found.items()):
        given = options.converter(view)
        if given is None or reads(given, form):
            continue
        name = "key.converter" if view is View.KEY else "value.converter"
        what = f"{topic}: {counted(len(keys), f'{form} object')}"
        own = formats.by_name(form).traits.assumed.get(view)
        if own is None or converters.registers(given):
            do = f"restore them with the {name} that their records were written with, or choose "
            do += "other objects with --only-format"
            why = f"{name}={given} cannot make records of {form} files again"
            if converters.registers(given):
                why += ": they keep no schemas"
            errors.append(ConfigurationError(f"{what} cannot be read: {some(keys, 3)}", why, do))
        else:
            text = f"{what} that {name}={given} cannot read: the converter that they name is used, "
            text += f"else {name}={own}, {form}'s own"
            warnings.append(("own_converter", text))
    return warnings, errors


def _by_format(sets: Iterable[FileSet]) -> Mapping[tuple[View, str], Sequence[str]]:
    found: defaultdict[tuple[View, str], list[str]] = defaultdict(list)
    for files in sets:
        if not (files.is_whole or files.is_generic):
            for file in files.files:
                if file.view is not View.HEADERS:
                    found[file.view, file.format].append(file.key)
    return found


def written_otherwise(
    heads: Heads, topic: str, sets: Iterable[FileSet], options: ReadOptions
) -> list[tuple[str, str]]:
    """Warn of objects that say they were written with something else than is configured.

    They are read as they were written, but by a converter that was asked for.  The first and the
    last of each format are asked.
    """
    warnings = []
    for (view, form), keys in sorted(_by_format(sets).items()):
        given = options.converter(view)
        if given is not None and not (view in options.unasked and reads(given, form)):
            given = None  # it was asked for, or `unconvertible` says so
        spec = ViewSpec(view, form, options.formats, given, options.properties.get(view, {}))
        asked, own_options = spec.written_with, {each.name for each in kept(form)}
        for name in own_options - {*options.formats.values}:
            asked.pop(name)
        for key in dict.fromkeys((keys[0], keys[-1])) if asked else ():
            head = heads.head(key)
            own = {} if head is None else written_of(head.metadata)
            others = [name for name in own if name in asked and own[name] != asked[name]]
            if others:
                name = "" if CONVERTER in others else others[0]
                if name not in own_options:
                    part = "key" if view is View.KEY else "value"
                    name = f"{part}.converter.{name}".removesuffix(".")
                text = f"{topic}: {key} was written with another {name} than is configured; "
                if CONVERTER in others and registers(own[CONVERTER], key):
                    text += f"{own[CONVERTER]} needs a registry, so {given} reads such objects"
                else:
                    text += "such objects are read as they were written"
                warnings.append(("own_converter", text))
    return warnings


def unset(
    heads: Heads, topic: str, sets: Iterable[FileSet], options: ReadOptions
) -> list[KbackupError]:
    """Refuse objects of formats that need an option which nobody has given, nor they say."""
    errors, given = list[KbackupError](), options.formats.values
    for form, key in {file.format: file.key for files in sets for file in files.files}.items():
        for each in plugins.options("formats", form):
            if each.is_required and each.commands != "sink" and each.name not in given:
                head = heads.head(key)
                if head is None or each.name not in written_of(head.metadata):
                    what = f"{topic}: {key} cannot be read: {each.name} is not set"
                    why, do = f"the format {form} needs it", f"set {each.name}: {each.help}"
                    errors.append(ConfigurationError(what, why, do, property=each.name))
    return errors


def splittable(heads: Heads, where: TopicPartition, sets: Sequence[FileSet]) -> list[KbackupError]:
    """Refuse to split byte-array files of another tool unless the operator agreed."""
    asked = set()
    for files in sets:
        for file in files.files if files.index is None else ():  # an index knows how many
            if not formats.by_name(file.format).traits.splits_at or file.view in asked:
                continue
            if file.sha256 and file.records is not None:
                continue  # the ledger knows how many, whatever became of the metadata
            asked.add(file.view)  # who wrote one of them wrote all
            if facts(heads, file) is None:
                what = "keys" if file.view is View.KEY else "values"
                return [
                    RefusedError(
                        f"{where}: {file.key} may hold {what} that contain the separator",
                        "another tool wrote it, and it is not known how many records it has",
                        f"give --yes-split-on-newline if none of the {what} contains it",
                        topic=where.topic,
                    )
                ]
    return []


def known_gone(
    where: TopicPartition,
    target: str,
    findings: Iterable[Finding],
    window: Window,
    ledger: PartitionLedger,
) -> list[KbackupError]:
    """Return the errors of what is known to be gone of a partition that is restored to *target*."""
    found: list[KbackupError] = []
    for finding in findings:
        entry = ledger.objects.get(finding.key or "") if finding.code == "missing_object" else None
        known = None if entry is None else entry.facts
        if not finding.is_error or (finding.offsets and not window.asks(*finding.offsets, known)):
            continue
        if finding.do:
            found.append(finding.error())
        elif finding.code == "missing_object":
            first, last = finding.offsets or (None, None)
            found.append(
                IncompleteBackupError(
                    f"{where}: {finding.key or 'an object'} is missing",
                    f"a run stored it; it holds offsets {first} to {last}",
                    "kbackup restore verify says how to back these offsets up again; to "
                    "restore the others: --behavior-on-error log",
                    topic=target,
                    offsets=list(finding.offsets or ()),
                )
            )
        elif finding.code == "count_mismatch":
            found.append(finding.error())  # less than the ledger says was stored
    return found


def not_stored(
    source: str, sets: Iterable[FileSet], facts_of: FactsOf, *, had_objects: bool = False
) -> list[tuple[str, str]]:
    """Report once what is not stored of a topic: all of it, or what the connectors' layout lacks.

    If it *had_objects*, those that are gone are missed elsewhere.
    """
    stored = list(sets)
    if not stored and had_objects:
        return []
    if not stored:
        text = "no record of it is stored: either it was empty, or no run has got that far"
        return [("nothing_stored", f"{source}: {text}")]
    values = [files for files in stored if not (files.is_whole or files.is_generic)]
    if not values:
        return []
    lacking = []
    keyless = [files for files in values if files.keys is None and not files.is_tombstones]
    bare = [files for files in values if files.headers is None]
    for part, without, none in (("keys", keyless, "no key"), ("headers", bare, "none")):
        if len(without) == len(values):
            lacking.append((f"no_{part}", f"{part} were not stored: records will have {none}"))
        elif without:
            text = f"{counted(len(without), 'object')} without {part}: their records will have none"
            lacking.append((f"some_{part}", text))
    lacking.append(("no_timestamps", "timestamps were not stored: records get the current time"))
    folders: dict[TopicPartition, set[str]] = {}
    for files in values:
        if files.is_tombstones and facts_of(files) is not None:
            continue  # a sink of ours keeps the order of each key's records
        folders.setdefault(files.where, set()).add(files.encoded_partition)
    if any(len(names) > 1 for names in folders.values()):
        text = "offsets were not stored: records keep their order within a directory only"
        lacking.append(("order", text))
    return [(code, f"{source}: {text}") for code, text in lacking]
