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
        ({"election_ticks": 50}, r"quiesce_ticks is 40: choose election_ticks \(50\) or more"),
        (
            {"restore_after_ms": 2000},
            r"restore_after_ms is 2000: choose broker_timeout_ms \(3000\) or more",
        ),
        ({"restore_after_ms": 999}, "greater than or equal to 1000"),
        ({"restore_after_ms": 2_592_000_001}, "less than or equal to 2592000000"),
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
    monkeypatch.setenv("RAFTLOG_BROKER__HTTP__ALLOWED_HOSTS", '["other.example:80"]')
    settings = load_settings(file)
    assert (settings.http.port, settings.http.allowed_hosts) == (7, ("other.example:80",))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_listening_everywhere_needs_an_address_for_clients(tmp_path: Path, host: str) -> None:
    http = f'[http]\nhost = "{host}"\nport = 7070\n'
    with pytest.raises(
        InvalidRequest, match=r"set http.advertised_url to the URL .* \"http://log1.example:7070\""
    ):
        load_settings(settings_file(tmp_path, f"insecure = true\n{http}"))
    url = 'advertised_url = "http://log1.example:7070"'
    settings = load_settings(settings_file(tmp_path, f"insecure = true\n{http}{url}\n"))
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
        (
            "[groups]\nopen_jobs_max = 7",
            "groups.open_jobs_max is not a setting; did you mean queues.open_jobs_max",
        ),
        ("qqqqqqqq = 7", "qqqqqqqq is not a setting"),
        ("[http]\nadvertised_url = 'log.example:7070'", "'log.example:7070' is not a URL such as"),
        ("[http]\nadvertised_url = 'http://[log'", "'http://[log' is not a URL such as"),
        ("[http]\nadvertised_url = 'http://a:7070/v1'", "'http://a:7070/v1' is not a URL such as"),
        ("[http]\nadvertised_url = ''", "'' is not a URL such as"),
        (
            "[http]\nadvertised_url = 'http://0.0.0.0:7'",
            "'http://0.0.0.0:7' is not the address of a machine",
        ),
        ("[http]\nadvertised_url = 'http://[::]:7'", "'http://[::]:7' is not the address of a machine"),
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
        ("RAFTLOG_BROKER__HTTP_PORT", "did you mean RAFTLOG_BROKER__HTTP__PORT?"),
        ("raftlog_http__prot", "did you mean RAFTLOG_BROKER__HTTP__PORT?"),
        (
            "RAFTLOG_PORT",
            "did you mean RAFTLOG_BROKER__HTTP__PORT or RAFTLOG_BROKER__HTTPS__PORT "
            "or RAFTLOG_BROKER__RPC__PORT?",
        ),
        ("RAFTLOG_HTTP__PORT", "did you mean RAFTLOG_BROKER__HTTP__PORT?"),
        ("RAFTLOG_PEERS__2__HOST", "did you mean RAFTLOG_BROKER__PEERS__<ID>__HOST?"),
        ("RAFTLOG_BROKER_ID", "did you mean RAFTLOG_BROKER__BROKER_ID?"),
        ("RAFTLOG_BROKER_RACK", "did you mean RAFTLOG_BROKER__RACK?"),
        ("RAFTLOG_BROKER__LOG_LEVLE", "did you mean RAFTLOG_BROKER__LOG_LEVEL?"),
        ("RAFTLOG_BROKER__RACK__NAME", "did you mean RAFTLOG_BROKER__RACK?"),
        ("RAFTLOG_BROKER__PEERS__1__PROT", "did you mean RAFTLOG_BROKER__PEERS__<ID>__PORT?"),
        ("RAFTLOG_BROKER__QQQQQQQQ", "unset it"),
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
    monkeypatch.setenv("RAFTLOG_CONTEXT", "production")
    monkeypatch.setenv("RAFTLOG_RACK", "east")  # of clients on this machine
    monkeypatch.setenv("RAFTLOG_BROKER__PEERS__2__PORT", "22")
    monkeypatch.setenv("RAFTLOG_BROKER__LOG_LEVEL", "debug")
    monkeypatch.setenv("RAFTLOG_BROKER__CORS", '{"allowed_origins": ["*"]}')
    settings = load_settings(settings_file(tmp_path, ""))
    assert (settings.peers[2].port, settings.log_level, settings.rack) == (22, "debug", None)
    assert settings.cors.allowed_origins == ("*",)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("RAFTLOG_BROKER__HTTP__PORT", "many"), ("RAFTLOG_BROKER__HTTP__ALLOWED_HOSTS", "log.example")],
)
def test_a_wrong_value_in_the_environment_is_told_apart_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidRequest, match=r"RAFTLOG_BROKER__HTTP__PORT: |environment: .*http"):
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


HTTPS = '[https]\nport = 7443\ncertificate_file = "tls/broker.pem"\nkey_file = "/keys/broker.key"\n'


def test_files_of_https_are_relative_to_the_settings(tmp_path: Path) -> None:
    https = load_settings(settings_file(tmp_path, HTTPS)).https
    assert https is not None
    assert https.certificate_file == tmp_path / "tls/broker.pem"
    assert https.key_file == Path("/keys/broker.key")
    assert https.url == "https://127.0.0.1:7443"


def test_https_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PORT", "7444"), ("CERTIFICATE_FILE", "/a.pem"), ("KEY_FILE", "/a.key")):
        monkeypatch.setenv(f"RAFTLOG_BROKER__HTTPS__{name}", value)
    monkeypatch.setenv("RAFTLOG_CA_FILE", "/ca.pem")  # of clients
    https = load_settings(settings_file(tmp_path, "")).https
    assert https is not None
    assert (https.port, https.key_file) == (7444, Path("/a.key"))


@pytest.mark.parametrize(
    ("more", "remedy"),
    [
        ("[http]\nenabled = false\n", "http.enabled is false and there is no"),
        ("[https]\nport = 1\n", "https.certificate_file: Field required"),
        (f'{HTTPS}minimum_version = "1.1"\n', "https.minimum_version: Input should be '1.2' or '1.3'"),
        (f'{HTTPS}crl_file = "crl.pem"\n', "set client_ca_file, too"),
        (f'{HTTPS}advertised_url = "http://log.example"\n', 'is not a URL such as "https://log.example'),
        (f'{HTTPS}host = "192.0.2.1"\n', "https.host '192.0.2.1' is reachable from other machines"),
        (f'insecure = true\n{HTTPS}host = "::"\n', "set https.advertised_url to the URL"),
        (f'{HTTPS}certificate = "a.pem"\n', "did you mean https.certificate_file"),
    ],
)
def test_settings_of_https_are_refused_by_name(tmp_path: Path, more: str, remedy: str) -> None:
    with pytest.raises(InvalidRequest, match=remedy):
        load_settings(settings_file(tmp_path, more))


def test_listeners_beyond_loopback_are_known(tmp_path: Path) -> None:
    assert load_settings(settings_file(tmp_path, "")).listeners_beyond_loopback == []
    settings = load_settings(settings_file(tmp_path, 'insecure = true\n[rpc]\nhost = "10.0.0.7"\n'))
    assert settings.listeners_beyond_loopback == ["rpc"]
