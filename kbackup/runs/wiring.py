"""Make what each stage takes of checked settings: plain data, made in one place."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from kbackup import clock, formats, plugins
from kbackup.catalog.identity import BackupIdentity
from kbackup.catalog.keys import Encryption, check_installed
from kbackup.catalog.listing import Window
from kbackup.catalog.recipients import KeyOptions
from kbackup.config import Settings
from kbackup.config.layout import RECORD_FORMAT
from kbackup.config.running import GENERIC
from kbackup.config.settings import BY_NAME, chosen
from kbackup.connect.registry import URL, RegistrySettings, settings_of
from kbackup.errors import ConfigurationError, KbackupError
from kbackup.formats import FormatOptions
from kbackup.kafka import KafkaSettings, Way
from kbackup.naming import RECORDS_FOLDER, UPLOAD_DATE, DatedLayout, Layout, TemplateLayout, View
from kbackup.naming.generic import GenericLayout
from kbackup.naming.renaming import Routes
from kbackup.pipeline.convert import Affix, AffixKind, Compatibility
from kbackup.pipeline.rotate import OPEN_FILES, Rule, Schedule
from kbackup.pipeline.rows import NO_TOMBSTONES, Nulls
from kbackup.pipeline.views import Envelope, ReadOptions, ViewSpec
from kbackup.spark.java import EngineSettings, Java
from kbackup.stores import StoreSettings


def kafka_settings(settings: Settings) -> KafkaSettings:
    """Return how to reach the cluster."""
    if settings.bootstrap_servers is None:
        raise ConfigurationError(
            "bootstrap.servers is not set", do="give -k HOST:PORT, or set it in the configuration"
        )
    return KafkaSettings(
        settings.bootstrap_servers,
        settings.kafka_admin,
        settings.kafka_consumer,
        settings.kafka_producer,
        settings.kafka_timeout,
        settings.kafka_client,
    )


def kafka_way(settings: Settings) -> Way:
    """Return how records pass between Kafka's client and kbackup.

    Raises:
        ConfigurationError: If ``kafka.client`` asks for what is not installed.
    """
    return KafkaSettings(settings.bootstrap_servers or "", client=settings.kafka_client).way()


def passing(settings: Settings, *, writes: bool) -> Mapping[str, str | None]:
    """Return a run's facts of what its records pass by: `kafka_way`, or ``batches``.

    With them why batches cannot be had, of who has not chosen another client; None where they can.
    What *writes* has its own client for what is small or spread, whatever the others pass by.
    """
    kafka = kafka_settings(settings)
    if not writes and (stores_batches(settings) or kafka.reads_batches):
        return {"kafka_client": "batches", "by_records": None}
    is_free = kafka.client == "auto"
    why = kafka.without_batches(kafka.producer if writes else None) if is_free else ""
    return {"kafka_client": kafka_way(settings).name, "by_records": why or None}


def stores_batches(settings: Settings) -> bool:
    """Whether a sink stores record batches as brokers have them."""
    name = settings.format_class
    return name is not None and formats.by_name(name).traits.stores_batches


def check_batches(settings: Settings) -> None:
    """Check that batches can be read, where those are what is stored."""
    if not stores_batches(settings):
        return
    if why := _any_cluster(settings).without_batches():
        raise ConfigurationError(
            f"format.class={settings.format_class}: batches cannot be read here", why,
            "leave out format.class: full records are stored as Parquet then",
        )  # fmt: skip


def check_client(settings: Settings) -> None:
    """Check that Kafka's client knows its properties, even if the cluster is not named yet."""
    _any_cluster(settings).check_properties()


def _any_cluster(settings: Settings) -> KafkaSettings:
    own = (settings.kafka_admin, settings.kafka_consumer, settings.kafka_producer)
    return KafkaSettings("", *own)


def check_encryption(settings: Settings) -> Iterator[KbackupError]:
    """Yield what is wrong with the keys to encrypt and decrypt with, where there are to be any.

    `ConfigurationError`: what encrypts is not installed.
    """
    options = _key_options(settings)
    if options.is_given:
        check_installed()
        yield from options.unusable()


def store_settings(settings: Settings) -> StoreSettings:
    """Return where the backup is, and how it is encrypted."""
    return StoreSettings(
        url=settings.url,
        endpoint_url=settings.endpoint_url,
        options=settings.options_of("stores"),
        wrapper=_encryption(settings),
    )


def _encryption(settings: Settings) -> Encryption | None:
    options = _key_options(settings)
    return Encryption(options, layout(settings), clock.SystemClock()) if options.is_given else None


def _key_options(settings: Settings) -> KeyOptions:
    return KeyOptions(
        settings.encryption_recipients,
        settings.encryption_recipients_file,
        settings.encryption_identity_file,
        settings.encryption_phrase_file,
        settings.encryption_kms_key,
        settings.encryption_key_file,
        settings.encryption_mixed,
    )


def layout(settings: Settings) -> Layout:
    """Return how objects are named.

    Raises:
        ConfigurationError: If ``topics.dir`` is a path that leads elsewhere, or our own folder.
    """
    segments = settings.topics_dir.split(settings.directory_delim)
    if {"..", ".", RECORDS_FOLDER} & set(segments) or not settings.topics_dir.isprintable():
        raise ConfigurationError(
            f"topics.dir {settings.topics_dir!r} cannot hold a backup",
            f"a segment is .. or . or {RECORDS_FOLDER}, or a character cannot be printed",
            "choose a plain folder, such as topics",
        )
    folder, delimiter, template, place = (
        settings.topics_dir, settings.directory_delim, settings.object_name_template,
        settings.place,
    )  # fmt: skip
    rest = (
        delimiter,
        settings.file_delim,
        settings.filename_offset_zero_pad_width,
        settings.tombstone_encoded_partition,
    )
    if settings.mode == GENERIC:
        return GenericLayout(folder, *rest, expressions=settings.topic_regex_list, place=place)
    name = settings.format_class
    if name is None or formats.by_name(name).traits.directory != UPLOAD_DATE:
        return Layout(folder, *rest, place=place)
    folder = folder.removesuffix(delimiter)
    if template:
        return TemplateLayout(folder, *rest, template=template, place=place)
    return DatedLayout(folder, *rest, place=place)


def engine_settings(settings: Settings, java: Java | None) -> EngineSettings:
    """Return what Spark is given."""
    conf = settings.spark_conf
    if _encryption(settings) is not None:  # what Spark puts on disk: spilled rows, large tasks
        conf = {"spark.io.encryption.enabled": "true", **conf}
    return EngineSettings(settings.master, conf, java, settings.stop_timeout, _modules(settings))


def _modules(settings: Settings) -> tuple[str, ...]:
    """Return the modules of kbackup's own plugins that the tasks of a run will most likely use."""
    names = chosen(vars(settings))
    names.setdefault("format_class", ("formats", RECORD_FORMAT))
    found = (plugins.module(extension_point, name) for extension_point, name in names.values())
    return tuple(dict.fromkeys(name for name in found if name is not None))


def format_options(settings: Settings) -> FormatOptions:
    """Return what the configuration says about files."""
    return FormatOptions(settings.options_of("formats"), max_record_bytes=settings.max_record_bytes)


def only_format(settings: Settings) -> str | None:
    """Return the format to which reading is narrowed; None for all there is.

    What a sink writes narrows nothing: a topic's backup is all of its objects.  Of objects of any
    name, which may have no extension, only ``format.class`` says what they are.
    """
    return settings.format_class if settings.mode == GENERIC else settings.only_format


def views(settings: Settings) -> tuple[ViewSpec, ...]:
    """Return the files of one cut; the last one marks the set as complete."""
    options = format_options(settings)
    if settings.view == "record":
        return (ViewSpec(View.RECORD, settings.format_class or "", options),)
    found = BY_NAME.items()  # some formats' options have another default in the connectors' layout
    others = {name: one.for_values for name, one in found if one.for_values is not None}
    options = replace(options, values={**others, **options.values})
    specs = []
    if settings.store_kafka_keys:
        specs.append(
            ViewSpec(
                View.KEY,
                settings.keys_format_class or "",
                options,
                settings.key_converter,
                settings.key_converter_properties,
            )
        )
    if settings.store_kafka_headers:
        specs.append(ViewSpec(View.HEADERS, settings.headers_format_class or "", options))
    specs.append(
        ViewSpec(
            View.VALUE,
            settings.format_class or "",
            options,
            settings.value_converter,
            settings.value_converter_properties,
        )
    )
    return tuple(specs)


def reading(settings: Settings) -> ReadOptions:
    """Return how objects are read; converters that nobody named follow from the files.

    Rows of objects of any name are values, unless fields are given that hold records.
    """
    fields = settings.record_fields
    return ReadOptions(
        format_options(settings),
        settings.key_converter,
        settings.value_converter,
        {
            View.KEY: settings.key_converter_properties,
            View.VALUE: settings.value_converter_properties,
        },
        frozenset(settings.unasked_converters),
        file_headers=settings.file_metadata_headers_enable,
        envelope=Envelope(fields, settings.record_encoding) if fields else None,
    )


def routes(settings: Settings) -> Routes:
    """Return under which names a sink stores its topics."""
    return Routes(settings.renames)


def schema_registry(settings: Settings) -> RegistrySettings | None:
    """Return the registry that full records go by, None if none is given.

    A run does not depend on it, or asks it before it begins, so it is not waited for long.
    """
    if not settings.schema_registry_url:
        return None
    return RegistrySettings(
        settings.schema_registry_url,
        settings.schema_registry_basic_auth_user_info or "",
        settings.schema_registry_ssl_ca_location or "",
        settings.schema_registry_ssl_certificate_location or "",
        settings.schema_registry_ssl_key_location or "",
        settings.schema_registry_ssl_key_password or "",
        connect_s=5.0,
        read_s=10.0,
        retries=2,
    )


def source_registries(settings: Settings) -> dict[str, RegistrySettings]:
    """Return the registry of each part of the records that a sink stores, by "key" and "value"."""
    sides = {
        spec.view: spec.properties for spec in views(settings) if spec.view is not View.HEADERS
    }
    given = schema_registry(settings)
    if View.RECORD in sides:
        return {} if given is None else {"key": given, "value": given}
    found = {}
    for view, properties in sides.items():
        named = settings_of(properties) if URL.of(properties) else given
        if named is not None:
            found["key" if view is View.KEY else "value"] = named
    return found


def rule(settings: Settings) -> Rule:
    """Return when files are cut; -1 means never for bytes and time."""
    directories, zone = settings.partitioner_max_open_files, settings.timezone
    scheduled_ms = settings.rotate_schedule_interval_ms
    return Rule(
        records=settings.flush_size,
        bytes=settings.rotate_bytes if settings.rotate_bytes > 0 else None,
        span_ms=settings.rotate_interval_ms if settings.rotate_interval_ms > 0 else None,
        on_directory_change=settings.rotate_file_on_partition_change,
        schedule=None if scheduled_ms <= 0 or zone is None else Schedule(scheduled_ms, zone),
        open_files=OPEN_FILES if directories < 0 else directories,
        compatibility=Compatibility(settings.schema_compatibility),
        tombstones=(
            settings.tombstone_encoded_partition
            if nulls(settings) is Nulls.WRITE
            else NO_TOMBSTONES
        ),
    )


def nulls(settings: Settings) -> Nulls:
    """Return what becomes of records without a value; full records keep them in their place."""
    return Nulls.FAIL if settings.view == "record" else Nulls(settings.behavior_on_null_values)


def partitioner_options(settings: Settings) -> dict[str, Any]:
    """Return what a partitioner is given: its options, and two properties that it shares."""
    shared = {"directory.delim": settings.directory_delim, "timezone": settings.timezone}
    own = settings.options_of("partitioners") | settings.options_of("extractors")
    return own | shared


def affix(settings: Settings) -> Affix:
    """Return where the schema's name stands beside a directory."""
    kind = AffixKind(settings.s3_schema_partition_affix_type)
    return Affix(kind, settings.directory_delim)


def address(settings: Settings) -> BackupIdentity:
    """Return which backup this is, as far as its address says."""
    return BackupIdentity(
        _digest(f"{settings.endpoint_url or ''}|{settings.url}|{settings.topics_dir}")
    )


def group(settings: Settings, backup: BackupIdentity, purpose: str, *more: str) -> str:
    """Return the consumer group that keeps the position of *purpose*.

    Without a name of the operator's it follows from which backup this is, so that the next run
    of the same command finds it again.
    """
    if settings.group is not None:
        return settings.group
    text = "|".join((backup.name, *more))
    return f"kbackup-{purpose}-{_digest(text)}"


def window(settings: Settings) -> Window:
    """Return which records a restore is asked for.

    Raises:
        ConfigurationError: If none can be in it.
    """
    for name, first, end in (
        ("offset", settings.from_offset, settings.to_offset),
        ("time", settings.from_time, settings.to_time),
    ):
        if first is not None and end is not None and end <= first:
            raise ConfigurationError(
                f"--to-{name} is not after --from-{name}",
                "no record can be in an empty range",
                "swap them, or leave one out",
            )
    return Window.between(
        settings.from_offset, settings.to_offset, settings.from_time, settings.to_time
    )


def window_text(settings: Settings) -> str:
    """Return which records a restore is asked for, in words; empty for all."""
    then = settings.as_of
    stored = "" if then is None else f"first stored before {clock.shown_ms(then)}"
    return ", ".join(filter(None, [window(settings).text, stored]))


def check_as_of(settings: Settings, now_ms: int) -> None:
    """Refuse a time to come: what will have been stored by then, nobody knows."""
    if settings.as_of is not None and settings.as_of > now_ms:
        raise ConfigurationError(
            f"--as-of {clock.shown_ms(settings.as_of)} is in the future",
            f"it is {clock.shown_ms(now_ms)} now, and what will be stored is not known",
            "choose a time that has passed",
            property="as.of",
        )


def restore_groups(settings: Settings, backup: BackupIdentity) -> list[str]:
    """Return the group of a restore: another renaming, window, transform or map is another.

    After it comes the one that a restore has which was begun before the backup had an id.
    """
    both = (backup, BackupIdentity(backup.address))
    found = (group(settings, one, "restore", *_restored(settings)) for one in both)
    return [*dict.fromkeys(found)]


def restore_lock(settings: Settings) -> str:
    """Return what no two restores of one backup may work on at once: what one group is for.

    It does not name the backup, whose bucket holds the lock, and which may get an id meanwhile.
    """
    return settings.group or "|".join(("restore", *_restored(settings)))


def _restored(settings: Settings) -> list[str]:
    steps = [f"{step.regex}->{step.replacement}" for step in settings.renames]
    steps += filter(None, [window_name(settings)])
    if settings.partition_map != "same":
        steps.append(f"partition-map {settings.partition_map}")
    return steps


def window_name(settings: Settings) -> str:
    """Return what tells the records that a restore writes from those of the backup.

    Empty where they are the same: which of them, the transforms that change them, and the
    expressions that say where objects belong, with what their rows hold.
    """
    names = [str(window(settings))]
    if settings.as_of is not None:
        names.append(f"as-of {settings.as_of}")
    if settings.mode == GENERIC:
        given = (*settings.topic_regex_list, settings.record_fields, settings.record_encoding)
        names.append(f"expressions {_digest(' '.join(map(str, given)))}")
    if settings.transforms:
        steps = [asdict(step) for step in settings.transforms]
        names.append(f"transforms {_digest(json.dumps(steps, sort_keys=True, default=str))}")
    return " ".join(filter(None, names))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
