"""``docker-compose.chaos.yml`` without Docker: its schema, and its processes on addresses of loopback.

Each service has an address of its own there, so names and ports stay those of the file.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

from chaos.harness import links
from raftlog.__main__ import COMMAND
from raftlog.testing.waits import LIMIT_S
from tests.helpers.real_cluster import call, eventually

RUN_S = 600  # of a short chaos run with all its waits
FILE = Path(__file__).parents[2] / "docker-compose.chaos.yml"
BROKERS = [f"broker-{number}" for number in range(1, 6)]
ADDRESSES = {"toxiproxy": "127.77.0.254"} | {name: f"127.77.0.{n}" for n, name in enumerate(BROKERS, 1)}

Service = dict[str, Any]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def test_the_file_is_a_compose_file(compose: dict[str, Any]) -> None:
    # requirement: N4 X1
    validator = jsonschema.Draft202012Validator(get_builtin_schema("vendor.compose-spec"))
    assert [error.message for error in validator.iter_errors(compose)] == []


def test_all_services_that_go_on_have_health_checks(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {name for name, service in services.items() if "healthcheck" not in service} == {"init"}
    assert set(services) == {"init", "toxiproxy", "harness", *BROKERS}


@pytest.mark.slow
@pytest.mark.skipif(links.missing() is not None, reason=str(links.missing()))
def test_its_brokers_proxies_and_harness_work_together(compose: dict[str, Any], directory: Path) -> None:
    # requirement: N4 X1
    services = compose["services"]
    local = Locally(directory)
    local.run(services["init"]).wait(LIMIT_S)
    content = local.text(compose["configs"]["links"]["content"])
    (directory / "links.json").write_text(content)
    with local.running([services[name] for name in ("toxiproxy", *BROKERS)]):
        for name in BROKERS:
            url = local.text(services[name]["environment"]["READY_URL"]).removesuffix("/healthz/ready")
            eventually(lambda url=url: call(url, "GET", "/healthz/ready").status == 200, what=name)
        harness = services["harness"]
        minutes = [re.sub("--minutes=.*", "--minutes=0.1", part) for part in harness["command"]]
        process = local.run({**harness, "command": minutes})
        assert process.wait(RUN_S) == 0, local.output
    verdict = re.search(r"^verdict=valid acknowledged=\d+ .* faults=(\d+)", local.output, re.MULTILINE)
    assert verdict is not None, local.output[-3000:]
    assert int(verdict[1]) > 0


class Locally:
    """Starts services as processes: names are addresses of loopback, volumes are directories."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "output"

    @property
    def output(self) -> str:
        """Of all services."""
        return self._log.read_text()

    def text(self, value: str) -> str:
        """With addresses and paths of this machine."""
        for name, address in {**ADDRESSES, "0.0.0.0": ADDRESSES["toxiproxy"]}.items():
            value = re.sub(rf"\b{name}\b(?=:|$)", address, value)
        return re.sub(r"/(?=(cluster|report|links\.json)\b)", f"{self._directory}/", value)

    def run(self, service: Service) -> subprocess.Popen[bytes]:
        """Start its process."""
        program = [str(links.find_server())] if "toxiproxy" in service["image"] else COMMAND
        environment = {name: self.text(value) for name, value in service.get("environment", {}).items()}
        environment.pop("READY_URL", None)  # of the health check alone
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*program, *map(self.text, service["command"])],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )

    @contextmanager
    def running(self, services: Sequence[Service]) -> Iterator[None]:
        """Until the block ends."""
        processes = [self.run(service) for service in services]
        try:
            yield
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(LIMIT_S)
