"""``kbackup sink`` and ``keys``: what makes a backup, changes it, or says who can read it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import click

from kbackup.cli import Family
from kbackup.cli.options import (
    OLDER_THAN,
    OUTPUT,
    UNDO,
    agree,
    config_options,
    looking,
    max_age_option,
    option,
    seconds,
    size,
)
from kbackup.cli.running import (
    OpenedBackup,
    Session,
    find_java,
    look,
    report_status,
    run,
    summary_of,
)
from kbackup.clock import SystemClock
from kbackup.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbackup.catalog.rekeying import KeyKeeper
    from kbackup.events import Ended, Warned
    from kbackup.naming import Layout
    from kbackup.stores import StoreSettings


@click.group(
    "sink",
    cls=Family,
    default="run",
    aliases={"plan": ("run", "--dry-run"), "prune": ("abort-uploads",)},
    examples=(
        "kbackup sink -k broker:9092 -t orders -b my-bucket",
        "kbackup sink --config s3.properties --follow",
    ),
)
def sink_command() -> None:
    """Copy Kafka topics to S3."""


_COMMON: Final = (
        "--config", "-t", "-b", "-k", "--follow", "--dry-run", "--topics-regex",
        "--topics-exclude", "--partitions", "--region", "--store-url", "--lock-timeout", "-f",
        "--flush-size", "--rotate-bytes", "--rotate-interval-ms", "--rotate-idle-ms",
        "--partitioner", "--group", "--errors-tolerance", "--master",
        *OUTPUT,
    )  # fmt: skip


@sink_command.command(
    "run",
    common=_COMMON,
    examples=(
        "kbackup sink -k broker:9092 -t orders -b my-bucket",
        "kbackup sink --config quickstart-s3.properties -k broker:9092",
        "kbackup sink --config s3.json --follow --rotate-idle-ms 10m",
    ),
)
@option("--repair", multiple=True, hidden=True, group="Safety", help="Now sink repair.")
@config_options("sink")
def run_command(repair: tuple[str, ...], **parameters: Any) -> None:
    """Copy Kafka topics to S3.

    Starts where the last run stopped and ends at the offsets it sees at the start.
    """
    if repair:
        _repair(repair, parameters)
    words = "sink plan" if parameters.get("dry_run") else "sink run"
    run("sink", words, parameters, _sink)


def _repair(places: Sequence[str], parameters: Mapping[str, Any]) -> None:
    words = "sink repair plan" if parameters.get("dry_run") else "sink repair"
    run("sink", words, {**parameters, "repair": places}, _sink)


@sink_command.command(
    "status",
    common=looking("--max-age", "--metrics-file", "--metrics-listen"),
    examples=(
        "kbackup sink status -b my-bucket",
        "kbackup sink status --config s3.properties --max-age 1h --quiet",
    ),
)
@max_age_option
@option("--prometheus", group="Output", metavar="FILE", hidden=True)
@config_options("status")
def status_command(max_age: str | None, prometheus: str | None, **parameters: Any) -> None:
    """Report how past runs ended and whether one is running.  No JVM is started."""

    def work(session: Session) -> "Ended":
        from kbackup.runs.status import SINK  # noqa: PLC0415

        return report_status(session, SINK, max_age)

    if prometheus is not None:  # as --metrics-file was called
        parameters["metrics_file"] = prometheus
    run("status", "sink status", parameters, work)


@sink_command.command(
    "repair",
    common=(
        "--config",
        "-t",
        "-b",
        "-k",
        "--dry-run",
        "--region",
        "--store-url",
        "-f",
        "--lock-timeout",
        "--master",
        *OUTPUT,
        "-X",
    ),
    examples=(
        "kbackup sink repair orders:3:4200 --config s3.properties",
        "kbackup sink repair orders:3:4200 orders:5:0 --config s3.properties --dry-run",
    ),
)
@click.argument("places", nargs=-1, required=True, metavar="T:P:OFFSET")
@config_options("sink")
def repair_command(places: tuple[str, ...], **parameters: Any) -> None:
    """Store missing objects again, from the source cluster.

    T:P:OFFSET is the topic, partition and first offset of an object, as restore verify names it;
    there may be several.  The sink's consumer group stays where it is.
    """
    _repair(places, parameters)


@sink_command.command(
    "reindex",
    common=looking("--topics-regex"),
    examples=("kbackup sink reindex -b my-bucket", "kbackup sink reindex -b my-bucket -t orders"),
)
@config_options("reindex")
def reindex_command(**parameters: Any) -> None:
    """Rebuild the ledger from the objects.

    What can still be read of the old one is kept.  An object that it names and that is not there
    counts as missing until kbackup sink accept accepts that.  Kafka is not contacted.
    """

    def work(at: OpenedBackup) -> None:
        at.tell(at.mending().rebuild())

    look("reindex", "sink reindex", parameters, work)


@sink_command.command(
    "accept",
    common=looking("--before", "--topics-regex"),
    examples=(
        "kbackup sink accept orders:0:4200-4299 -b my-bucket",
        "kbackup sink accept --before 2026-11-21 -b my-bucket -t orders",
    ),
)
@click.argument("ranges", nargs=-1, metavar="[RANGE]")
@option(
    "--before", group="Safety", metavar="TIME",
    help="Accept all that was stored before this time.  For example, after a lifecycle rule.",
)  # fmt: skip
@config_options("accept")
def accept_command(ranges: tuple[str, ...], before: str | None, **parameters: Any) -> None:
    """Accept that missing objects were removed on purpose.

    RANGE is TOPIC:PARTITION:FIRST-LAST, with offsets; there may be several.  Their objects are not
    reported as missing again.  Kafka is not contacted.
    """

    def work(at: OpenedBackup) -> None:
        from kbackup.verify.run import Acceptance  # noqa: PLC0415

        acceptance = Acceptance.parse(ranges, before)
        if not acceptance:
            raise ConfigurationError(
                "nothing was named to accept",
                "neither offsets nor a time were given",
                "write kbackup sink accept orders:0:4200-4299, or --before 2026-11-21",
            )
        at.tell(at.mending().accept(acceptance))

    look("accept", "sink accept", parameters, work)


@sink_command.command(
    "expire",
    common=looking(
        "--older-than", "--max-bytes", "--undo", "--yes", "--dry-run", "--grace", "--compacted",
        "--topics-regex", "--lock-timeout",
    ),
    examples=(
        "kbackup sink expire --older-than 90d --config s3.properties --dry-run",
        "kbackup sink expire --older-than 90d --max-bytes 2TiB -b my-bucket --yes",
    ),
)  # fmt: skip
@option("--older-than", group="Safety", metavar="DURATION", help=OLDER_THAN)
@option(
    "--max-bytes", group="Safety", metavar="SIZE",
    help="Also the oldest, until at most this much is left.",
)  # fmt: skip
@option(
    "--grace", default="1d", group="Safety", metavar="DURATION",
    help="How long marked objects are kept.",
)  # fmt: skip
@option(
    "--compacted", is_flag=True, group="Safety", help="Include topics that are or were compacted."
)
@option("--undo", is_flag=True, group="Safety", help=UNDO)
@config_options("expire")
def expire_command(
    older_than: str | None,
    max_bytes: str | None,
    grace: str,
    compacted: bool,
    undo: bool,
    **parameters: Any,
) -> None:
    """Delete the oldest objects, in two steps.

    A run marks objects as removed, so that nothing restores them.  A later run of the same command
    deletes those marked longer ago than --grace.  The last objects of a partition stay, and those
    of unknown age.
    """

    def work(at: OpenedBackup) -> None:
        from kbackup.sink.expire import ExpireOptions, ExpireRun  # noqa: PLC0415

        session = at.session
        asked = ExpireOptions(
            older_than=None if older_than is None else _age("--older-than", older_than),
            max_bytes=None if max_bytes is None else size("--max-bytes", max_bytes),
            grace=_age("--grace", grace),
            takes_compacted=compacted,
            is_undo=undo,
        )
        if undo == (older_than is not None or max_bytes is not None):
            raise ConfigurationError(
                "--undo cannot be combined" if undo else "nothing was named to remove",
                "it takes back what other runs have marked" if undo else "",
                "give --older-than or --max-bytes, or --undo",
            )
        expire = ExpireRun(
            session.settings, asked, at.store, at.layout, at.clock, at.summary, session.stop,
            agree(),
        )  # fmt: skip
        at.tell(expire())

    look("expire", "sink expire", parameters, work)


def _age(option: str, text: str) -> timedelta:
    """Return an age by which something goes: nobody means 90 seconds by ``90``."""
    found = timedelta(seconds=seconds(option, text))
    if found and text.strip()[-1].isdigit():
        raise ConfigurationError(
            f"{option} {text} has no unit", "it would be seconds", f"write {text}d, or {text}s"
        )
    return found


@sink_command.command(
    "copy",
    common=looking("--to", "--to-config", "--follow", "--dry-run", "--topics-regex"),
    examples=(
        "kbackup sink copy --to s3://second-bucket --config s3.properties",
        "kbackup sink copy --to s3://dr-copy --to-config dr.properties -b lake --follow",
        "kbackup sink copy --to file:///mnt/backup -b my-bucket -t orders",
    ),
)
@option(
    "--to", required=True, group="S3", metavar="URL",
    help="Where to copy to: s3://BUCKET or file:///FOLDER.  Or az:// or gs://, as in store.url.",
)  # fmt: skip
@option(
    "--to-config", group="S3", metavar="FILE",
    help="Credentials, region and server of the copy.  Default: those of the backup.",
)  # fmt: skip
@config_options("copy")
def copy_command(to: str, to_config: str | None, **parameters: Any) -> None:
    """Copy the backup to another bucket or folder.

    At every moment the copy is a backup in its own right.  Objects that it has are compared, not
    sent again; where one differs, it is kept and reported.  Run again, this continues where it
    stopped.  Nothing is deleted there, and Kafka is not contacted.
    """

    def work(at: OpenedBackup) -> None:
        from kbackup.runs import wiring  # noqa: PLC0415
        from kbackup.sink.copy import CopyRun  # noqa: PLC0415
        from kbackup.stores import StoreSettings, open_store  # noqa: PLC0415

        settings, place = at.session.settings, at.place
        stored = StoreSettings(place.url, place.endpoint_url, place.options)  # nothing around it
        target = _target(at, to, to_config)
        copy = CopyRun(
            open_store(stored), open_store(target), at.layout,
            wiring.format_options(settings), at.asked, at.clock, at.summary, at.session.stop,
            poll_s=settings.s3_poll_interval_ms / 1000 if settings.follow else None,
            is_dry=settings.dry_run,
        )  # fmt: skip
        at.tell(copy())

    look("copy", "sink copy", parameters, work)


def _target(at: OpenedBackup, to: str, to_config: str | None) -> "StoreSettings":
    from kbackup.config import loading  # noqa: PLC0415
    from kbackup.config.settings import PLACES, PROPERTIES  # noqa: PLC0415
    from kbackup.runs import wiring  # noqa: PLC0415
    from kbackup.stores import StoreSettings  # noqa: PLC0415

    to = to.rstrip("/")
    place = next((found for found in PLACES if to.startswith(found.url(""))), None)
    name = "" if place is None else to.removeprefix(place.url(""))
    is_server = to.startswith(("http://", "https://"))
    if "://" not in to or is_server or (place is not None and (not name or "/" in name)):
        raise ConfigurationError(
            f"--to {to!r} is not a place for a copy",
            "expected s3://BUCKET, file:///FOLDER, az://ACCOUNT/CONTAINER or gs://BUCKET",
            _instead_of(to),
        )
    given = {"store_url": to} if place is None else {place.attribute: name}
    source = at.place
    if to_config is None:
        is_alike = source.url.partition("://")[0] == to.partition("://")[0]
        endpoint = source.endpoint_url if is_alike else None
        found = StoreSettings(to, endpoint, source.options)
        if place is None:  # whether it is a URL, of a store that can do what is to be done there
            stores = [
                f"{one.name}={source.options[one.name]}"
                for one in PROPERTIES
                if one.name in source.options and "list" not in one.commands
            ]
            try:
                loading.load("copy", options=given, files=[], environ={}, extra=stores)
            except ConfigurationError as error:
                do = "give --to-config FILE with what holds for the copy" if stores else error.do
                what = error.what.replace(f"store.url={to} (option)", f"--to {to}")
                raise ConfigurationError(what, error.why, do) from error
    else:
        loaded = loading.load("copy", options=given, files=[Path(to_config)], environ={})
        found = wiring.store_settings(loaded.settings)
        if found.url != to:
            raise ConfigurationError(
                f"{to_config} names another place than --to", f"it is {found.url}",
                "remove store.url from it",
            )  # fmt: skip
        folder = loaded.settings.topics_dir
        if "topics.dir" in loaded.origins and folder != at.session.settings.topics_dir:
            raise ConfigurationError(
                f"{to_config} has topics.dir={folder}",
                "a copy has the same object keys as its backup", "remove it",
            )  # fmt: skip
    stored = {one.name for one in PROPERTIES if "sink" in one.commands}  # not how a copy is read
    options = {name: value for name, value in found.options.items() if name in stored}
    places = _real(found.url), _real(source.url)
    if found.endpoint_url == source.endpoint_url:
        if places[0] == places[1]:
            raise ConfigurationError(f"--to {to} is where the backup is", do="name another place")
        if any(_holds(at.layout, *both) for both in (places, places[::-1])):
            raise ConfigurationError(
                f"--to {to} and the backup overlap",
                "the outer one would take the inner one's objects for foreign ones",
                "name a place outside it",
            )
    return StoreSettings(found.url, found.endpoint_url, options)


def _instead_of(to: str) -> str:
    """Return what to write where *to* is not a place for a copy."""
    if to.startswith(("http://", "https://")):
        return f"name its bucket, and give --to-config FILE with store.url={to}"
    if to.startswith("/"):
        return f"for a folder, write --to file://{to}"
    if to[:1].isalnum() and "://" not in to:
        return f"for a bucket, write --to s3://{to.partition('/')[0]}"
    return "name the bucket alone: a copy's objects have the same keys as the backup's"


def _holds(layout: "Layout", outer: str, inner: str) -> bool:
    """Whether a place is where another one's objects or records are."""
    around = f"{outer.rstrip('/')}/"
    below = (around + layout.prefix(), around + layout.records_prefix())
    return f"{inner}/".startswith(below)


def _real(url: str) -> str:
    """Return the URL of a store; of a folder its path, however it was named."""
    kind, _, rest = url.partition("://")
    return str(Path("/", unquote(rest.partition("/")[2])).resolve()) if kind == "file" else url


@sink_command.command(
    "abort-uploads",
    common=looking("--older-than", "--dry-run"),
    examples=(
        "kbackup sink abort-uploads -b my-bucket --dry-run",
        "kbackup sink abort-uploads --config s3.properties --older-than 7d",
    ),
)
@option("--older-than", default="1d", group="Safety", metavar="DURATION", help=OLDER_THAN)
@config_options("abort-uploads")
def abort_uploads_command(older_than: str, **parameters: Any) -> None:
    """Abort unfinished uploads that killed runs left.  Listings hide them, but S3 bills them."""

    def work(at: OpenedBackup) -> None:
        from kbackup.sink.maintenance import prune  # noqa: PLC0415

        older_than_s = _age("--older-than", older_than).total_seconds()
        at.tell(
            prune(
                at.store,
                at.layout,
                at.summary,
                now=at.clock.now(),
                older_than_s=older_than_s,
                is_dry=at.session.settings.dry_run,
                asked=at.asked,
            )
        )

    look("abort-uploads", "sink abort-uploads", parameters, work)


@sink_command.command(
    "ddl",
    common=looking("--engine", "--database", "-f", "--topics-dir"),
    examples=(
        "kbackup sink ddl --config s3.json",
        "kbackup sink ddl -b my-bucket -t orders --engine spark",
        "kbackup sink ddl --config s3.json --database lake > tables.sql",
    ),
)
@option(
    "--engine", type=click.Choice(["athena", "hive", "spark"]), default="athena",
    group="Output", help="SQL dialect.",
)  # fmt: skip
@option("--database", group="Output", metavar="NAME", help="Declare the tables in this database.")
@config_options("sink")
def ddl_command(engine: str, database: str | None, **parameters: Any) -> None:
    """Print CREATE TABLE for Athena, Hive or Spark.

    One table per topic, over the objects as they are stored.  The columns are those of the newest
    object of each topic; Kafka is not contacted, and no JVM is started.
    """

    def work(at: OpenedBackup) -> None:
        from kbackup.inspect.ddl import statements  # noqa: PLC0415

        at.tell(statements(at.session.settings, at.store, engine, database))

    look("ddl", "sink ddl", parameters, work)


def _sink(session: Session) -> "Ended":
    from kbackup.runs.context import Environment  # noqa: PLC0415
    from kbackup.sink.maintenance import RepairRun  # noqa: PLC0415
    from kbackup.sink.run import SinkRun  # noqa: PLC0415  (imports a Kafka and an S3 client)

    environment = Environment.of(session.settings, find_java)
    kind = RepairRun if session.settings.repair else SinkRun
    return kind(session.settings, session.tell, session.stop, environment)()


_KEYS_COMMON: Final = (
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

    Writes only below _kbackup/keys/.  A RECIPIENT is an X25519 public key (the one line of its PEM
    file between BEGIN and END), a file with such keys, or passphrase:FILE.
    """


@keys_command.command(
    "list", common=_KEYS_COMMON, examples=("kbackup keys list --config s3.properties",)
)
@config_options("keys")
def list_command(**parameters: Any) -> None:
    """List who can decrypt how much.

    Needs no key; with one, it also reports forged rows.
    """
    _change("list", parameters, lambda _: ())


@keys_command.command(
    "add",
    common=_KEYS_COMMON,
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
    common=_KEYS_COMMON,
    examples=("kbackup keys remove MCowBQYDK2VuAyEA... --config s3.properties",),
)
@click.argument("names", nargs=-1, required=True, metavar="RECIPIENT...")
@config_options("keys")
def remove_command(names: tuple[str, ...], **parameters: Any) -> None:
    """Remove recipients, and delete what was wrapped for them.

    Name them as keys list shows them.  Refused if nobody else can decrypt as much.  They can still
    open what they have copied, and older versions of what is deleted: revoke their access to the
    bucket too.
    """
    _change("remove", parameters, lambda keeper: keeper.remove(names))


@keys_command.command(
    "rotate",
    common=_KEYS_COMMON,
    examples=("kbackup keys rotate MCowBQYDK2VuAyEA... new.pub --config s3.properties",),
)
@click.argument("name", metavar="OLD")
@click.argument("recipient", metavar="NEW")
@config_options("keys")
def rotate_command(name: str, recipient: str, **parameters: Any) -> None:
    """Replace the recipient OLD by NEW.

    With a private key or a passphrase, NEW gets all data keys and OLD is removed.  Without, OLD
    keeps those it has, and gets no new ones.  No object is encrypted again: a data key that has
    leaked still opens its objects.
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
