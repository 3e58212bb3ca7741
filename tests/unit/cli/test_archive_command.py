"""What the commands about archives say where there is nothing to work with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from api.cli.commands import app
from raftlog.extras import install_command

RUN = "import sys; sys.modules[{0!r}] = None; sys.argv[0] = 'raftlog'; from api.cli import main; main()"


def ended(*arguments: str, without: str | None = None) -> tuple[int, str]:
    """The exit code and standard error of ``raftlog archive``, in a process of its own without a package."""
    if without is None:
        found = CliRunner().invoke(app, ["archive", *arguments])
        return found.exit_code, found.stderr
    command = [sys.executable, "-c", RUN.format(without), "archive", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


# requirement: A8
def test_an_address_without_an_archive_is_not_verified() -> None:
    code, told = ended("verify", "/nowhere/archive")
    assert (code, told) == (1, "error: there is no archive at /nowhere/archive; correct the address\n")
    code, told = ended("replay", "/nowhere/archive", "orders", "--into", "again", "--job", "j")
    assert code == 2
    assert "the archive has no records of orders" in told


@pytest.mark.parametrize(
    ("missing", "address", "remedy"),
    [
        ("pyarrow", "/archive", install_command("archive")),
        ("fsspec", "s3://bucket/archive", "pip install fsspec"),
    ],
)
def test_a_missing_package_is_named_with_its_remedy(missing: str, address: str, remedy: str) -> None:
    for arguments in (("list", address), ("write", "orders", address)):
        code, told = ended(*arguments, without=missing)
        assert code == 1
        assert remedy in told
        assert "Traceback" not in told


def test_archives_are_listed_without_spark() -> None:
    assert ended("list", "/nowhere/archive", without="pyspark")[0] == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("/archive",), "Missing argument 'TOPIC...'"),
        (("orders", "/archive", "--interval", "soon"), "--interval is soon; give a duration"),
        (("orders", "/archive", "--batch-records", "0"), "--batch-records"),
    ],
)
def test_a_wrong_call_of_write_names_what_is_wrong(given: tuple[str, ...], told: str) -> None:
    code, errors = ended("write", *given)
    assert code == 2
    assert told in errors


def test_an_archive_that_is_a_delta_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "0.json").touch()
    for arguments in (("list", str(tmp_path)), ("write", "orders", str(tmp_path))):
        code, told = ended(*arguments)
        assert (code, told.partition(";")[0]) == (1, "error: path is a Delta table")
