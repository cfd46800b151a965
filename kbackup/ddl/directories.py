"""The directories of a backup's table: its partition columns."""

from collections.abc import Sequence

from kbackup import partitioners
from kbackup.config import Settings
from kbackup.errors import ConfigurationError
from kbackup.runs import wiring
from kbackup.table_parts import Column, Level, injected


def levels(
    settings: Settings, columns: Sequence[Column], partitions: int, directories: Sequence[str]
) -> tuple[Level, ...]:
    """Return the partition columns of what a configuration writes, the outermost first.

    Args:
        settings: The configuration.
        columns: The files' columns: a directory's value has the type of its field.
        partitions: The topic's number of partitions.
        directories: Those that exist, such as ``year=2026/month=11``, with slashes.

    Raises:
        ConfigurationError: If they cannot be the directories of a table.
    """
    if settings.directory_delim != "/":
        raise ConfigurationError(
            f"directory.delim {settings.directory_delim!r} makes no folders",
            "the engines find the files of a table by its folders",
            "query the backup with kbackup restore query",
        )
    name = settings.partitioner_class
    partitioner = partitioners.by_name(name, wiring.partitioner_options(settings))
    found = partitioners.levels(partitioner, columns, directories, partitions)
    if found is None:
        raise ConfigurationError(
            f"the partitioner {name} does not describe its folders to query engines",
            "a table needs a column for each level of folders",
            "query the backup with kbackup restore query, or write the statement by hand",
        )
    affix = settings.s3_schema_partition_affix_type
    if affix == "NONE":
        return tuple(found)
    schema = injected(Column("schema_name", "string"), "schema_name")
    return (schema, *found) if affix == "PREFIX" else (*found, schema)
