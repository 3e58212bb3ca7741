"""The files that deploy brokers are valid, and fit the program, its settings and its paths."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import kubernetes_validate
import pytest

from api.app import ROUTES
from api.resources.documentation import openapi
from broker.ports import Limits
from broker.setting_names import refuse_unknown_variables
from broker.settings import BrokerSettings
from raftlog.wire import health
from tests.helpers.deployed import (
    ROOT,
    UNITS,
    Object,
    compose_file,
    healthcheck_command,
    image_instructions,
    kubernetes_objects,
    raftlog_commands,
    unit,
)
from tests.helpers.parsed_command import options_of

CLEAN_STOP_S = 10  # docs/operations.md#stopping
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


@pytest.fixture(scope="module")
def objects() -> dict[str, Object]:
    return kubernetes_objects()


@pytest.fixture(scope="module")
def pod(objects: dict[str, Object]) -> Object:
    found: Object = objects["StatefulSet"]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize(("file", "arguments"), [*raftlog_commands()])
def test_each_command_is_one_of_the_command_line(file: str, arguments: list[str]) -> None:
    # requirement: X1
    assert options_of(arguments), file


@pytest.mark.parametrize("version", ["1.31", "1.34"])
@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "StatefulSet"])
def test_the_objects_of_kubernetes_fit_their_schemas(
    kind: str, version: str, objects: dict[str, Object]
) -> None:
    # requirement: X1
    assert len(objects) == 3
    kubernetes_validate.validate(objects[kind], version, strict=True)


def test_the_objects_of_kubernetes_fit_together(objects: dict[str, Object], pod: Object) -> None:
    # requirement: X1
    service, budget, brokers = (
        objects[kind]["spec"] for kind in ("Service", "PodDisruptionBudget", "StatefulSet")
    )
    labels = brokers["template"]["metadata"]["labels"]
    assert (
        service["selector"]
        == budget["selector"]["matchLabels"]
        == brokers["selector"]["matchLabels"]
        == labels
    )
    assert (brokers["serviceName"], service["clusterIP"]) == (objects["Service"]["metadata"]["name"], "None")
    assert budget["maxUnavailable"] == (brokers["replicas"] - 1) // 2
    (broker,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in broker["ports"]}
    assert (
        {port["targetPort"]: port["port"] for port in service["ports"]}
        == ports
        == {"http": 7070, "rpc": 7170}
    )
    claims = [claim["metadata"]["name"] for claim in brokers["volumeClaimTemplates"]]
    volumes = {*claims, *(volume["name"] for volume in pod["volumes"])}
    mounts = [mount for each in (*pod["initContainers"], broker) for mount in each["volumeMounts"]]
    assert {mount["name"] for mount in mounts} == volumes
    assert pod["terminationGracePeriodSeconds"] > CLEAN_STOP_S
    refuse_unknown_variables([variable["name"] for variable in broker["env"]], BrokerSettings)


def test_probes_ask_paths_of_the_api(pod: Object) -> None:
    # requirement: X1
    (broker,) = pod["containers"]
    asked = {kind: broker[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {kind: get["path"] for kind, get in asked.items()} == {
        "startup": health.STARTUP.path,
        "liveness": health.LIVE.path,
        "readiness": health.READY.path,
    }
    assert {get["port"] for get in asked.values()} == {"http"}
    (url,) = re.findall(r"READY_URL=(\S+)", " ".join(rest for _, rest in image_instructions()))
    services = compose_file("docker-compose.yml")["services"].values()
    urls = [service["environment"]["READY_URL"] for service in services if "environment" in service]
    known = openapi(ROUTES, "0", Limits())["paths"]
    for each in [url, *urls]:
        assert "get" in known[urlsplit(each).path]


def test_the_image_is_pinned_unprivileged_and_checked(pod: Object) -> None:
    # requirement: X1
    instructions = image_instructions()
    stages = "".join(f"\n{word} {rest}" for word, rest in instructions).split("\nFROM ")[1:]
    broker = next(stage for stage in stages if "AS broker" in stage)
    assert stages[-1].strip() == "broker", "the default target is another stage"
    (base,) = (rest.removeprefix("PYTHON=") for word, rest in instructions if word == "ARG")
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    context = pod["securityContext"]
    assert re.findall(r"^USER (.*)", broker, re.MULTILINE) == [
        f"{context['runAsUser']}:{context['runAsGroup']}"
    ]
    assert re.findall(r"^VOLUME (.*)", broker, re.MULTILINE) == ["/var/lib/raftlog"]
    assert 'image.licenses="Apache-2.0"' in broker
    assert healthcheck_command()[0] == "python"
    assert "curl" not in broker


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_units_are_valid(name: str, tmp_path: Path) -> None:
    """For the program of this environment, since a unit names one that is there."""
    # requirement: X1
    text = (ROOT / "deploy" / "systemd" / name).read_text()
    started = tmp_path / name.replace("@.", "@4.")
    started.write_text(
        text.replace("/opt/raftlog/bin/raftlog", str(Path(sys.executable).with_name("raftlog")))
    )
    command = ["systemd-analyze", "verify", "--man=no", started]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_units_differ_in_the_folder_of_the_broker_and_are_those_of_the_page() -> None:
    # requirement: X1
    one, many = map(unit, UNITS)
    assert {key for key in one if one[key] != many.get(key)} == {"Description", "ExecStart"}
    assert one.keys() == many.keys()
    assert (one["Restart"], int(one["LimitNOFILE"])) == ("on-failure", 65536)
    assert int(one["TimeoutStopSec"]) > CLEAN_STOP_S
    block = (ROOT / "deploy" / "systemd" / UNITS[0]).read_text().partition("[Unit]")[2]
    assert f"```ini\n[Unit]{block}```" in OPERATIONS
    assert f"ExecStart={many['ExecStart']}\n" in OPERATIONS
