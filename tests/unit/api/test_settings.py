"""Settings that cannot work together are refused when a broker is told them, by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from api.settings import Timing, load_settings
from raftlog.errors import InvalidRequest


@pytest.mark.parametrize(
    ("ticks", "remedy"),
    [
        ({"heartbeat_ticks": 6}, "election_ticks must be at least three times heartbeat_ticks"),
        ({"election_ticks": 50}, r"quiet_ticks is 40: choose election_ticks \(50\) or more"),
    ],
)
def test_ticks_that_do_not_fit_together_are_refused(ticks: dict[str, int], remedy: str) -> None:
    with pytest.raises(ValidationError, match=remedy):
        Timing(**ticks)


def settings_file(folder: Path, more: str) -> Path:
    """The settings of a broker, and more of them."""
    file = folder / "raftlog.toml"
    ids = f'broker_id = 1\ncluster_id = "{"0" * 32}"\n'
    file.write_text(f'{ids}secret_file = "s"\ndata_directory = "d"\n{more}\n[peers.1]\nport = 1\n')
    return file


@pytest.mark.parametrize("url", ["log.example:7070", "http://[log", "http://log.example:7070/v1", ""])
def test_an_advertised_address_that_is_no_url_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"advertised_http: .* is no URL such as"):
        load_settings(settings_file(tmp_path, f'advertised_http = "{url}"'))


def test_lists_come_from_the_file_or_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = '[http]\nport = 7\nallowed_hosts = ["log.example"]\n'
    file = settings_file(tmp_path, f'{hosts}[cors]\nallowed_origins = ["https://ui.example"]\n')
    settings = load_settings(file)
    assert settings.http.allowed_hosts == ("log.example",)
    assert settings.cors.allowed_origins == ("https://ui.example",)
    monkeypatch.setenv("RAFTLOG_HTTP__ALLOWED_HOSTS", '["other.example:80"]')
    settings = load_settings(file)
    assert (settings.http.port, settings.http.allowed_hosts) == (7, ("other.example:80",))
