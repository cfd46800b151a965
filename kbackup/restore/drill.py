"""``restore drill``: restore into topics of its own, compare every record, delete them again.

What a drill is about to create is stored in the bucket first, under names that nobody else has
(`kbackup.catalog.drills.Scratch`), and the ids of its topics before their first record.  It deletes
only topics that have these ids still; one whose id was not stored, as after a kill, only while it
is empty.  So whatever ends a drill, the next one deletes what is left, and nothing of others.

The restore, its groups and the comparison are those that a recovery would run: each is given the
same objects, the newest of each partition, whatever a sink stores meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Final, TypeVar

from kbackup import converters
from kbackup.catalog import drills, identity
from kbackup.catalog import groups as captured
from kbackup.catalog.drills import DrillAge, DrillGroup, DrillReport, DrillTopic, Scratch
from kbackup.catalog.groups import TopicCapture
from kbackup.catalog.identity import BackupIdentity
from kbackup.catalog.listing import FileSet, object_bytes
from kbackup.catalog.translated import TranslationLog
from kbackup.clock import Clock
from kbackup.config import Settings
from kbackup.errors import (
    DiffersError,
    KafkaError,
    KbackupError,
    RefusedError,
    counted,
)
from kbackup.events import Ended, Tell
from kbackup.kafka import Topic
from kbackup.naming.renaming import Rename, matching
from kbackup.records import Span, TopicPartition
from kbackup.restore.against_target import verify_against_target
from kbackup.restore.configs import COPY_CONFIG
from kbackup.restore.groups import GroupsOptions, GroupsRun, GroupsSet, GroupTranslated, captured_of
from kbackup.restore.plan import RestorePlan
from kbackup.restore.restored import why_spread
from kbackup.restore.run import RestoreRun
from kbackup.runs import backup_state, history, wiring
from kbackup.runs.context import Environment, Stop
from kbackup.runs.history import Estimate
from kbackup.runs.inventory import Inventory, listed, newest
from kbackup.runs.locks import RunLock, lost_lock
from kbackup.runs.report import Summary
from kbackup.runs.status import complete_up_to
from kbackup.spark.channel import Timings
from kbackup.stores import ARCHIVED, Seals, Store, open_store

if TYPE_CHECKING:
    from kbackup.runs.compare import PartitionCompared

_T = TypeVar("_T")

NOTHING_COMPARED: Final = "drills_without_records"
"""Counts drills that had no record to compare, which prove nothing."""

_LOOKS: Final = 50
_LOOK_S: Final = 0.1
"""How often a cluster is asked about a topic that was just created, and how long to wait then."""

_WORST: Final = ("differs", "not comparable")
"""Verdicts that outweigh others of a topic."""


@dataclass(frozen=True, slots=True)
class DrillOptions:
    """What a drill is asked for.

    *sample_bytes* is how much of each topic to restore, of its newest objects, None: all; *key*
    signs the report, if there is one.
    """

    sample_bytes: int | None = None
    rto_s: float | None = None
    rpo_s: float | None = None
    key: drills.Sign | None = None


@dataclass(frozen=True, slots=True)
class DrillSample:
    """What of a backup a drill restores; *sets* are all objects of each topic."""

    inventory: Inventory
    sets: Mapping[str, Sequence[FileSet]]

    @classmethod
    def of(cls, settings: Settings, store: Store, clock: Clock, most: int | None) -> "DrillSample":
        """Take stock of a backup, and choose; *most* is as of `DrillOptions.sample_bytes`."""
        said = backup_state.read(store, wiring.layout(settings), clock, settings.asked)
        found = listed(settings, store, settings.topics, said)
        every = Inventory(settings, store, found, said)
        sets: dict[str, list[FileSet]] = {}
        tails: dict[TopicPartition, Span] = {}
        for topic in every.topics():
            wanted = {*every.wanted(topic)}
            sets[topic] = [files for files in every.sets(topic) if files.where in wanted]
            tails |= newest(topic, every, most)
        settings = settings.replace(topics=tuple(sets), topics_regex=None, topics_exclude=None)
        return cls(Inventory(settings, store, found, said, tails), sets)

    @property
    def settings(self) -> Settings:
        """Those of the restore."""
        return self.inventory.settings

    def taken(self, topic: str) -> list[FileSet]:
        """Return the objects of a topic that are restored."""
        wanted = {*self.inventory.wanted(topic)}
        return [files for files in self.inventory.sets(topic) if files.where in wanted]


def rehearsed(settings: Settings, drill_id: str) -> Settings:
    """Return the settings of a drill's restore: all names are its own, and no error is passed."""
    template = f"{name_of(drill_id)}_$0"
    return settings.replace(
        renames=(Rename(regex="(?s).+", replacement=template),), rename=template,
        rename_prefix=None, rename_regex=None, group=name_of(drill_id), if_exists="fail",
        create_topics=True, partition_map="same", target_partitions=None, exactly_once=True,
        topic_config={**settings.topic_config, **COPY_CONFIG}, topic_settings="safe",
        behavior_on_error="fail", parse_error_topic_prefix=None, schema_registry_url=(),
        allow_same_topic=False, follow=False, skipped_file=None, metrics_file=None,
        metrics_listen=None, no_lock=False, from_time=None, to_time=None, from_offset=None,
        to_offset=None, as_of=None,
    )  # fmt: skip


def name_of(drill_id: str) -> str:
    """Return how topics and groups of a drill begin; the group of its positions has no more."""
    return f"{drills.PREFIX}{drill_id}"


def _not_ours(name: str, *, has_id: bool) -> KbackupError:
    why = "it holds records, and no id of a topic that the drill created was stored"
    if has_id:
        why = "it has another id than the topic that the drill created"
    return RefusedError(
        f"topic {name} was not deleted", why, "delete it by hand if nobody needs it", topic=name
    )


def _seconds_of(size: int, past: Iterable[DrillReport]) -> float | None:
    """Return how long a drill of *size* bytes takes, as the newest did; None without one."""
    for one in past:
        if read := sum(topic.size_bytes for topic in one.topics):
            return round(sum(one.seconds.values()) * size / read, 1)
    return None


def _unfit(plan: RestorePlan, settings: Settings) -> Iterator[KbackupError]:
    """Yield why a drill may not begin: it would leave something, or write to others' topics."""
    for topic in plan.topics:
        if topic.action != "create":
            name, why = topic.copy.target, "something else created it"
            yield RefusedError(f"topic {name} already exists", why, "run the drill again")
    given = {settings.key_converter, settings.value_converter} - {None}
    sets = (files for unit in plan.units() for files in unit.sets)
    if any(converters.registers(str(name)) for name in given) and any(
        not files.is_whole for files in sets
    ):
        what = "a drill of these objects would leave schemas in the Schema Registry"
        why, do = "their converter registers them", "restore a topic beside its original instead"
        yield RefusedError(what, why, do)


def _undeletable(what: str) -> KafkaError:
    do = f"allow DELETE on topics and groups that begin with {drills.PREFIX} (kafka-acls)"
    return KafkaError(f"this principal may not delete {what}", "DELETE is denied", do)


def _nameless(name: str) -> KafkaError:
    why = "the cluster does not report its topic id, by which the drill would delete it"
    return KafkaError(f"topic {name} cannot be used", why, "check the brokers")


class Phases:
    """How long each phase takes."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._name, self._since = clock, "", clock.steady_s()
        self.seconds: dict[str, float] = {}

    def enter(self, name: str) -> None:
        """End the phase that lasts, and begin another; without a name none."""
        now = self._clock.steady_s()
        if self._name:
            lasted = self.seconds.get(self._name, 0.0) + now - self._since
            self.seconds[self._name] = round(lasted, 3)
        self._name, self._since = name, now

    def until(self, last: str) -> float:
        """Return how long all phases took, up to the end of one."""
        names = [*self.seconds]
        end = names.index(last) + 1 if last in names else len(names)
        return round(sum(self.seconds[name] for name in names[:end]), 3)


class DrillRun:
    """One drill, from settings to summary.

    *settings* are those of the recovery that is rehearsed, and *inventory* what is restored.  When
    *stop* is set, it ends at its next safe point, and deletes what it made.
    """

    inventory: Inventory

    def __init__(
        self,
        settings: Settings,
        tell: Tell,
        stop: Stop,
        environment: Environment,
        options: DrillOptions,
    ) -> None:
        self._tell, self._stop, self._environment, self._options = tell, stop, environment, options
        self._id = token_hex(4)
        self._settings = rehearsed(settings, self._id)
        self._began = environment.clock.now()
        self._summary = Summary(history.new_run_id(self._began), "restore drill")
        self._layout = wiring.layout(settings)
        self._phases = Phases(environment.clock)
        self._scratch: Scratch | None = None
        self._sample: DrillSample | None = None
        self._captures: dict[str, TopicCapture] = {}
        self._groups: tuple[DrillGroup, ...] = ()
        self._compared: list[PartitionCompared] = []
        self._spark_start_s = 0.0

    def __call__(self) -> Ended:
        """Run to the end; failures are in the summary, and nothing is raised but usage errors."""
        try:
            self._run()
        except KbackupError as error:
            if error.begins_nothing:
                raise
            self._summary.fail(error)
        finally:
            self._environment.run_tasks.end()
        return self._summary.finish(self._stop.signal)

    def _run(self) -> None:
        if (why := why_spread(self._settings)) is not None:
            do = "rehearse it with a restore and a program of your own"
            raise RefusedError("this restore cannot be compared", why, do)
        settings, environment = self._settings, self._environment
        cluster, store = environment.kafka.cluster(), open_store(environment.store)
        backup = identity.read(store, self._layout, wiring.address(settings).address)
        self._cluster, self._store = cluster, store
        if settings.dry_run:
            self._rehearse()
            return
        lock = RunLock.for_settings(
            settings, backup, store, self._layout, "drill", ["drill"], self._summary.run,
            self._stop.event.wait,
        )  # fmt: skip
        with lock as held:
            for scratch in drills.left_over(store, self._layout):
                if scratch.cluster_id == cluster.cluster_id:
                    self._say_cleared(*self._clear(scratch))
            self._drill(backup)
            if held is not None and held.is_lost:
                self._summary.fail(lost_lock())

    def _say_cleared(self, deleted: int, left: Sequence[KbackupError]) -> None:
        """Say what an earlier drill had left: no failure of this one."""
        if deleted:
            text = f"{counted(deleted, 'topic')} of an earlier drill deleted"
            self._tell(self._summary.warn("drill_left_over", text))
        for error in left:
            self._tell(self._summary.warn("drill_left_over", str(error), **error.place))

    def _drill(self, backup: BackupIdentity) -> None:
        phases, deleted = self._phases, 0
        try:
            self._rehearse()
        except KbackupError as error:
            if error.begins_nothing and self._scratch is None:
                raise
            self._summary.fail(error)
        phases.enter("clean-up")
        if self._scratch is not None:
            deleted, left = self._clear(self._scratch)
            for failure in left:
                self._summary.fail(failure)
        phases.enter("")
        if self._sample is None or self._stop.is_set():
            return
        report = self._judged(self._sample, backup)
        whole = sum(map(object_bytes, self._sample.sets.values()))
        self._summary.facts |= {"drill": report, "deleted": deleted, "whole_bytes": whole}
        drills.store_report(self._store, self._layout, report, key=self._options.key)

    # what drills have made, this one or one that was killed, or could not delete it

    def _clear(self, scratch: Scratch) -> tuple[int, list[KbackupError]]:
        """Delete what one drill has made; return how many topics, and why others were not."""
        there = self._cluster.topics(scratch.topics)
        own, left = [], list[KbackupError]()
        for name, topic in there.items():
            stored = scratch.topics[name]
            if topic.topic_id == stored if stored else self._is_unused(topic):
                own.append(name)
            else:
                left.append(_not_ours(name, has_id=bool(stored)))
        failed = self._cluster.delete_topics(own) if own else {}
        group = name_of(scratch.id)
        failed |= self._cluster.delete_groups([*scratch.groups, group])
        if not failed:
            TranslationLog(self._store, self._layout, group, self._environment.clock).delete()
            GroupsSet.delete(self._store, self._layout, scratch.id)
            drills.forget(self._store, self._layout, scratch.id)
        return sum(name not in failed for name in own), [*left, *failed.values()]

    def _is_unused(self, topic: Topic) -> bool:
        spans = self._cluster.spans(topic.wheres, committed_only=False)
        return not any(span.end_offset for span in spans.values())

    # the phases

    def _rehearse(self) -> None:
        """Restore, set groups, compare; of a dry run only the plan."""
        environment, summary, store = self._environment, self._summary, self._store
        self._phases.enter("plan")
        most = self._options.sample_bytes
        sample = DrillSample.of(self._settings, store, environment.clock, most)
        self._sample, self.inventory = sample, sample.inventory
        self._captures = self._captured(sample)
        self._check_oldest(sample)
        ended = RestoreRun(sample.settings, self._tell, self._stop, environment, rehearsal=self)()
        self._take(ended)
        if self._settings.dry_run and isinstance(found := ended.facts.get("estimate"), Estimate):
            past = drills.newest_first(store, self._layout)
            summary.facts["estimate"] = replace(found, seconds=_seconds_of(found.bytes or 0, past))
        if self._settings.dry_run or ended.errors or self._stop.is_set():
            return
        if any(capture.offsets for capture in self._captures.values()):
            self._phases.enter("groups")
            self._set_groups(sample)
        self._phases.enter("comparison")
        beside = Summary(summary.run, summary.command)
        compared = verify_against_target(
            sample.settings, environment, beside, self._stop.event, sample.inventory
        )
        for row in compared:
            self._compared.append(row)
            self._tell(row)
        if not self._stop.is_set():
            self._take(beside.finish())
            self._check_counts(ended)

    def _check_oldest(self, sample: DrillSample) -> None:
        """See that the given key opens what was encrypted first, whatever is restored."""
        every = [file for sets in sample.sets.values() for files in sets for file in files.files]
        there = [file for file in every if file.storage_class not in ARCHIVED]
        if there and isinstance(self._store, Seals):
            self._store.open(min(there, key=lambda file: file.modified).key).close()

    def planned(self, plan: RestorePlan) -> None:
        """Store the names of what is to be created, which is not if the drill may not delete it."""
        for refusal in _unfit(plan, self._settings):
            raise refusal
        own = name_of(self._id)
        if "DELETE" not in self._environment.kafka.permissions().of_group(own):
            raise _undeletable(f"group {own}")
        names = {topic.copy.target: None for topic in plan.topics if topic.action == "create"}
        groups = {row.group or "" for one in self._captures.values() for row in one.offsets}
        copies = tuple(sorted(map(self._group_options().name, groups)))
        cluster_id, began_ms = self._cluster.cluster_id, int(self._began.timestamp() * 1000)
        self._scratch = Scratch(self._id, began_ms, cluster_id, names, copies)
        drills.keep_scratch(self._store, self._layout, self._scratch)
        self._phases.enter("creation")

    def created(self, ids: Mapping[str, str]) -> None:
        """Store the ids of the topics that were created, before anything is written to them."""
        assert self._scratch is not None  # noqa: S101
        found = {
            name: topic_id or self._patiently(partial(self._topic_id, name), _nameless(name))
            for name, topic_id in ids.items()
        }
        self._scratch = replace(self._scratch, topics={**self._scratch.topics, **found})
        drills.keep_scratch(self._store, self._layout, self._scratch)
        if found:  # what holds for one holds for the others, which are called alike
            name = min(found)
            self._patiently(partial(self._may_delete, name), _undeletable(f"topic {name}"))
        self._phases.enter("restore")

    def _patiently(self, ask: Callable[[], _T | None], error: KafkaError) -> _T:
        """Ask about a topic until each broker knows it, or raise *error*."""
        for _ in range(_LOOKS):
            if (found := ask()) is not None:
                return found
            self._stop.event.wait(_LOOK_S)
        raise error

    def _topic_id(self, name: str) -> str | None:
        topic = self._cluster.topics([name]).get(name)
        return None if topic is None else topic.topic_id or None

    def _may_delete(self, name: str) -> bool | None:
        allowed = self._environment.kafka.permissions().of_topics([name])[name]
        return True if "DELETE" in allowed else None

    def _captured(self, sample: DrillSample) -> dict[str, TopicCapture]:
        """Return where chosen groups stood in topics; files that cannot be read are failures."""
        found = captured.read(self._store, self._layout, self._environment.clock)
        for damage in found.damage:
            self._summary.fail(damage)
        newest = captured_of(sample.sets, found.newest, sample.settings.partitions)
        if (pattern := sample.settings.groups) is None:
            return newest
        groups = {row.group or "" for one in newest.values() for row in one.offsets}
        chosen = {*matching(sorted(groups), pattern, "groups")}
        return {
            name: replace(one, offsets=tuple(row for row in one.offsets if row.group in chosen))
            for name, one in newest.items()
        }

    def _group_options(self) -> GroupsOptions:
        template = f"{name_of(self._id)}_$0"
        return GroupsOptions(pattern=self._settings.groups, renamed=template, id=self._id)

    def _set_groups(self, sample: DrillSample) -> None:
        environment, beside = self._environment, Summary(self._summary.run, self._summary.command)
        options = self._group_options()
        run = GroupsRun(
            sample.settings, environment.kafka, self._store, environment.clock, beside,
            inventory=sample.inventory,
        )  # fmt: skip
        assert self._scratch is not None  # noqa: S101
        stood = dict.fromkeys(self._scratch.groups, 0)
        try:
            for event in run.set(options):  # all of them before the first group is set
                self._tell(event)
                if isinstance(event, GroupTranslated):
                    self._name_group(event.group)
                    stood[event.group] = stood.get(event.group, 0) + 1
        except KbackupError as error:
            beside.fail(error)
        ended = beside.finish()
        done = {*ended.facts.get("groups", ())}
        own = f"{name_of(self._id)}_"
        self._groups = tuple(
            DrillGroup(copy.removeprefix(own), copy, number, copy in done)
            for copy, number in sorted(stood.items())
        )
        self._take(ended)

    def _name_group(self, name: str) -> None:
        """Store the name of a group that a sink has captured since the drill began."""
        scratch = self._scratch
        if scratch is not None and name not in scratch.groups:
            self._scratch = replace(scratch, groups=(*scratch.groups, name))
            drills.keep_scratch(self._store, self._layout, self._scratch)

    def _take(self, ended: Ended) -> None:
        for error in ended.errors:
            self._summary.fail(error)
        for warned in ended.warnings:
            self._summary.warn(warned.code, warned.text, **warned.place)
        for reason, number in ended.skipped.items():
            self._summary.skip(reason, number)
        if isinstance(timings := ended.facts.get("timings"), Timings):
            self._spark_start_s = timings.spark_start_s + timings.worker_start_s

    def _check_counts(self, ended: Ended) -> None:
        rows, self._summary.partitions = self._compared, [*self._compared]
        compared = sum(row.records + row.different for row in rows)
        if not compared:
            self._summary.skip(NOTHING_COMPARED)
        elif ended.records != compared and not any(row.has_differences for row in rows):
            why = f"{ended.records} were restored, and {compared} were compared"
            raise DiffersError("not every record of the drill was compared", why)

    # the report

    def _judged(self, sample: DrillSample, backup: BackupIdentity) -> DrillReport:
        """Return the report, what exceeds a limit among its issues."""
        options, phases, clock = self._options, self._phases, self._environment.clock
        last = "groups" if self._groups else "restore"
        rto_s, whole_s = phases.until(last), self._whole_s(sample, phases.until(last))
        report = DrillReport(
            self._id, backup.id, int(self._began.timestamp() * 1000), clock.ms(),
            options.sample_bytes, self._topics(sample), self._groups, self._ages(sample),
            dict(phases.seconds), rto_s, whole_s, options.rto_s, options.rpo_s, (), 0,
        )  # fmt: skip
        for error in report.exceeded():
            self._summary.fail(error)
        ended = self._summary.finish()
        return replace(report, issues=tuple(ended.errors), exit_code=ended.exit_code)

    def _whole_s(self, sample: DrillSample, rto_s: float) -> float | None:
        """Return an estimate of how long all of the backup would take; None for no sample."""
        taken = sum(object_bytes(sample.taken(topic)) for topic in sample.sets)
        whole = sum(map(object_bytes, sample.sets.values()))
        work_s = max(0.0, self._phases.seconds.get("restore", 0.0) - self._spark_start_s)
        if taken == whole or not taken or not work_s:
            return None
        return round(rto_s - work_s + work_s * whole / taken, 3)

    def _ages(self, sample: DrillSample) -> tuple[DrillAge, ...]:
        wheres = [
            where
            for topic in sample.sets
            for where in sample.inventory.there(topic)
            if sample.settings.asked.has(where.partition)
        ]
        in_kafka = {where: _in_kafka(where, sample) for where in wheres}
        sources = {*in_kafka.values()}
        until = complete_up_to(self._store, self._layout, sources, self._began, self._summary)
        newest_ms: dict[TopicPartition, int] = {}
        for topic in sample.sets:
            for files in sample.taken(topic):
                facts = sample.inventory.entered(files)
                if facts is not None and facts.max_timestamp is not None:
                    before = newest_ms.get(files.where, facts.max_timestamp)
                    newest_ms[files.where] = max(before, facts.max_timestamp)
        ages = []
        for where in sorted(wheres):
            moment, last_ms = until.get(in_kafka[where]), newest_ms.get(where)
            if moment is None:
                ages.append(DrillAge(where, None, None, last_ms))
                continue
            age_s = max(0.0, (self._began - moment).total_seconds())
            ages.append(DrillAge(where, int(moment.timestamp() * 1000), age_s, last_ms))
        return tuple(ages)

    def _topics(self, sample: DrillSample) -> tuple[DrillTopic, ...]:
        found = []
        for topic in sample.sets:
            taken = sample.taken(topic)
            rows = [row for row in self._compared if row.where.topic == topic]
            wrong = sum(row.different + row.backup_only + row.kafka_only for row in rows)
            states = {row.state.partition(",")[0] for row in rows}
            worst = next((one for one in _WORST if one in states), "")
            verdict = worst or ("same" if "same" in states else min(states, default="not compared"))
            found.append(
                DrillTopic(
                    topic, f"{name_of(self._id)}_{topic}", len(sample.inventory.there(topic)),
                    sum(row.records for row in rows), object_bytes(taken),
                    len(taken) == len(sample.sets[topic]), wrong, verdict,
                )
            )  # fmt: skip
        return tuple(found)


def _in_kafka(where: TopicPartition, sample: DrillSample) -> TopicPartition:
    """Return what a partition of the backup is called in the cluster that is backed up."""
    entry = sample.inventory.known.topics.get(where.topic)
    names = () if entry is None else entry.names
    return TopicPartition(names[0], where.partition) if names else where
