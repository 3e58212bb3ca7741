"""Scenarios of chaos runs: drawn from seeds, read from files, and refused where they cannot be injected."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.harness.faults import FAULTS
from chaos.harness.scenario import InvalidScenario, PlannedFault, Scenario, drawn, read_scenario
from chaos.harness.stage import CannotInject, Stage

ALL = list(FAULTS.values())


def test_a_seed_gives_one_scenario() -> None:
    one, again = (drawn(7, brokers=3, seconds=600, faults=ALL) for _ in range(2))
    assert one == again
    assert one != drawn(8, brokers=3, seconds=600, faults=ALL)


@pytest.mark.parametrize("seed", range(20))
def test_drawn_faults_lie_within_the_run_and_are_of_the_chosen_kinds(seed: int) -> None:
    chosen = [FAULTS["kill"], FAULTS["pause"], FAULTS["latency"]]
    scenario = drawn(seed, brokers=5, seconds=300, faults=chosen)
    assert {fault.fault for fault in scenario.faults} <= {"kill", "pause", "latency"}
    assert len(scenario.faults) > 20
    for fault in scenario.faults:
        assert 0 <= fault.at_s < 300
        assert 0 < fault.seconds <= max(FAULTS[fault.fault].seconds)
    assert [fault.at_s for fault in scenario.faults] == sorted(fault.at_s for fault in scenario.faults)


def test_a_short_run_has_faults() -> None:
    assert all(drawn(seed, brokers=3, seconds=15, faults=ALL).faults for seed in range(50))


def test_a_scenario_file(tmp_path: Path) -> None:
    path = tmp_path / "leader.toml"
    path.write_text(
        'seconds = 20\nbrokers = 5\n[[faults]]\nat_s = 3\nfault = "pause"\nseconds = 4.5\ntarget = "leader"\n'
    )
    assert read_scenario(path) == Scenario(
        brokers=5,
        seconds=20,
        faults=(PlannedFault(at_s=3, fault="pause", seconds=4.5, target="leader"),),
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("seconds = 'long'\nfaults = []", "$.seconds"),
        ("seconds = 1\nfaults = [{at_s = 1, seconds = 1}]", "fault"),
        ("seconds = 1\nfaults = []\nminutes = 3", "minutes"),
        ("seconds = = 1", "scenario.toml"),
    ],
)
def test_a_wrong_scenario_file_is_named_with_its_field(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    with pytest.raises(InvalidScenario, match=named.replace("$", r"\$")):
        read_scenario(path)


@pytest.mark.parametrize(
    ("names", "brokers", "message"),
    [
        (["kil"], 3, "there is no fault 'kil'"),
        (["majority-ring"], 3, "it needs 5 brokers"),
        (["forget-everything"], 1, "it needs 3 brokers"),
    ],
)
def test_faults_that_cannot_be_injected_are_refused(names: list[str], brokers: int, message: str) -> None:
    with pytest.raises(CannotInject, match=message):
        Stage().choose_faults(names, brokers)


def test_without_the_proxy_server_faults_of_links_are_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/usr/sbin:/bin:/sbin")
    monkeypatch.delenv("TOXIPROXY_SERVER", raising=False)
    with pytest.raises(CannotInject, match=r"latency cannot be injected: .*go install .*toxiproxy"):
        Stage().choose_faults(["latency"], 3)
    assert "latency" not in {fault.name for fault in Stage().choose_faults([], 3)}


def test_processes_of_other_people_are_not_killed() -> None:
    stage = Stage(["http://127.0.0.1:7070"])
    with pytest.raises(CannotInject, match="processes, files and networks that chaos cannot change"):
        stage.choose_faults(["kill"], 3)
    assert {fault.name for fault in stage.choose_faults([], 3)} == {"transfer-leaders", "move-replicas"}
