"""``kbackup plugins``: what is installed for each seam, and from which package."""

from datetime import UTC, datetime
from typing import Any

import click

from kbackup import plugins
from kbackup.cli.options import GroupedCommand, output_options
from kbackup.cli.running import Session, load_output, perform
from kbackup.errors import ConfigurationError
from kbackup.events import Event
from kbackup.runs.history import new_run_id
from kbackup.runs.summary import Summary


class _Plugins(GroupedCommand):
    examples = ("kbackup plugins", "kbackup plugins --json")


@click.command("plugins", cls=_Plugins)
@output_options(has_files=False)
def command(**parameters: Any) -> None:
    """List the installed plugins of each seam, and their packages."""
    perform("plugins", load_output("plugins", parameters), _list)


def _list(session: Session) -> Event:
    for seam in (*plugins.SEAMS, *plugins.CHAINED):
        for found in plugins.installed(seam):
            session.tell(
                {
                    "type": "plugin",
                    "seam": seam,
                    "name": found.name,
                    "class": found.target,
                    "package": found.package,
                    "version": found.version,
                    "options": _options(seam, found.name),
                }
            )
    return Summary(new_run_id(datetime.now(UTC)), "plugins").finish()


def _options(seam: str, name: str) -> dict[str, str]:
    """Return what a plugin declares: its properties and their values."""
    try:
        if seam in plugins.CHAINED:
            declared = plugins.load(seam, name).options
        else:
            declared = plugins.options(seam, name)
    except ConfigurationError:
        return {}  # choosing it reports why it cannot be imported
    return {option.name: option.help for option in declared}
