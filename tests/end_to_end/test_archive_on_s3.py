"""An archive in an object store: S3 as moto serves it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.ports import free_ports
from raftlog import Client
from raftlog.testing.waits import LIMIT_S
from spark_io.archive import catalogue
from spark_io.archive.delta import DeltaArchive
from spark_io.archive.storage import open_storage
from spark_io.archive.verifying import verify
from spark_io.errors import ArchiveOverlap, InvalidOption
from tests.helpers.archives import archived, file_of, offsets
from tests.helpers.command_line import invoke, run
from tests.helpers.real_cluster import create_topic, eventually

pytestmark = pytest.mark.e2e

ADDRESS = "s3://history/topics"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of a store with an empty bucket; credentials come from the environment."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield from store(monkeypatch)


def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    port = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    given = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",  # for deltalake
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            eventually(lambda: is_there(url), what="moto")
            made = urllib.request.Request(f"{url}/history", method="PUT")
            urllib.request.urlopen(made, timeout=LIMIT_S).close()
            yield ADDRESS
        finally:
            server.kill()


def is_there(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=LIMIT_S).close()
    except OSError:
        return False
    return True


# requirement: A8
def test_a_batch_counts_once_in_an_object_store(s3: str) -> None:
    storage = open_storage(s3)
    assert storage.names("_manifest") == []
    assert archived(storage, 1, (0, 10), (10, 20))
    assert not archived(storage, 1, (0, 20))
    with pytest.raises(ArchiveOverlap):
        archived(storage, 2, (15, 30))
    assert offsets(storage) == [*range(20)]
    assert [*verify(storage, catalogue.load(storage))] == []
    with pytest.raises(FileExistsError):
        storage.create("_manifest/q/00000000000000000001.json", b"another driver")
    shown = invoke("http://127.0.0.1:9", "archive", "list", s3, "-o", "json")
    assert json.loads(shown.stdout)[0]["end"] == 20


# requirement: A8
def test_topics_are_archived_in_an_object_store(s3: str, unbroken: Cluster) -> None:
    create_topic(unbroken.urls[0], "orders")
    address = s3.replace("topics", "written")
    with Client(unbroken.bootstrap) as client:
        for count in (10, 20):
            for number in range(10):
                client.send("orders", str(number))
            run(unbroken, "archive", "write", "orders", address)
            found = offsets(open_storage(address))
            assert len(found) == len({*found}) == count
    run(unbroken, "archive", "verify", address)


# requirement: A8
def test_brokers_read_below_the_log_start_from_an_object_store(s3: str, tmp_path: Path) -> None:
    address = s3.replace("topics", "past")
    with (
        Cluster(tmp_path, environment={"RAFTLOG_BROKER__ARCHIVE__LOCATION": address}) as brokers,
        Client(brokers.bootstrap) as client,
    ):
        create_topic(brokers.urls[0], "orders", 1)
        for number in range(10):
            client.send("orders", str(number))
        run(brokers, "archive", "write", "orders", address)
        client.partitions.delete_before("orders", 0, 7)
        read = client.partition("orders", 0).read("earliest")
        assert [one.value for one in read] == [b"%d" % number for number in range(7)]


# requirement: A8 D3
def test_a_delta_table_in_an_object_store_has_each_offset_once(s3: str) -> None:
    deltalake = pytest.importorskip("deltalake")
    address = s3.replace("topics", "delta")
    storage, table = open_storage(address), DeltaArchive(address)

    def add(query: str, batch: int, start: int, end: int) -> bool:
        return table.add(query, batch, [file_of(storage, range(start, end))], lambda gap: False)

    assert add("q", 0, 0, 10)
    assert add("q", 1, 10, 20)
    assert not add("q", 1, 10, 20)
    with pytest.raises(ArchiveOverlap):
        add("another", 0, 15, 30)
    found = deltalake.DeltaTable(address).to_pyarrow_table().column("offset").to_pylist()
    assert sorted(found) == [*range(20)]
    with pytest.raises(InvalidOption, match="path is a Delta table"):
        catalogue.load(storage)
