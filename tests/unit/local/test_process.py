"""A server that ends when we end."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from kbackup.errors import LocalServiceError
from kbackup.local.servers import Service, free_ports

SERVER = ["/bin/sh", "-c", "echo ready; exec sleep 300"]

CHILD = """
import sys, threading, time
from pathlib import Path
from kbackup.local.servers import Service
log, scratch = map(Path, sys.argv[1:])
def start():
    global service
    service = Service("server", ["sleep", "300"], log, scratch=scratch)
thread = threading.Thread(target=start)
thread.start()
thread.join()
print(service.pid, flush=True)
time.sleep(300)
"""


def is_gone(pid: int) -> bool:
    """Whether the process ends within a minute; dead, it may wait for its new parent."""
    try:
        process = psutil.Process(pid)
        deadline = time.monotonic() + 60
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.02)
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_removed(path: Path) -> bool:
    """Whether the directory is gone within a minute; the guard removes it after the kill."""
    deadline = time.monotonic() + 60
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not path.exists()


@pytest.mark.parametrize("is_group", [False, True], ids=["process", "group"])
def test_a_server_does_not_outlive_us(is_group: bool, tmp_path: Path) -> None:
    """Killing the process that started a server, or its group, leaves no server and no data."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    arguments = [sys.executable, "-c", CHILD, str(tmp_path / "log"), str(scratch)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        assert pid != child.pid
        (os.killpg if is_group else os.kill)(child.pid, signal.SIGKILL)

    assert is_gone(pid)
    assert is_removed(scratch)


def test_a_signal_to_our_group_is_not_the_servers(tmp_path: Path) -> None:
    """A test that kills its own process group spares a server that others use."""
    service = Service("server", SERVER, tmp_path / "log")

    assert service.pid == os.getsid(service.pid)
    assert os.getpgid(0) != os.getpgid(service.pid)
    service.kill()


def test_a_stopped_server_leaves_its_data(tmp_path: Path) -> None:
    """The data of a server that we ended ourselves is ours to keep or remove."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    service = Service("server", SERVER, tmp_path / "log", scratch=scratch)
    service.wait_until(lambda: "ready" in service.log_tail(), 10)

    service.stop()
    service.stop()
    service.kill()

    assert not service.is_running
    assert scratch.exists()


def test_a_server_that_fails_says_why(tmp_path: Path) -> None:
    """When a server ends instead of getting ready, its last words are in the error."""
    service = Service("server", ["/bin/sh", "-c", "echo port taken; exit 3"], tmp_path / "log")

    with pytest.raises(LocalServiceError) as caught:
        service.wait_until(lambda: False, 10)

    assert (caught.value.what, caught.value.why) == ("server ended with exit code 3", "port taken")


def test_a_server_that_hangs_is_ended(tmp_path: Path) -> None:
    """When a server does not get ready in time it is not left behind."""
    service = Service("server", SERVER, tmp_path / "log")

    with pytest.raises(LocalServiceError, match="not ready after 0 s"):
        service.wait_until(lambda: False, 0)

    assert not service.is_running


def test_ports_are_different_and_free() -> None:
    """Ports handed out together can all be listened on."""
    ports = free_ports(5)

    listeners = [socket.create_server(("127.0.0.1", port)) for port in ports]
    assert len(set(ports)) == 5
    for listener in listeners:
        listener.close()
