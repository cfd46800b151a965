"""Select plugins by the names in a configuration, and take what it gives for their options.

``format.class`` selects the connectors' layout, its absence full records.  Names of plugins that
are not installed, and combinations that are impossible, are refused by name.  Who declares options,
and how, `kbackup.plugins` says.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kbackup import plugins
from kbackup.config.issues import ConfigIssue, Given, error, warning
from kbackup.config.layout import CONNECTORS_SIDES_FORMAT, RECORD_FORMAT
from kbackup.config.property import PREFIXES, Property
from kbackup.config.settings import BY_NAME, CHOICES, NAMED_BY, chosen, shown_value
from kbackup.errors import ConfigurationError
from kbackup.naming import View
from kbackup.options import check_needs


def form_of(name: str | None) -> Any:
    """Return the class of a format, None if there is no name."""
    return None if name is None else plugins.load("formats", name)


def that_hold(view: View) -> str:
    """Return the names of the formats that can hold *view*, as choices."""
    names = [plugin.name for plugin in plugins.installed("formats")]
    return " or ".join(
        name
        for name in names
        if view in form_of(name).traits.views and not form_of(name).traits.reads_only
    )


_PARTS: Final = {"key": View.KEY, "value": View.VALUE}

_OF_VALUES: Final = (
    "key.converter",
    "value.converter",
    "store.kafka.",
    "keys.format.",
    "headers.format.",
    "behavior.on.null.",
)

_TEMPLATE: Final = "object.name.template"
_SIDES: Final = {"keys": View.KEY, "headers": View.HEADERS}
"""The files beside the values, by the first word of their properties."""
_FORMATS: Final = ("format_class", "keys_format_class", "headers_format_class")
"""The settings that name the formats of files."""

_PARTITIONER: Final = "partitioner_class"

OF_RECORDS: Final = "it needs records, and batches are stored as the brokers have them"
AS_PARQUET: Final = "remove it, or leave out format.class: full records are stored as Parquet then"

_OF_ROWS: Final = (
    "timestamp.extractor",
    "schema.compatibility",
    "rotate.file.on.partition.change",
    "partitioner.max.open.files",
)


@dataclass(slots=True)
class NamedPlugins:
    """The plugins that a configuration names, with errors and warnings about them.

    Attributes:
        given: What names them, and all beside it.
        writes: Whether the command writes objects (sink) or reads them.
        view: "record" or "value".
        found: Attributes of `Settings` to their values.
        defaults: Attributes of `Settings` whose defaults are others in the layout of the format;
            empty where it has no layout of its own.
        without_effect: Names that do nothing in this layout.
    """

    given: Given
    writes: bool
    view: str = ""
    found: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    issues: list[ConfigIssue] = field(default_factory=list)
    without_effect: list[str] = field(default_factory=list)

    @property
    def form(self) -> Any:
        """The class of the format that was asked for, None if none was."""
        return form_of(self.found.get("format_class"))

    @property
    def holds_records(self) -> bool:
        """Whether the format that was asked for holds full records, and nothing else."""
        return self.form is not None and self.form.traits.views == {View.RECORD}

    @property
    def stores_batches(self) -> bool:
        """Whether the format is written by batches as brokers store them, not by records."""
        return self.form is not None and self.form.traits.stores_batches

    def resolve(self, *, converts: bool, connector: str | None, lacks_format: bool) -> None:
        """Find the view, formats, converters and partitioner.

        Args:
            converts: Whether the command decodes records at all.
            connector: The class of the connector whose file this is; None if it is not one's.
            lacks_format: Whether the command needs a format and none was given.
        """
        given, is_connector = self.given, connector is not None
        view = given["view"].text.lower() if "view" in given else ""
        if view not in ("record", "value"):
            view = "value" if "format.class" in given or is_connector else "record"
        self.view = view
        if self.writes and "view" not in given:
            self.found["view"] = view
        if "format.class" not in given:
            self._name_by_connector(connector)
        if is_connector and lacks_format and "format_class" not in self.found:
            why = "a connector's configuration needs it"
            do = "add format.class; for full records leave out connector.class"
            self._refuse("incomplete", "format.class", why, do)
        self._take("formats", "format.class")
        if self.writes and "view" not in given and self.stores_batches:
            self.view = self.found["view"] = "record"
        self._take("formats", "only.format")
        self._take("partitioners", "partitioner.class")
        self._own_settings()
        self._take("extractors", "timestamp.extractor")
        if self.view == "record" and self.writes:
            self._full_records()
        else:
            self._values(is_connector=is_connector)
            if converts:
                self._converters()
        if self.writes:
            self._misfits()

    def _refuse(self, code: str, name: str, why: str, do: str) -> None:
        self.issues.append(self.given.error(code, name, why, do))

    def _take(self, extension_point: str, name: str) -> None:
        """Record the registered name of the plugin that the property *name* asks for."""
        text = self.given.text(name)
        if not text:
            return
        try:
            self.found[name.replace(".", "_")] = plugins.by_class_name(extension_point, text)
        except ConfigurationError as problem:
            self._refuse("unsupported", name, f"{problem.what}; {problem.why}", problem.do)

    def _converters(self) -> None:
        """Record both converters; the key's applies if keys are stored."""
        format_name: str | None = self.found.get("format_class")
        self._converter("value", format_name)
        keys_format = self.found.get("keys_format_class", None if self.writes else format_name)
        if self.given.is_true("store.kafka.keys"):
            self._converter("key", keys_format)
            return
        # a backup may have keys that nobody mentions: read by it if it can be found
        trial = NamedPlugins(self.given, self.writes)
        if not self.writes:
            trial._converter("key", keys_format)
        key = trial.found.get("key_converter")
        lacks = key is not None and any(
            option.is_required and f"key.converter.{option.name}" not in self.given
            for option in plugins.options("converters", key)
        )
        if self.writes or lacks or any(issue.level == "error" for issue in trial.issues):
            self.without_effect += [name for name in self.given if name.startswith("key.converter")]
        else:
            self.found |= trial.found

    def _converter(self, part: str, format_name: str | None) -> None:
        """Record the converter of *part* and its sub-properties."""
        name, form = f"{part}.converter", form_of(format_name)
        value = self.given.get(name)
        self._take("converters", name)
        found = self.found.get(f"{part}_converter")
        if found is None and value is None and form is not None:
            to_write = form.traits.assumed_to_write if self.writes else {}
            found = {**form.traits.assumed, **to_write}.get(_PARTS[part])
            if found is not None:
                self.found[f"{part}_converter"] = found
                defaults = plugins.load("converters", found).traits.defaults
                says = "".join(f" with {key}={shown_value(own)}" for key, own in defaults.items())
                why = f"not given, so the worker's converter was used; {found}{says} is assumed"
                do = f"set {name} to the worker's converter"
                self.issues.append(warning("assumed", name, None, why, do))
        if found is not None and form is not None and not _go_together(found, form):
            fit = _that_go_with(form, _PARTS[part])
            why = f"this version writes {format_name} files of: {', '.join(fit)}"
            do = f"set {name}={fit[0]}" if fit else f"choose another {_format_of(name)}"
            self._refuse("combination", name, why, do)
        properties: dict[str, Any] = {}
        if found is not None:
            converter = plugins.load("converters", found)
            properties = _given_options(self.given, f"{name}.", found)
            if value is None or value.text == found:  # a Java class keeps Connect's own defaults
                properties = {**converter.traits.defaults, **properties}
            self._configure(converter(), properties, name, format_name)
        self.found[f"{part}_converter_properties"] = properties

    def _configure(
        self, opened: Any, properties: Mapping[str, Any], name: str, format_name: str | None
    ) -> None:
        """Check that a converter can be configured like this, and fits files of a format."""
        form = form_of(format_name)
        needs_schema = self.writes and form is not None and form.traits.needs_schema
        try:
            opened.configure(properties)
            is_schemaless = isinstance(opened, plugins.MayBeSchemaless) and opened.is_schemaless
            if needs_schema and is_schemaless:
                why = f"{format_name} files need a schema, and JSON without schemas has none"
                do = f"set {name}.schemas.enable=true if the records carry theirs, or "
                self._refuse("combination", name, why, f"{do}{_format_of(name)}=json")
        except ConfigurationError as problem:
            place = f"{name}.{problem.place.get('property', '')}".removesuffix(".")
            why = f"{problem.what}; {problem.why}" if problem.why else problem.what
            self._refuse("unsupported", place, why, problem.do)

    def _name_by_connector(self, connector: str | None) -> None:
        """Note the format that a connector always writes, if it is of that kind."""
        for plugin in plugins.installed("formats") if connector else ():
            traits = form_of(plugin.name).traits
            if connector in traits.connectors:
                self.found["format_class"] = plugin.name
                self.defaults |= traits.connector_settings

    def _own_settings(self) -> None:
        """Note how the layout of the format differs from others, and refuse to mix the two."""
        name = self.found.get("format_class")
        traits = None if name is None else form_of(name).traits
        own: Mapping[str, Any] = {} if traits is None else traits.settings
        self.defaults |= own
        is_dated = traits is not None and traits.directory is not None
        if self.given.text(_TEMPLATE) and not is_dated:
            dated = " or ".join(
                plugin.name
                for plugin in plugins.installed("formats")
                if form_of(plugin.name).traits.directory is not None
            )
            why = f"it applies to format.class={dated} only"
            do = f"set format.class={dated}; elsewhere partitioner.class gives directories"
            self._refuse("combination", _TEMPLATE, why, do)
        for part in _SIDES if own else ():
            if self.given.is_true(f"store.kafka.{part}"):
                why = f"format.class={name} has no place for {part}"
                do = f"set it to false; to keep {part} choose full records"
                self._refuse("combination", f"store.kafka.{part}", why, do)
        wanted, asked = own.get(_PARTITIONER), self.found.get(_PARTITIONER)
        if asked is not None and wanted is not None and asked != wanted:
            why = f"the objects of format.class={name} have names of their own"
            self._refuse("combination", "partitioner.class", why, "remove it")
        if asked is not None and wanted is None:
            mine = [
                plugin.name
                for plugin in plugins.installed("formats")
                if form_of(plugin.name).traits.settings.get(_PARTITIONER) == asked
            ]
            if mine:
                why = f"it applies to format.class={' or '.join(mine)} only"
                do = f"set format.class={mine[0]}, or choose another partitioner"
                self._refuse("combination", "partitioner.class", why, do)

    def _full_records(self) -> None:
        self.found.setdefault("format_class", RECORD_FORMAT)
        traits = self.form.traits
        if View.RECORD not in traits.views:
            why, do = "it cannot hold full records", "leave out format.class, or choose "
            self._refuse("unsupported", "format.class", why, f"{do}--view value")
        elif traits.stores_batches:
            self._not_of_batches()
        elif traits.reads_only:
            self._refuse(
                "unsupported",
                "format.class",
                "it can be read, but not written",
                "leave out format.class",
            )
        self.without_effect += [name for name in self.given if name.startswith(_OF_VALUES)]

    def _not_of_batches(self) -> None:
        """Refuse what cannot be done with batches that nobody unpacks."""
        name = self.found.get(_PARTITIONER)
        partitioner = None if name is None else plugins.load("partitioners", name)
        if partitioner is not None and not issubclass(partitioner, plugins.HasOnlyDirectory):
            self._refuse("combination", "partitioner.class", OF_RECORDS, AS_PARQUET)
        for name in ("errors.deadletterqueue.topic.name", "s3.schema.partition.affix.type"):
            if self.given.text(name).upper() not in ("", "NONE"):
                self._refuse("combination", name, OF_RECORDS, AS_PARQUET)
        self.without_effect += [name for name in self.given if name in _OF_ROWS]

    def _values(self, *, is_connector: bool) -> None:
        given, form = self.given, self.form
        is_only_read = form is not None and form.traits.reads_only
        if self.writes and is_only_read and not form.traits.stores_batches:
            do = f"choose {that_hold(View.VALUE)}"
            self._refuse("unsupported", "format.class", "it can be read, but not written", do)
        elif form is None or (is_only_read and not self.writes):
            pass  # whatever reads it knows what it holds
        elif View.VALUE not in form.traits.views and (self.writes or is_connector):
            why = "this version supports it for full records only"
            do = f"leave out format.class for full records, or choose {that_hold(View.VALUE)}"
            self._refuse("unsupported", "format.class", why, do)
        has_tombstones = given.text("behavior.on.null.values").lower() == "write"
        if self.writes and has_tombstones and not given.is_true("store.kafka.keys"):
            why = "of a tombstone there is nothing but its key to store"
            do = "set store.kafka.keys=true, or leave out format.class: full records keep "
            self._refuse("combination", "behavior.on.null.values", why, f"{do}tombstones")
        for part in _SIDES:
            name = f"{part}.format.class"
            if given.is_true(f"store.kafka.{part}"):
                self._take("formats", name)
                if self.writes:
                    self._side_format(part, name)
            elif name in given:
                self.without_effect.append(name)

    def _side_format(self, part: str, name: str) -> None:
        """Take the connectors' format for files of keys or headers, and refuse one without."""
        attribute = name.replace(".", "_")
        if name not in self.given:
            self.found[attribute] = CONNECTORS_SIDES_FORMAT
        form = form_of(self.found.get(attribute))
        if form is not None and _SIDES[part] not in form.traits.views:
            why = f"this version cannot write {part} in this format"
            self._refuse("unsupported", name, why, f"choose {that_hold(_SIDES[part])}")

    def _misfits(self) -> None:
        """Refuse each option that applies to all files and that some format lacks."""
        # as S3SinkConnectorConfig.validateCompression: all files have the same format
        for name, value in self.given.items():
            found = BY_NAME.get(name)
            option = None if found is None else found.declared
            if found is None or option is None or not option.must_fit:
                continue
            if option.read(value.value) == option.default:
                continue
            for attribute in _FORMATS:
                form = self.found.get(attribute)
                if form is not None and ("formats", form) not in found.plugins:
                    why = f"{attribute.replace('_', '.')} is {form}, which does not have it"
                    self._refuse("combination", name, why, f"set it to {option.default}")


def _go_together(converter: str, form: Any) -> bool:
    """Whether a format takes what a converter gives; by what both declare."""
    return not form.traits.takes.isdisjoint(plugins.load("converters", converter).traits.gives)


def _that_go_with(form: Any, view: View) -> list[str]:
    """Return the names of the installed converters that go with a format, the usual one first."""
    found = []
    for plugin in plugins.installed("converters"):
        try:
            if _go_together(plugin.name, form):
                found.append(plugin.name)
        except ConfigurationError:  # a broken one is nobody's choice
            continue
    return sorted(found, key=lambda name: (name != form.traits.assumed.get(view), name))


def _given_options(given: Given, prefix: str, converter: str) -> dict[str, Any]:
    """Return what was given for the options of *converter*, by their names without *prefix*."""
    mine = {
        name: BY_NAME[name].declared
        for name in given
        if name.startswith(prefix)
        and name in BY_NAME
        and ("converters", converter) in BY_NAME[name].plugins
    }
    return {
        option.name: option.read(given[name].value)
        for name, option in mine.items()
        if option is not None
    }


def _format_of(converter: str) -> str:
    """Return the property of the format that goes with the property of a converter."""
    return "keys.format.class" if converter == "key.converter" else "format.class"


_NAMING: Final = frozenset(attribute.replace("_", ".") for _, attribute in CHOICES)
"""The properties that name plugins."""


def usable(names: Iterable[str], given: Given, bad: Container[str]) -> Given:
    """Return what was given for *names*, without the *bad* ones; an empty name is not given."""
    good = (name for name in names if name not in bad)
    return Given({name: given[name] for name in good if name not in _NAMING or given[name].text})


def refused_values(names: Iterable[str], given: Given) -> Iterator[ConfigIssue]:
    """Yield an error for each value that its option refuses."""
    for name in names:
        found = BY_NAME.get(name)
        if found is not None and found.declared is not None:
            try:
                found.read(given[name].value)
            except ValueError as problem:
                yield given.error("value", name, str(problem), "correct it")


def option_values(given: Given) -> dict[str, Any]:
    """Return the value of each option in *given*, of the option's type."""
    found = ((name, BY_NAME[name].declared) for name in given if name in BY_NAME)
    return {name: option.read(given[name].value) for name, option in found if option is not None}


def idle(names: Iterable[str], settings: Mapping[str, Any], *, reads: bool) -> Iterator[str]:
    """Yield the options among *names* none of whose plugins is chosen.

    Args:
        settings: What chooses plugins, by attribute of `Settings`.
        reads: Whether a backup is read: what no setting names follows from its objects then.
    """
    wanted = chosen(settings)
    for name in names:
        found = BY_NAME.get(name)
        if found is None or found.declared is None:
            continue
        if not any(
            _is_chosen(found, extension_point, plugin, wanted, reads=reads)
            for extension_point, plugin in found.plugins
        ):
            yield name


def missing(
    settings: Mapping[str, Any], given: Given, sides: frozenset[str]
) -> Iterator[ConfigIssue]:
    """Yield what the chosen plugins need and was not given, and options they cannot declare.

    An option that is ignored for want of another one is a warning.
    """
    filled = {name for name, value in given.items() if value.text.strip()}
    for attribute, (extension_point, plugin) in chosen(settings).items():
        try:
            options = plugins.options(extension_point, plugin)
        except ConfigurationError as problem:
            yield error("plugin", "", None, f"{problem.what}: {problem.why}", problem.do)
            continue
        prefix = f"{attribute.replace('_', '.')}." if extension_point in PREFIXES else ""
        for option in options:
            found = BY_NAME[prefix + option.name]
            if found.declared != option:
                why = f"{plugin} declares it differently from another plugin, or from kbackup"
                yield error("plugin", found.name, None, why, "uninstall one of the two")
            elif option.is_required and found.name not in filled and found.commands & sides:
                kind = extension_point.removesuffix("s")
                why = f"it is not given, and the {kind} {plugin} needs it"
                yield error("missing", found.name, None, why, f"set {found.name}: {option.help}")
        texts = {
            option.name: given[prefix + option.name].text or None
            for option in options
            if prefix + option.name in given
        }
        try:
            check_needs(options, texts)
        except ConfigurationError as problem:
            name = prefix + str(problem.place["property"])
            yield error("missing", name, None, problem.why, problem.do)
        for option in options:
            other = option.ignored_without
            if other and texts.get(option.name) is not None and texts.get(other) is None:
                name = prefix + option.name
                why = f"it is ignored, as by the connectors, because {prefix}{other} is not set"
                yield given.warning("no_effect", name, why, "set both, or neither")


def unusable(
    settings: Mapping[str, Any], options: Mapping[str, Any], bad: Container[str]
) -> Iterator[ConfigIssue]:
    """Yield what the chosen store and partitioner cannot be configured with.

    What goes with one of the *bad* names, of which something is wrong already, is not judged.
    """
    yield from _unusable_by("stores", chosen(settings)["store_url"][1], options, bad)
    _, name = chosen(settings)["partitioner_class"]
    declared = plugins.options("partitioners", name)
    shared = {
        "directory.delim": settings.get("directory_delim") or "/",
        "timezone": settings.get("timezone"),
    }
    if not declared or any(each in bad for each in (*shared, *(one.name for one in declared))):
        return
    try:
        plugins.load("partitioners", name)().configure({**options, **shared})
    except ConfigurationError as problem:
        named = str(problem.place.get("property", "partitioner.class"))
        yield error("unsupported", named, None, problem.why or problem.what, problem.do)


def unreadable(options: Mapping[str, Any], bad: Container[str]) -> Iterator[ConfigIssue]:
    """Yield options with which a format reads nothing: objects say themselves what reads them.

    Of *bad* names something is wrong already: what goes with one of them is not judged.
    """
    for found in plugins.installed("formats"):
        declared = plugins.options("formats", found.name)
        if any(option.name in options for option in declared):
            yield from _unusable_by("formats", found.name, options, bad)


def _unusable_by(
    extension_point: str, name: str, options: Mapping[str, Any], bad: Container[str]
) -> Iterator[ConfigIssue]:
    try:
        found = plugins.load(extension_point, name)
        if isinstance(found, plugins.ChecksOptions):
            found.check_options(options)
    except ConfigurationError as problem:
        named = problem.place.get("property")
        is_known = any(option.name in bad for option in plugins.options(extension_point, name))
        if named is None or not is_known:  # else it may be wrong because of those
            named = str(named or NAMED_BY[extension_point])
            yield error("combination", named, None, problem.why or problem.what, problem.do)


def _is_chosen(
    found: Property,
    extension_point: str,
    plugin: str,
    chosen: Mapping[str, tuple[str, str]],
    *,
    reads: bool,
) -> bool:
    if extension_point == "formats" and reads:
        return True
    if extension_point in PREFIXES:
        attribute = found.name.partition(".converter.")[0] + "_converter"
        return (extension_point, plugin) == chosen.get(
            attribute, (extension_point, plugin) if reads else None
        )
    return (extension_point, plugin) in chosen.values()
