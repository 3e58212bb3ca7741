"""The Compose files without Docker: their schema, and their processes on addresses of loopback.

Each service has an address of its own there, so names and ports stay those of the file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema

from chaos.harness import links
from raftlog.__main__ import COMMAND
from raftlog.testing.waits import LIMIT_S
from tests.helpers.deployed import compose_file, healthcheck_command
from tests.helpers.real_cluster import call, eventually

RUN_S = 600  # of a short chaos run with all its waits
FILES = ("docker-compose.yml", "docker-compose.chaos.yml")
BROKERS = [f"broker-{number}" for number in range(1, 6)]
ADDRESSES = {"toxiproxy": "127.77.0.254"} | {name: f"127.77.0.{n}" for n, name in enumerate(BROKERS, 1)}

Service = dict[str, Any]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return compose_file("docker-compose.chaos.yml")


@pytest.mark.parametrize("file", FILES)
def test_the_file_is_a_compose_file(file: str) -> None:
    # requirement: N4 X1
    validator = jsonschema.Draft202012Validator(get_builtin_schema("vendor.compose-spec"))
    assert [error.message for error in validator.iter_errors(compose_file(file))] == []


def test_all_services_that_go_on_have_health_checks(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {name for name, service in services.items() if "healthcheck" not in service} == {"init"}
    assert set(services) == {"init", "toxiproxy", "harness", *BROKERS}


@pytest.mark.e2e
def test_three_brokers_of_the_file_for_users_are_a_cluster_that_starts_again(directory: Path) -> None:
    # requirement: X1
    services = compose_file("docker-compose.yml")["services"]
    local, brokers = Locally(directory), {name: services[name] for name in BROKERS[:3]}
    urls = [
        local.text(service["environment"]["RAFTLOG_BROKER__HTTP__ADVERTISED_URL"], name)
        for name, service in brokers.items()
    ]
    for topics in (["first"], ["first", "second"]):
        assert local.run(services["init"], "init").wait(LIMIT_S) == 0, local.output
        with local.running(brokers):
            for name, url in zip(brokers, urls, strict=True):
                eventually(lambda url=url: call(url, "GET", "/healthz/ready").status == 200, what=name)
                eventually(lambda url=url: healthcheck(url).returncode == 0, what=name)
            host = {"Host": "broker-2:7071"}
            assert call(urls[1], "POST", "/v1/topics", {"name": topics[-1]}, headers=host).status == 201
            eventually(lambda: shown(urls[2], "/v1/brokers", "http") == urls, what="three brokers")
            eventually(lambda topics=topics: shown(urls[0], "/v1/topics", "name") == topics, what=f"{topics}")
    assert healthcheck(urls[0]).returncode != 0


@pytest.mark.slow
@pytest.mark.skipif(links.missing() is not None, reason=str(links.missing()))
def test_its_brokers_proxies_and_harness_work_together(compose: dict[str, Any], directory: Path) -> None:
    # requirement: N4 X1
    services = compose["services"]
    local = Locally(directory)
    local.run(services["init"], "init").wait(LIMIT_S)
    content = local.text(compose["configs"]["links"]["content"])
    (directory / "links.json").write_text(content)
    with local.running({name: services[name] for name in ("toxiproxy", *BROKERS)}):
        for name in BROKERS:
            url = local.text(services[name]["environment"]["READY_URL"]).removesuffix("/healthz/ready")
            eventually(lambda url=url: call(url, "GET", "/healthz/ready").status == 200, what=name)
        harness = services["harness"]
        minutes = [re.sub("--minutes=.*", "--minutes=0.1", part) for part in harness["command"]]
        process = local.run({**harness, "command": minutes}, "harness")
        assert process.wait(RUN_S) == 0, local.output
    verdict = re.search(r"^verdict=valid acknowledged=\d+ .* faults=(\d+)", local.output, re.MULTILINE)
    assert verdict is not None, local.output[-3000:]
    assert int(verdict[1]) > 0


def shown(url: str, path: str, field: str) -> list[object]:
    """A field of all rows of a list."""
    return [row[field] for row in call(url, "GET", path).rows("items")]


def healthcheck(url: str) -> subprocess.CompletedProcess[bytes]:
    """Run the image's check of its health for a broker."""
    _, *arguments = healthcheck_command()
    environment = {**os.environ, "READY_URL": f"{url}/healthz/ready"}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, check=False)


class Locally:
    """Starts services as processes: names are addresses of loopback, volumes are directories."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "output"

    @property
    def output(self) -> str:
        """Of all services."""
        return self._log.read_text()

    def text(self, value: str, service: str = "") -> str:
        """With addresses and paths of this machine."""
        value = value.replace("${ADDRESS:-127.0.0.1}", service)
        for name, address in {**ADDRESSES, "0.0.0.0": ADDRESSES["toxiproxy"]}.items():
            value = re.sub(rf"\b{name}\b(?=:|$)", address, value)
        value = value.replace("/var/lib/raftlog", f"{self._directory}/data")
        return re.sub(r"(?<!\w)/(?=(cluster|report|links\.json)\b)", f"{self._directory}/", value)

    def run(self, service: Service, name: str) -> subprocess.Popen[bytes]:
        """Start its process."""
        program = [str(links.find_server())] if "toxiproxy" in service["image"] else COMMAND
        program = service.get("entrypoint", program)
        given = service.get("environment", {}).items()
        environment = {variable: self.text(value, name) for variable, value in given}
        environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment.pop("READY_URL", None)  # of the health check alone
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*program, *map(self.text, service["command"])],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )

    @contextmanager
    def running(self, services: Mapping[str, Service]) -> Iterator[None]:
        """Until the block ends."""
        processes = [self.run(service, name) for name, service in services.items()]
        try:
            yield
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(LIMIT_S)
