"""Settings that cannot work together are refused when a broker is told them, by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from api.settings import Timing, load_settings


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


def test_lists_come_from_the_file_or_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "raftlog.toml"
    file.write_text(
        f'broker_id = 1\ncluster_id = "{"0" * 32}"\nsecret_file = "s"\ndata_directory = "d"\n'
        '[peers.1]\nport = 1\n[http]\nport = 7\nallowed_hosts = ["log.example"]\n'
        '[cors]\nallowed_origins = ["https://ui.example"]\n'
    )
    settings = load_settings(file)
    assert settings.http.allowed_hosts == ("log.example",)
    assert settings.cors.allowed_origins == ("https://ui.example",)
    monkeypatch.setenv("RAFTLOG_HTTP__ALLOWED_HOSTS", '["other.example:80"]')
    settings = load_settings(file)
    assert (settings.http.port, settings.http.allowed_hosts) == (7, ("other.example:80",))
