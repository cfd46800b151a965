"""Properties that a plugin declares for itself; the plugin is a third party's."""

from kbackup import config, partitioners
from kbackup.partitioners import Partitioner
from kbackup.testing.partitioners import WHERE, records
from tests.support.configurations import SINK, WHOLE, Write, errors, load


def directories(partitioner: Partitioner) -> set[str]:
    """Return the directories that it spreads records over."""
    return set(partitioner.encode(WHERE, records()).to_pylist())


def test_the_options_of_a_chosen_plugin_reach_it() -> None:
    """
    Given or not, each has a text; no word of an unknown name is said.
    """
    chosen = {**WHOLE, "partitioner_class": "modulo"}
    loaded = config.load(
        "sink", options=chosen, files=(), environ={}, extra=["modulo.directories=2"]
    )
    usual = load("sink", **chosen)

    assert {"modulo.directories": "2"} == loaded.settings.plugin_options
    assert {"modulo.directories": "3"} == usual.settings.plugin_options
    assert not [doubt for doubt in loaded.warnings if doubt.code == "unknown_name"]
    found = partitioners.by_name("modulo", loaded.settings.plugin_options)
    assert {"rest=0", "rest=1"} == directories(found)


def test_an_option_is_checked_where_it_was_given(write: Write) -> None:
    """
    The plugin's own check refuses a value, by the name of the property.
    """
    text = SINK + "partitioner.class=Modulo\nmodulo.directories=none\n"

    found = errors("sink", write(text), bootstrap_servers="h:1")

    assert ["modulo.directories"] == list(found)


def test_an_option_of_a_plugin_that_is_not_chosen_is_unknown() -> None:
    """
    It has no effect, and that is said.
    """
    loaded = config.load(
        "sink", options=WHOLE, files=(), environ={}, extra=["modulo.directories=2"]
    )

    assert ["modulo.directories"] == [
        doubt.name for doubt in loaded.warnings if doubt.code == "unknown_name"
    ]
