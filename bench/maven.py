"""Fetches jars from Maven Central into the cache, once."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>benchmarks</groupId><artifactId>{name}</artifactId><version>1</version><dependencies>
{dependencies}
</dependencies></project>
"""
_DEPENDENCY = (
    """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"""
)


def fetch(cache: Path, name: str, artifacts: Sequence[tuple[str, str, str]]) -> Path | None:
    """Fetch artifacts and their dependencies into a directory, and return the directory.

    ``name`` is the name of the directory, and must contain the version. An artifact is a group, a name and a
    version. None without Java, Maven or a network.
    """
    if shutil.which("java") is None or shutil.which("mvn") is None:
        return None
    jars = cache / name
    if not jars.exists():
        project = cache / f"{name}-project"
        project.mkdir(parents=True, exist_ok=True)
        dependencies = "\n".join(_DEPENDENCY.format(*artifact) for artifact in artifacts)
        (project / "pom.xml").write_text(_POM.format(name=name, dependencies=dependencies))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command.append(f"-DoutputDirectory={project / 'new'}")
        done = subprocess.run(command, cwd=project, capture_output=True, timeout=300, check=False)
        if done.returncode:
            return None
        (project / "new").rename(jars)
    return jars
