"""Settings that cannot work together are refused when a broker is told them, by name."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic import ValidationError

from broker.ports import Limits as HttpLimits
from broker.settings import Limits, Timing, load_settings
from raftlog.errors import InvalidRequest


@pytest.mark.parametrize(
    ("ticks", "remedy"),
    [
        ({"heartbeat_ticks": 6}, "election_ticks must be at least three times heartbeat_ticks"),
        ({"election_ticks": 50}, r"quiet_ticks is 40: choose election_ticks \(50\) or more"),
        (
            {"broker_dead_ms": 2000},
            r"broker_dead_ms is 2000: choose dead_timeout_ms \(3000\) or more",
        ),
        ({"broker_dead_ms": 999}, "greater than or equal to 1000"),
        ({"broker_dead_ms": 2_592_000_001}, "less than or equal to 2592000000"),
    ],
)
def test_times_that_do_not_fit_together_are_refused(ticks: dict[str, int], remedy: str) -> None:
    with pytest.raises(ValidationError, match=remedy):
        Timing(**ticks)


def settings_file(folder: Path, more: str) -> Path:
    """The settings of a broker, and more of them."""
    file = folder / "raftlog.toml"
    ids = f'broker_id = 1\ncluster_id = "{"0" * 32}"\n'
    file.write_text(f'{ids}secret_file = "s"\ndata_directory = "d"\n{more}\n[peers.1]\nport = 1\n')
    return file


def test_lists_come_from_file_or_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = '[http]\nport = 7\nallowed_hosts = ["log.example"]\n'
    file = settings_file(tmp_path, f'{hosts}[cors]\nallowed_origins = ["https://ui.example"]\n')
    settings = load_settings(file)
    assert settings.http.allowed_hosts == ("log.example",)
    assert settings.cors.allowed_origins == ("https://ui.example",)
    monkeypatch.setenv("RAFTLOG_HTTP__ALLOWED_HOSTS", '["other.example:80"]')
    settings = load_settings(file)
    assert (settings.http.port, settings.http.allowed_hosts) == (7, ("other.example:80",))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_listening_everywhere_needs_an_address_for_clients(tmp_path: Path, host: str) -> None:
    http = f'[http]\nhost = "{host}"\nport = 7070\n'
    with pytest.raises(
        InvalidRequest, match=r"set advertised_http to the URL .* \"http://log1.example:7070\""
    ):
        load_settings(settings_file(tmp_path, f"insecure = true\n{http}"))
    url = 'advertised_http = "http://log1.example:7070"'
    settings = load_settings(settings_file(tmp_path, f"insecure = true\n{url}\n{http}"))
    assert settings.http_url == "http://log1.example:7070"


def test_an_address_of_ipv6_is_advertised_in_brackets(tmp_path: Path) -> None:
    settings = load_settings(settings_file(tmp_path, '[http]\nhost = "::1"\nport = 7070\n'))
    assert settings.http_url == "http://[::1]:7070"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("rak = 'a'", "rak is not a setting; did you mean rack"),
        ("http_port = 7", "http_port is not a setting; did you mean http.port"),
        ("[http]\nprot = 7", "http.prot is not a setting; did you mean http.port"),
        ("[limits]\ntick_ms = 7", "limits.tick_ms is not a setting; did you mean timing.tick_ms"),
        ("[peers.2]\nprot = 7", "peers.2.prot is not a setting; did you mean peers.<id>.port"),
        ("qqqqqqqq = 7", "qqqqqqqq is not a setting"),
        ("advertised_http = 'log.example:7070'", "'log.example:7070' is not a URL such as"),
        ("advertised_http = 'http://[log'", "'http://[log' is not a URL such as"),
        ("advertised_http = 'http://a:7070/v1'", "'http://a:7070/v1' is not a URL such as"),
        ("advertised_http = ''", "'' is not a URL such as"),
        (
            "advertised_http = 'http://0.0.0.0:7'",
            "'http://0.0.0.0:7' is not the address of a machine",
        ),
        ("advertised_http = 'http://[::]:7'", "'http://[::]:7' is not the address of a machine"),
        ("[peers.2]\nhost = '0.0.0.0'\nport = 2", "peers.2.host: '0.0.0.0' is not the address of a machine"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_remedy(tmp_path: Path, more: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load_settings(settings_file(tmp_path, more))
    assert told in str(refused.value)


# requirement: A8
@pytest.mark.parametrize(
    ("given", "found"),
    [("archive", "{here}/archive"), ("/mnt/archive", "/mnt/archive"), ("s3://bucket/a", "s3://bucket/a")],
)
def test_a_relative_archive_is_beside_the_settings(tmp_path: Path, given: str, found: str) -> None:
    settings = load_settings(settings_file(tmp_path, f"[archive]\nlocation = '{given}'"))
    assert settings.archive.location == found.format(here=tmp_path)


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        ("RAFTLOG_HTTP_PORT", "did you mean RAFTLOG_HTTP__PORT?"),
        ("raftlog_http__prot", "did you mean RAFTLOG_HTTP__PORT?"),
        ("RAFTLOG_PORT", "did you mean RAFTLOG_HTTP__PORT or RAFTLOG_RPC__PORT?"),
        ("RAFTLOG_LOG_LEVLE", "did you mean RAFTLOG_LOG_LEVEL?"),
        ("RAFTLOG_RACK__NAME", "did you mean RAFTLOG_RACK?"),
        ("RAFTLOG_PEERS__1__PROT", "did you mean RAFTLOG_PEERS__<ID>__PORT?"),
        ("RAFTLOG_QQQQQQQQ", "unset it"),
    ],
)
def test_an_unknown_setting_in_the_environment_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, told: str
) -> None:
    monkeypatch.setenv(variable, "7")
    with pytest.raises(InvalidRequest) as refused:
        load_settings(settings_file(tmp_path, ""))
    assert str(refused.value) == f"{variable} in the environment is not a setting; {told}"


def test_variables_of_clients_and_settings_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAFTLOG_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("RAFTLOG_PEERS__2__PORT", "22")
    monkeypatch.setenv("RAFTLOG_LOG_LEVEL", "debug")
    monkeypatch.setenv("RAFTLOG_CORS", '{"allowed_origins": ["*"]}')
    settings = load_settings(settings_file(tmp_path, ""))
    assert (settings.peers[2].port, settings.log_level) == (22, "debug")
    assert settings.cors.allowed_origins == ("*",)


@pytest.mark.parametrize(
    ("variable", "value"), [("RAFTLOG_HTTP__PORT", "many"), ("RAFTLOG_HTTP__ALLOWED_HOSTS", "log.example")]
)
def test_a_wrong_value_in_the_environment_is_told_apart_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidRequest, match=r"RAFTLOG_HTTP__PORT: |environment: .*http"):
        load_settings(settings_file(tmp_path, ""))


def test_limits_of_http_have_names_and_defaults_of_settings() -> None:
    limits, settings = asdict(HttpLimits()), Limits().model_dump()
    shared = limits.keys() & settings.keys()
    assert shared == {
        "body_bytes_max",
        "fetch_bytes_max",
        "request_bytes_in_flight_max",
        "response_bytes_in_flight_max",
        "wait_ms_max",
    }
    assert {name: limits[name] for name in shared} == {name: settings[name] for name in shared}
