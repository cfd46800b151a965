"""Metrics of a sink that follows a real cluster, from the sink itself and from another host."""

import signal
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.product import free_ports
from tests.support.cluster import Record, TestCluster
from tests.support.command import Kbackup
from tests.support.running import running, wait_until
from tests.support.waits import shorter

pytestmark = [pytest.mark.integration, pytest.mark.one_process, pytest.mark.nightly]


def scraped(port: int) -> dict[tuple[str, str], float]:
    """What is served, by metric and partition; nothing as long as nothing is."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
    except URLError:
        return {}
    return {
        (one.name, one.labels.get("partition", "")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_metrics_of_a_sink_that_follows_outlive_it(kbackup: Kbackup, cluster: TestCluster) -> None:
    """A scrape tells what was copied; when the sink is killed, any host serves the same metrics."""
    kbackup = kbackup.with_environment(**shorter(RECORD_S=2, REPORT_S=1))
    cluster.create("watched", 2)
    cluster.write("watched", [Record(b"k", b"v%d" % at) for at in range(30)], 0)
    cluster.write("watched", [Record(b"k", b"v%d" % at) for at in range(12)], 1)
    ports = free_ports(2)
    words = ("--follow", "--rotate-idle-ms", "200", "--metrics-listen", str(ports[0]))
    copied = {("kbackup_partition_records", "0"): 30.0, ("kbackup_partition_records", "1"): 12.0}
    safe = {("kbackup_lag_records", "0"): 0.0, ("kbackup_lag_records", "1"): 0.0}

    with running(kbackup, "sink", "-t", "watched", *words) as sink:
        wait_until(lambda: copied.items() <= scraped(ports[0]).items(), "the copied records")
        of_sink = scraped(ports[0])
        wait_until(lambda: len(records(kbackup)) == 42, "the run record")
        sink.kill_group()
    served = ("--metrics-listen", str(ports[1]))
    with running(kbackup, "sink", "status", "-t", "watched", *served) as status:
        wait_until(lambda: scraped(ports[1]), "the metrics of the bucket")
        of_bucket = scraped(ports[1])
        status.signal(signal.SIGTERM)
        ended = status.finish()

    assert safe.items() <= of_sink.items()
    assert of_sink["kbackup_last_success_timestamp_seconds", ""] > 0
    assert (copied | safe).items() <= of_bucket.items()
    assert 1.0 == of_bucket["kbackup_up", ""]
    assert 42.0 == of_bucket["kbackup_stored_records", ""]
    assert (143, []) == (ended.code, ended.summary["errors"])


def records(kbackup: Kbackup) -> list[int]:
    """An entry for each record that the newest run record counts."""
    rows = kbackup("sink", "status", "-t", "watched", "--json").summary["partitions"]
    return [row["partition"] for row in rows for _ in range(row["records"])]
