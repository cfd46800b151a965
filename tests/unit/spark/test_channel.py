"""The line between the driver and its tasks."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kbackup.events import INLINE, Event
from kbackup.spark.channel import ChannelServer, TaskChannel


@dataclass(frozen=True)
class Said:
    """What is told, with any fields."""

    fields: dict[str, Any] = field(metadata=INLINE)


class Ear:
    """Hears events, and can wait for the n-th."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self._more = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._more:
            self.heard.append(event)
            self._more.notify_all()

    def wait(self, count: int) -> list[Event]:
        """The first *count* events."""
        with self._more:
            assert self._more.wait_for(lambda: len(self.heard) >= count, 60)
            return self.heard[:count]


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def hub(ear: Ear) -> Iterator[ChannelServer]:
    """The driver's end."""
    server = ChannelServer("127.0.0.1", ear)
    yield server
    server.close()


def test_events_arrive_in_order(hub: ChannelServer, ear: Ear) -> None:
    """The driver receives what a task sends."""
    with TaskChannel(hub.address) as line:
        for at in range(3):
            line.tell(Said({"at": at, "text": "ü\n"}))

        assert [{"at": at, "text": "ü\n"} for at in range(3)] == ear.wait(3)


def test_threads_of_a_task_do_not_mix_their_lines(hub: ChannelServer, ear: Ear) -> None:
    """Messages of two threads arrive complete, each thread's in order."""
    text = "x" * 300_000  # more than a socket takes at once
    with TaskChannel(hub.address) as line:
        threads = [
            threading.Thread(
                target=lambda name=name: [
                    line.tell(Said({"by": name, "text": text})) for _ in range(20)
                ]
            )
            for name in "ab"
        ]
        for thread in threads:
            thread.start()
        heard = ear.wait(40)
        for thread in threads:
            thread.join()

    assert 20 * ["a"] + 20 * ["b"] == sorted(event["by"] for event in heard)
    assert {text} == {event["text"] for event in heard}


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(ChannelServer.stop, id="asked to"),
        pytest.param(ChannelServer.close, id="driver gone"),
    ],
)
def test_a_task_stops_when_asked_or_left_alone(
    hub: ChannelServer, ear: Ear, end: Callable[[ChannelServer], None]
) -> None:
    """A stop, and the death of the driver, both reach a task that works."""
    with TaskChannel(hub.address) as line:
        line.tell(Said({}))
        ear.wait(1)

        end(hub)

        assert line.wait(60)


def test_a_task_whose_call_is_being_answered_is_left_alone_too(hub: ChannelServer) -> None:
    """The driver can leave between a task's call and its secret; the task must not wait for it."""
    with socket.create_connection((hub.address.host, hub.address.port), 10) as early:
        with TaskChannel(hub.address):
            wait_for(lambda: hub.met_at is not None)  # so the early call has been taken as well
        hub.close()
        early.sendall(hub.address.secret.encode() + b"\n")

        assert b"" == early.recv(1)


def test_a_task_that_comes_late_is_stopped_too(hub: ChannelServer) -> None:
    """Tasks start one after the other; a stop is for all of them."""
    hub.stop()

    with TaskChannel(hub.address) as line:
        assert line.wait(60)


def test_nobody_without_the_secret_is_heard(hub: ChannelServer, ear: Ear) -> None:
    """The port is open to whoever finds it; the secret travels with the task alone."""
    with TaskChannel(replace(hub.address, secret="guessed")) as line:
        line.tell(Said({"type": "progress"}))
        assert line.wait(60)

    assert [] == ear.heard


def test_a_task_out_of_reach_works_on(hub: ChannelServer) -> None:
    """Without a line to the driver a task neither fails nor stops."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nowhere = replace(hub.address, port=taken.getsockname()[1])
        hub.close()

        with TaskChannel(nowhere) as line:
            line.tell(Said({"lost": True}))

            assert (False, True) == (line.is_stopped(), line.is_lost())


def test_the_secret_is_not_shown(hub: ChannelServer) -> None:
    """An address in a log line gives nothing away."""
    assert hub.address.secret not in repr(hub.address)


def test_a_display_that_fails_does_not_stop_the_task() -> None:
    """An event that cannot be shown is lost, and the line holds."""
    ear = Ear()

    def hear(event: Event) -> None:
        if event["at"] == 0:
            raise ValueError
        ear(event)

    hub = ChannelServer("127.0.0.1", hear)
    with TaskChannel(hub.address) as line:
        for at in range(2):
            line.tell(Said({"at": at}))
        heard = ear.wait(1)
        is_stopped = line.is_stopped()
    hub.close()

    assert ([{"at": 1}], False) == (heard, is_stopped)


def test_orders_reach_every_task_and_those_that_call_later(hub: ChannelServer) -> None:
    """A task that Spark runs again receives all earlier orders once, in order."""
    with TaskChannel(hub.address) as first:
        wait_for(lambda: hub.met_at is not None)
        hub.order(Said({"at": 1}))
        hub.order(Said({"at": 2, "text": "ü\n"}))
        heard = orders(first, 2)
        with TaskChannel(hub.address) as second:
            late = orders(second, 2)
            hub.order(Said({"at": 3}))
            more = orders(first, 1), orders(second, 1)
            is_stopped = first.is_stopped(), second.is_stopped()
            hub.stop()
            both = first.wait(60), second.wait(60)

    assert [{"at": 1}, {"at": 2, "text": "ü\n"}] == heard == late
    assert ([{"at": 3}], [{"at": 3}]) == more
    assert ((False, False), (True, True)) == (is_stopped, both)


def orders(line: TaskChannel, count: int) -> list[Event]:
    """The next *count* orders a task hears."""
    heard: list[Event] = []
    wait_for(lambda: heard.extend(line.orders()) or len(heard) >= count)
    return heard


def wait_for(is_so: Callable[[], bool]) -> None:
    """Return as soon as *is_so*."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_task_learns_that_the_driver_has_gone(hub: ChannelServer) -> None:
    """It ends at its next safe point, as if it were asked to."""
    with TaskChannel(hub.address) as line:
        hub.close()

        wait_for(line.is_stopped)
        assert line.is_lost()
