"""From settings to what a sink's tasks need to know."""

from kbackup import plugins
from kbackup.config import Settings
from kbackup.runs import wiring
from kbackup.runs.environment import Environment
from kbackup.sink.job import SinkJob
from kbackup.sink.rejects import ErrorPolicy
from kbackup.sink.schemas import SchemaSource


def locked(settings: Settings) -> list[str]:
    """Return what one sink at a time works on: the topics, or the pattern."""
    return list(settings.topics) or [settings.topics_regex or ""]


def job_of(
    settings: Settings, world: Environment, run: str, group: str, schemas: SchemaSource
) -> SinkJob:
    """Return the job of a run's tasks.

    Args:
        settings: The configuration.
        world: Where cluster, store and time come from.
        run: The run's id.
        group: Keeps the positions.
        schemas: The registries whose schemas are stored.
    """
    return SinkJob(
        run=run,
        kafka=world.kafka,
        store=world.store,
        layout=wiring.layout(settings),
        clock=world.clock,
        views=wiring.views(settings),
        partitioner=settings.partitioner_class,
        rule=wiring.rule(settings),
        extractor=settings.timestamp_extractor,
        affix=wiring.affix(settings),
        transforms=settings.transforms,
        routes=wiring.routes(settings),
        plugin_options=wiring.partitioner_options(settings),
        group=group,
        flush_tail=settings.flush_on_stop,
        nulls=wiring.nulls(settings),
        errors=error_policy(settings),
        schemas=schemas,
    )


def _classes(settings: Settings) -> dict[str, str]:
    """Return the Java classes of the stages that dead letters name."""
    found: dict[str, str] = {}
    for part, name in (("KEY", settings.key_converter), ("VALUE", settings.value_converter)):
        if name is not None:
            found[f"{part}_CONVERTER"] = plugins.java_class("converters", name)
    return found


def error_policy(settings: Settings) -> ErrorPolicy:
    """Return what becomes of bad records; without tolerance no dead letter is written."""
    tolerates = settings.errors_tolerance == "all"
    return ErrorPolicy(
        tolerates=tolerates,
        topic=settings.errors_deadletterqueue_topic_name if tolerates else None,
        has_context=settings.errors_deadletterqueue_context_headers_enable,
        takes_nulls=settings.report_null_values_to_dlq,
        reports_all=settings.errors_log_enable,
        reports_time=settings.errors_log_include_messages,
        connector=settings.name or "kbackup",
        classes=_classes(settings),
        retry_s=settings.errors_retry_timeout / 1000,
        longest_wait_s=settings.errors_retry_delay_max_ms / 1000,
    )
