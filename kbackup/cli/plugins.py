"""``kbackup plugins``: what is installed for each seam, and from which package."""

import click

from kbackup import plugins


@click.command("plugins")
def command() -> None:
    """List what is installed for each seam, and from which package."""
    for seam in plugins.SEAMS:
        for found in plugins.installed(seam):
            click.echo(f"{seam:<14}{found.name:<10}{found.package} {found.version}  {found.target}")
