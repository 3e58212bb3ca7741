"""The files of a cluster on several machines and of a broker that joins it, and refused machines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from api.cli.commands import app
from broker.addresses import BROKERS_MAX, Machine, machines
from broker.cluster_files import create_cluster, create_joined, read_secret
from broker.settings import BrokerSettings, load_settings
from partitions.metadata.placement import place
from raftlog.errors import InvalidRequest
from raftlog.types import NodeId
from raftlog.wire.joining import JoinToken, signed
from tests.helpers import fake_services
from tests.helpers.async_tests import in_real_time
from tests.helpers.http_server import serve


def named(hosts: Iterable[str]) -> tuple[str, ...]:
    """The options that name these hosts."""
    return tuple(word for host in hosts for word in ("--host", host))


def init(data: Path, *hosts: str, more: tuple[str, ...] = ()) -> Result:
    return CliRunner().invoke(app, ["cluster", "init", "--data", str(data), *named(hosts), *more])


def settings_of(data: Path, count: int) -> list[BrokerSettings]:
    return [load_settings(data / f"broker-{number}" / "raftlog.toml") for number in range(1, count + 1)]


def test_each_machine_gets_a_folder_that_needs_no_other(tmp_path: Path) -> None:
    made = init(tmp_path / "made", "log1.example", "log2.example", "log3.example")
    assert made.exit_code == 0
    assert f"broker=2 host=log2.example http=http://log2.example:7070 directory={tmp_path}" in made.stdout
    secrets = set()
    for number in (1, 2, 3):
        alone = (tmp_path / "made" / f"broker-{number}").rename(tmp_path / f"machine-{number}")
        settings = load_settings(alone / "raftlog.toml")
        assert settings.broker_id == number
        assert (settings.http.host, settings.http.port) == ("", 7070)
        assert (settings.rpc.host, settings.rpc.port) == ("", 7170)
        assert settings.http_url == f"http://log{number}.example:7070"
        assert [(peer.host, peer.port) for peer in settings.peers.values()] == [
            (f"log{peer}.example", 7170) for peer in (1, 2, 3)
        ]
        assert settings.secret_file.parent == settings.data_directory.parent == alone
        assert settings.secret_file.stat().st_mode & 0o777 == 0o600
        secrets.add(settings.secret_file.read_text())
    assert len(secrets) == 1


def test_a_machine_of_an_ip_address_listens_there(tmp_path: Path) -> None:
    init(tmp_path, "192.0.2.7:8070", "[2001:DB8::0:1]:9070")
    first, second = settings_of(tmp_path, 2)
    assert (first.http.host, first.http.port, first.rpc.port) == ("192.0.2.7", 8070, 8170)
    assert (second.http.host, second.http_url) == ("2001:db8::1", "http://[2001:db8::1]:9070")
    assert (first.peers[2].host, first.peers[2].port) == ("2001:db8::1", 9170)


def test_machines_on_loopback_need_no_leave_to_be_insecure(tmp_path: Path) -> None:
    made = init(tmp_path, "127.0.0.2", "127.0.0.3")
    assert [settings.insecure for settings in settings_of(tmp_path, 2)] == [False, False]
    assert "warning" not in made.stderr


def test_machines_in_a_network_come_with_a_warning(tmp_path: Path) -> None:
    made = init(tmp_path, "log1", "log2:8070")
    assert "the ports 7070, 7170, 8070, 8170 have neither TLS nor users" in made.stderr


@pytest.mark.parametrize(
    "host",
    [
        *("", ":7070", "a:", "a:b", "a b", "a..b", "-a", "a/b", "http://a:7070", "300.1.1.1", "1.2.3"),
        *("::1", "[::1", "[a]", "[127.0.0.1]", "[fe80::1%eth0]", "0.0.0.0", "[::]", "224.0.0.1", "a" * 64),
        *("a:0", "a:65536", "a:65500", "a\n", '"a"'),
    ],
)
def test_what_is_no_machine_is_refused_and_nothing_is_written(tmp_path: Path, host: str) -> None:
    refused = init(tmp_path / "made", "log1.example", host)
    assert refused.exit_code == 2
    assert f"--host {host!r}" in refused.stderr
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "hosts",
    [
        *(("a", "a"), ("a", "A."), ("a:7070", "a"), ("a", "a:7170"), ("a:7170", "a")),
        *(("[::1]", "[0::1]"), ("10.0.0.1", "10.0.0.1:7070")),
    ],
)
def test_two_brokers_on_one_port_are_refused(tmp_path: Path, hosts: tuple[str, ...]) -> None:
    refused = init(tmp_path / "made", *hosts)
    assert refused.exit_code == 2
    assert f"--host {hosts[1]!r}" in refused.stderr
    assert "is taken by" in refused.stderr


def test_several_brokers_of_a_host_have_ports_of_their_own_and_the_host_as_rack(tmp_path: Path) -> None:
    made = init(tmp_path, "log1", "log2", "log3:8070", more=("--per-host", "2"))
    assert made.exit_code == 0
    found = settings_of(tmp_path, 6)
    assert [(each.rack, each.http.port, each.rpc.port) for each in found] == [
        *(("log1", 7070, 7170), ("log2", 7070, 7170), ("log3", 8070, 8170)),
        *(("log1", 7071, 7171), ("log2", 7071, 7171), ("log3", 8071, 8171)),
    ]
    assert all(each.peers == found[0].peers and len(each.peers) == 6 for each in found)
    assert f"broker=4 host=log1 http=http://log1:7071 directory={tmp_path}" in made.stdout


def test_replicas_of_a_partition_are_on_different_hosts(tmp_path: Path) -> None:
    init(tmp_path, "log1", "log2", "log3", more=("--per-host", "4"))
    racks = {NodeId(each.broker_id): each.rack for each in settings_of(tmp_path, 12)}
    rows = place(racks, [], partitions=24, replication_factor=3)
    assert all(len({racks[broker] for broker in row}) == 3 for row in rows)
    assert Counter(row[0] for row in rows) == dict.fromkeys(racks, 2)  # each broker leads as much


def test_one_broker_for_each_host_has_no_rack(tmp_path: Path) -> None:
    init(tmp_path, "log1", "log2")
    assert [each.rack for each in settings_of(tmp_path, 2)] == [None, None]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--host", "log1.example", "--host", "localhost"), "--host 'localhost' can be reached"),
        (("--host", "a", "--brokers", "3"), "exclude each other"),
        (named(f"h{number}" for number in range(BROKERS_MAX + 1)), "--host is given 101 times"),
        (("--per-host", "2"), "--per-host needs --host"),
        (("--host", "a", "--per-host", "0"), "0 is not in the range"),
        (("--host", "a", "--host", "a:7071", "--per-host", "2"), "port 7071 of a is taken by"),
        (("--host", "a", "--host", "b", "--per-host", "51"), "given 2 times, with --per-host 51"),
        (("--host", "a:65435", "--per-host", "2"), "the port between brokers is 65536"),
    ],
)
def test_wrong_numbers_of_brokers_are_refused(tmp_path: Path, words: tuple[str, ...], reason: str) -> None:
    refused = init(tmp_path / "made", more=words)
    assert (refused.exit_code, reason in refused.stderr) == (2, True), refused.stderr
    assert not (tmp_path / "made").exists()


def test_ports_are_said_once_for_all_machines() -> None:
    assert len(machines([f"h{number}" for number in range(BROKERS_MAX)], 7070, None)) == BROKERS_MAX
    assert machines(["a", "b:1"], 8000, 9000) == [Machine("a", 8000, 9000), Machine("b", 1, 9000)]


def test_a_cluster_that_is_there_is_not_touched(tmp_path: Path) -> None:
    init(tmp_path, "log1.example")
    before = (tmp_path / "broker-1" / "raftlog.toml").read_text()
    refused = init(tmp_path, "log2.example")
    assert (refused.exit_code, "already contains a cluster" in refused.stderr) == (1, True)
    assert (tmp_path / "broker-1" / "raftlog.toml").read_text() == before


# requirement: RP11
def test_racks_are_given_to_the_brokers_in_turn(tmp_path: Path) -> None:
    racks = ("--rack", "east", "--rack", 'a "quoted" one')
    assert init(tmp_path / "m", "log1", "log2", "log3", more=racks).exit_code == 0
    assert [each.rack for each in settings_of(tmp_path / "m", 3)] == ["east", 'a "quoted" one', "east"]
    assert init(tmp_path / "here", more=("--brokers", "2", "--rack", "east")).exit_code == 0
    assert [each.rack for each in settings_of(tmp_path / "here", 2)] == ["east", "east"]
    assert init(tmp_path / "none", more=("--brokers", "1")).exit_code == 0
    assert settings_of(tmp_path / "none", 1)[0].rack is None


@pytest.mark.parametrize("rack", ["", "x" * 256])
def test_a_rack_that_no_broker_takes_is_refused_and_nothing_is_written(tmp_path: Path, rack: str) -> None:
    for hosts in ((), ("log1",)):
        refused = init(tmp_path / "made", *hosts, more=("--rack", rack))
        assert refused.exit_code == 1
        assert "1 to 255 characters" in refused.stderr
        assert not (tmp_path / "made").exists()


def test_dev_refuses_other_racks_than_its_cluster_has(tmp_path: Path) -> None:
    create_cluster(tmp_path, brokers=2, http_port=17_000, racks=["east"])
    refused = CliRunner().invoke(app, ["dev", "--data", str(tmp_path), "--rack", "east", "--rack", "west"])
    assert refused.exit_code == 1
    assert "broker 2 of the cluster" in refused.stderr
    assert "omit --rack, or change rack in" in refused.stderr


SECRET = bytes(range(32))
TOKEN = signed(JoinToken("c" * 32, ("http://127.0.0.1:9",), 1 << 50, "n" * 32), SECRET)


def joined(directory: Path, *, rack: str | None = None, host: str = "log4.example") -> Path:
    peers = {1: ("log1.example", 7170), 4: (host, 7170)}
    return create_joined(
        directory, 4, Machine(host, 7070, 7170), cluster_id="c" * 32, secret=SECRET, peers=peers, rack=rack
    )


def join(*more: str, token: str = TOKEN) -> Result:
    return CliRunner().invoke(app, ["cluster", "join", token, "--host", "127.0.0.1:8070", *more])


def secret_in(directory: Path, secret: bytes = SECRET) -> str:
    path = directory / "secret"
    path.write_text(secret.hex())
    path.chmod(0o600)
    return str(path)


# requirement: F2
def test_a_joined_broker_has_settings_of_its_own_and_never_begins_a_cluster(tmp_path: Path) -> None:
    settings = load_settings(joined(tmp_path, rack='a "quoted" rack'))
    assert (settings.broker_id, settings.joined, settings.rack) == (4, True, 'a "quoted" rack')
    assert {number: peer.host for number, peer in settings.peers.items()} == {
        1: "log1.example",
        4: "log4.example",
    }
    assert settings.http_url == "http://log4.example:7070"
    assert read_secret(settings.secret_file) == SECRET
    assert settings.secret_file.stat().st_mode & 0o777 == 0o600


def test_the_first_brokers_of_a_cluster_have_not_joined_it(tmp_path: Path) -> None:
    (path,) = create_cluster(tmp_path, brokers=1, http_port=7070)
    assert not load_settings(path).joined


def test_a_folder_that_exists_is_never_written_into(tmp_path: Path) -> None:
    path = joined(tmp_path)
    before = path.read_text()
    with pytest.raises(InvalidRequest, match="exists"):
        joined(tmp_path, host="log5.example")
    assert path.read_text() == before


def test_a_secret_of_another_cluster_is_noticed_before_anybody_is_asked(tmp_path: Path) -> None:
    result = join("--secret-file", secret_in(tmp_path, b"x" * 32), "--data", str(tmp_path / "new"))
    assert result.exit_code == 1
    assert "is not the secret of the cluster that issued the token" in result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        (("--replace",), 1, "give --broker"),
        (("--host", "0.0.0.0"), 2, "not the address of a machine"),
        (("--http-port", "99999", "--host", "127.0.0.1"), 2, "1<=x<=65535"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, more: tuple[str, ...], code: int, text: str) -> None:
    result = join("--secret-file", secret_in(tmp_path), *more)
    assert (result.exit_code, text in result.stderr) == (code, True), result.stderr


def test_what_is_no_token_is_refused(tmp_path: Path) -> None:
    result = join("--secret-file", secret_in(tmp_path), token="raftlog-join.abc")
    assert result.exit_code == 1
    assert "token is not a join token" in result.stderr


def test_without_a_broker_that_answers_nothing_is_written(tmp_path: Path) -> None:
    result = join("--secret-file", secret_in(tmp_path), "--data", str(tmp_path / "new"))
    assert result.exit_code == 4
    assert not (tmp_path / "new").exists()


# requirement: F2
@in_real_time
async def test_a_command_that_is_repeated_lets_the_same_broker_join(tmp_path: Path) -> None:
    """Its answer may have been lost: a second id would be that of a broker that never comes."""
    async with serve() as server:
        token = str((await server.post("/v1/cluster/join-tokens")).json["token"])

        async def joined_as(*more: str) -> str:
            where = (
                "--data",
                str(tmp_path / f"data-{len(list(tmp_path.iterdir()))}"),
                "--server",
                server.url,
            )
            secret = secret_in(tmp_path, fake_services.SECRET)
            result = await asyncio.to_thread(join, "--secret-file", secret, *where, *more, token=token)
            assert result.exit_code == 0, result.output
            return result.stdout.split()[0]

        assert [await joined_as(), await joined_as()] == ["broker=4", "broker=4"]
        assert await joined_as("--host", "127.0.0.1:8090") == "broker=5", "another machine"
