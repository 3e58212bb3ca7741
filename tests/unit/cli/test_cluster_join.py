"""The files of a broker that joins, and what `cluster join` refuses before it asks anybody."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from api.addresses import Machine
from api.cli.commands import app
from api.cluster_files import create_cluster, create_joined, read_secret
from api.settings import load_settings
from raftlog.errors import InvalidRequest
from raftlog.wire.joining import JoinToken, signed
from tests.helpers import fake_services
from tests.helpers.async_tests import in_real_time
from tests.helpers.http_server import serve

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
    assert "is not the secret of the cluster of this token" in result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        (("--replace",), 1, "give --broker"),
        (("--host", "0.0.0.0"), 2, "not the address of a machine"),
        (("--http-port", "99999", "--host", "127.0.0.1"), 2, "choose 1 to 65535"),
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
