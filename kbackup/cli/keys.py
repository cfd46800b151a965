"""``kbackup keys``: list, add, remove, rotate."""

from typing import TYPE_CHECKING, Any, Final

import click

from kbackup.cli import Family
from kbackup.cli.options import OUTPUT, config_options
from kbackup.cli.running import Session, run, summary_of
from kbackup.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbackup.catalog.rekeying import KeyKeeper
    from kbackup.events import Ended, Warned

_COMMON: Final = (
        "--config", "-b", "--encryption-identity-file", "--encryption-phrase-file",
        "--encryption-kms-key", "--encryption-key-file", "--topics-dir", "--region", "--store-url",
        *OUTPUT,
    )  # fmt: skip


@click.group(
    "keys",
    cls=Family,
    default="list",
    runs_bare=False,
    examples=(
        "kbackup keys list --config s3.properties",
        "kbackup keys add new.pub --config s3.properties",
    ),
)
def keys_command() -> None:
    """List or change who can decrypt an encrypted backup.

    Only what is below _kbackup/keys/ is written.  A RECIPIENT is an X25519 public key as the one
    line of its PEM file, a file with such keys, or passphrase:FILE.
    """


@keys_command.command(
    "list", common=_COMMON, examples=("kbackup keys list --config s3.properties",)
)
@config_options("keys")
def list_command(**parameters: Any) -> None:
    """List who can decrypt how much.

    Needs no key; with one, rows that somebody else has forged are named.
    """
    _change("list", parameters, lambda _: ())


@keys_command.command(
    "add",
    common=_COMMON,
    examples=("kbackup keys add new.pub --config s3.properties",),
)
@click.argument("recipients", nargs=-1, required=True, metavar="RECIPIENT...")
@config_options("keys")
def add_command(recipients: tuple[str, ...], **parameters: Any) -> None:
    """Add recipients, for what is stored from now on.

    With a private key or a passphrase, older data keys are wrapped for them too.
    """

    def change(keeper: "KeyKeeper") -> "Iterable[Warned]":
        from kbackup.catalog.recipients import named  # noqa: PLC0415

        return keeper.add([one for text in recipients for one in named(text)])

    _change("add", parameters, change)


@keys_command.command(
    "remove",
    common=_COMMON,
    examples=("kbackup keys remove MCowBQYDK2VuAyEA... --config s3.properties",),
)
@click.argument("names", nargs=-1, required=True, metavar="RECIPIENT...")
@config_options("keys")
def remove_command(names: tuple[str, ...], **parameters: Any) -> None:
    """Remove recipients, and delete what was wrapped for them.

    They are named as keys list does.  Refused if nobody else can decrypt as much.  What they have
    copied, and older versions of what is deleted, they can still open: take their access to the
    bucket too.
    """
    _change("remove", parameters, lambda keeper: keeper.remove(names))


@keys_command.command(
    "rotate",
    common=_COMMON,
    examples=("kbackup keys rotate MCowBQYDK2VuAyEA... new.pub --config s3.properties",),
)
@click.argument("name", metavar="OLD")
@click.argument("recipient", metavar="NEW")
@config_options("keys")
def rotate_command(name: str, recipient: str, **parameters: Any) -> None:
    """Put the recipient NEW in the place of OLD.

    With a private key or a passphrase, NEW gets all data keys and OLD is removed.  Without, OLD
    keeps those it has, and gets no new ones.  No object is encrypted again: a data key that has
    leaked opens its objects as before.
    """

    def change(keeper: "KeyKeeper") -> "Iterable[Warned]":
        from kbackup.catalog.rekeying import recipient_of  # noqa: PLC0415

        return keeper.rotate(name, recipient_of(recipient))

    _change("rotate", parameters, change)


def _change(
    word: str, parameters: dict[str, Any], change: "Callable[[KeyKeeper], Iterable[Warned]]"
) -> None:
    def work(session: Session) -> "Ended":
        from kbackup.catalog.rekeying import KeyKeeper  # noqa: PLC0415
        from kbackup.runs import wiring  # noqa: PLC0415

        settings, summary = session.settings, summary_of(f"keys {word}")
        place, layout = wiring.store_settings(settings), wiring.layout(settings)
        keeper = KeyKeeper.of(place, layout, SystemClock())
        for warned in change(keeper):
            session.tell(summary.warn(warned.code, warned.text))
        for stands in keeper.recipients():
            session.tell(stands)
        return summary.finish(session.stop.signal)

    run("keys", f"keys {word}", parameters, work)
