"""What has to be read to find out which topics records go to, where transforms choose them."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from kbackup.backup.frozen import frozen
from kbackup.config import Settings
from kbackup.errors import ConfigurationError
from kbackup.records import TopicPartition
from kbackup.renaming import rename
from kbackup.reports import Bookmark, Mark, Place, Source
from kbackup.restore.job import RestoreUnit
from kbackup.restore.planning.inventory import Inventory
from kbackup.runs import wiring
from kbackup.stores import Store


def to_survey(settings: Settings, inventory: Inventory, topics: Sequence[str]) -> list[RestoreUnit]:
    """Return all that is asked for, a unit a partition; nothing of it is to be written.

    Args:
        settings: The configuration.
        inventory: What it holds.
        topics: Of which topics.

    Raises:
        ConfigurationError: If schemas are to be registered: their subjects are not known yet.
    """
    if wiring.schema_registry(settings) is not None:
        raise ConfigurationError(
            "schemas cannot be registered where a transform chooses a topic for each record",
            "their subjects are named after topics, which are known once the records are read",
            "leave the Schema Registry out: records keep the ids of their schemas",
        )
    window, units = wiring.window(settings), list[RestoreUnit]()
    inventory.look_at(topics)
    for name in topics:
        wheres = inventory.wanted(name)
        chosen = {where: inventory.covered(where).sets for where in wheres}
        if not window.is_everything:
            chosen = {
                where: [files for files in sets if window.takes(files, inventory.facts(files))]
                for where, sets in chosen.items()
            }
        for where, sets in chosen.items():
            source = Source(wiring.backup_id(settings), where, inventory.identity(where))
            bookmark = Bookmark(Mark(source, "", None, Place(0, 0)))
            at = TopicPartition(name, where.partition)
            seen = routed_from(settings, name)
            units.append(RestoreUnit(at, tuple(sets), bookmark, window=window, routed_from=seen))
    return units


def check_archived(store: Store, units: Iterable[RestoreUnit]) -> None:
    """Check that what is to be read can be read; units of one topic come together.

    Raises:
        RefusedError: If some of it is archived.
        StoreError: If the store does not answer.
    """
    for name, its in groupby(units, lambda unit: unit.source.topic):
        files = (file for unit in its for one in unit.sets for file in one.files)
        for refusal in frozen(store, files).refusals(name, name):
            raise refusal


def routed_from(settings: Settings, name: str) -> str:
    """Return the name of a topic that transforms see which choose a topic for each record.

    ``RegexRouter`` is one of them; ``--rename`` takes its place, and comes before them.
    """
    return name if settings.rename is None else rename(name, settings.renames)
