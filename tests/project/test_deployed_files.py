"""The rules for Prometheus and the dashboard for Grafana: they name what brokers have, and alerts fire."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.known_metrics import known_metrics

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/raftlog.rules.yml"
DASHBOARD = ROOT / "deploy/grafana/raftlog.json"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
ADDED = {"job", "instance"}  # labels that Prometheus adds
OF_PROMETHEUS = {"up": (), "process_resident_memory_bytes": ()}
PROMTOOL = shutil.which("promtool")

_SELECTOR = re.compile(r"\b((?:raftlog|up|process)[\w:]*)\s*(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right) *\(([^)]*)\)")
_LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"')


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in _rules() if "alert" in rule}


def _queries() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [*shown, *(one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query")]


def unknown_in(expression: str, series: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """The series and labels of an expression that no broker has."""
    quoted = re.sub(r'\{[^}]*\}|"[^"]*"', "", expression)
    grouped = {name.strip() for names in _GROUPED.findall(quoted) for name in names.split(",")}
    known: set[str] = set()
    for name, matchers in _SELECTOR.findall(re.sub(_GROUPED, "", expression)):
        if name not in series:
            yield name
            continue
        labels = {*series[name]} | ADDED
        known |= labels
        yield from (f"{name}{{{label}}}" for label in {*_LABEL.findall(matchers or "")} - labels)
    yield from (f"by ({label})" for label in grouped - known)


def _recorded_labels(expression: str) -> tuple[str, ...]:
    [names] = _GROUPED.findall(expression)[:1]
    return tuple(name.strip() for name in names.split(",") if name.strip() != "le")


async def test_rules_and_dashboard_name_what_brokers_have() -> None:
    series = dict[str, tuple[str, ...]](OF_PROMETHEUS)
    for name, metric in (await known_metrics()).items():
        series |= metric.series(name)
    found = []
    for rule in _rules():
        found += unknown_in(rule["expr"], series)
        found += [
            f"{rule['alert']}: $labels.{label}"
            for label in re.findall(r"\$labels\.(\w+)", str(rule.get("annotations")))
            if label not in {*ADDED, "check", "code", "group", "topic", "partition"}
        ]
        if "record" in rule:
            series[rule["record"]] = _recorded_labels(rule["expr"])
    found += [unknown for query in _queries() for unknown in unknown_in(query, series)]
    assert found == []
    wrong = 'sum by (colour) (raftlog_ready{size="1"}) > raftlog_missing'
    assert sorted(unknown_in(wrong, series)) == ["by (colour)", "raftlog_missing", "raftlog_ready{size}"]


def test_each_alert_has_its_line_in_the_documentation() -> None:
    lines = re.findall(r"^\| `(Raftlog\w+)` \| \S", OPERATIONS, re.MULTILINE)
    assert lines == [*_alerts()]
    assert {alert["labels"]["severity"] for alert in _alerts().values()} == {"page", "ticket"}
    assert all(alert["annotations"]["summary"] and alert["for"] for alert in _alerts().values())


def test_the_dashboard_is_small() -> None:
    assert DASHBOARD.stat().st_size <= 60 << 10


FIRES = 'ALERTS{alertstate="firing",alertname'
# Series of an instance, and the alerts that they raise after two hours, and no others.
FIRING = {
    "RaftlogNoLeader": {'raftlog_leaderless_partitions{job="raftlog",instance="a"}': "2x200"},
    "RaftlogNoController": {'raftlog_active_controller{job="raftlog",instance="a"}': "0x200"},
    "RaftlogBrokerNotReady": {'raftlog_ready{job="raftlog",instance="a",check="controller"}': "0x200"},
    "RaftlogUnderReplicated": {'raftlog_under_replicated_partitions{job="raftlog",instance="a"}': "1x200"},
    "RaftlogDiskNearlyFull": {
        'raftlog_disk_free_bytes{job="raftlog",instance="a"}': "10000000-50000x200",
        'raftlog_disk_reserve_bytes{job="raftlog",instance="a"}': "1000x200",
    },
    "RaftlogSyncSlow": {
        'raftlog_sync_round_seconds_bucket{job="raftlog",instance="a",le="0.25"}': "0+1x200",
        'raftlog_sync_round_seconds_bucket{job="raftlog",instance="a",le="1.0"}': "0+10x200",
        'raftlog_sync_round_seconds_bucket{job="raftlog",instance="a",le="+Inf"}': "0+10x200",
    },
    "RaftlogElectionStorm": {
        'raftlog_elections_started_total{job="raftlog",instance="a"}': "0+30x200",
        'raftlog_elections_won_total{job="raftlog",instance="a"}': "0+1x200",
        'raftlog_raft_groups{job="raftlog",instance="a",role="leader"}': "100x200",
    },
    "RaftlogLagGrowing": {
        'raftlog_group_lag_seconds{job="raftlog",group="g",topic="t",partition="0"}': "400x200",
        'raftlog_group_lag_records{job="raftlog",group="g",topic="t",partition="0"}': "0+1x200",
    },
    "RaftlogArchiveBehind": {'raftlog_awaiting_archive_bytes{job="raftlog",instance="a"}': "1x200"},
}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian's package prometheus)")
def test_prometheus_reads_the_rules_and_alerts_fire(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count by (alertname) ({FIRES}{operator}"{alert}"}})',
                    "eval_time": "2h",
                    "exp_samples": expected,
                }
                for operator, expected in (
                    ("=", [{"labels": f'{{alertname="{alert}"}}', "value": 1}]),
                    ("!=", []),
                )
            ],
        }
        for alert, series in FIRING.items()
    ]
    written = tmp_path / "tests.yml"
    written.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))
    for arguments in (["check", "rules", str(RULES)], ["test", "rules", str(written)]):
        ran = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
