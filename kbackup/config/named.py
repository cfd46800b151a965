"""The plugins that a configuration names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kbackup import plugins
from kbackup.config.doubts import Doubt, Value, error
from kbackup.errors import ConfigurationError
from kbackup.naming import View

_DO: Final = "choose one of them, or install the package that provides it"


@dataclass(slots=True)
class NamedPlugins:
    """The plugins that a configuration names, with errors and warnings about them.

    Attributes:
        view: "record" or "value".
        found: Attributes of `Settings` to their values.
        defaults: Attributes of `Settings` whose defaults are others in the layout of the format;
            empty where it has no layout of its own.
        doubts: Errors and warnings.
        without_effect: Names that do nothing in this layout.
    """

    view: str
    found: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)
    without_effect: list[str] = field(default_factory=list)

    @property
    def holds_records(self) -> bool:
        """Whether the format that was asked for holds whole records, and nothing else."""
        form = form_of(self.found.get("format_class"))
        return form is not None and form.views == {View.RECORD}

    def take(self, seam: str, name: str, given: Mapping[str, Value]) -> None:
        """Record the registered name of the plugin that the property *name* asks for."""
        value = given.get(name)
        if value is None or not value.text:
            return
        try:
            self.found[name.replace(".", "_")] = plugins.by_class_name(seam, value.text)
        except ConfigurationError as problem:
            why = f"this version does not have it; {problem.why}"
            self.doubts.append(error("unsupported", name, value, why, _DO))


def form_of(name: str | None) -> Any:
    """Return the class of a format, None if there is no name."""
    return None if name is None else plugins.load("formats", name)


def that_hold(view: View) -> str:
    """Return the names of the formats that can hold *view*, as choices."""
    names = [plugin.name for plugin in plugins.installed("formats")]
    return " or ".join(
        name
        for name in names
        if view in form_of(name).views and not getattr(form_of(name), "reads_only", False)
    )
