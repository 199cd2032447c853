# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What bad input gets: a clear message, the right exit code, and nothing lost."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.support.fakenvcc import fake_nvcc, scripted_nvcc
from tests.rig.support.workshop import Workshop, until
from tools.rig.base.state import SENTINEL, place_id
from tools.rig.builds import inventory, switch
from tools.rig.builds.target import HERE
from tools.rig.guard import lease
from tools.rig.guard.lock import BuildLock, lock_path

pytestmark = pytest.mark.real

BUILD = ("build-sm70",)


@pytest.fixture
def user(tmp_path: Path) -> Workshop:
    """Return somebody with an empty home, who has built nothing yet."""
    return Workshop(tmp_path / "user")


def refused(got: subprocess.CompletedProcess[str], code: int, *words: str) -> list[str]:
    """Check how a command was refused, and return what it said."""
    said = got.stderr
    assert got.returncode == code, f"{got.returncode}\n{said}"
    assert "Traceback" not in said
    for word in words:
        assert word in said, said
    lines = said.strip().splitlines()
    assert any(line.startswith("error: ") for line in lines), said
    assert lines[-1].startswith("hint: ") and len(lines[-1]) > len("hint: "), said
    return lines


class TestWords:
    """What is typed wrong ends with exit code 2."""

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["bild"], "No idea what 'bild' is!"),
            (["build-sm70", "--fast"], "No idea what '--fast' is!"),
            (["build-sm70", "--jobs"], "jobs"),
            (["install-wheel"], "wheel"),
            ([*BUILD, "--profile", "h100"], "unknown profile 'h100'"),
            ([*BUILD, "--source", "/etc"], "/etc is no target"),
            ([*BUILD, "--source", "/nonexistent"], "/nonexistent"),
            ([*BUILD, "--jobs", "0"], "jobs = '0' from the command line"),
            ([*BUILD, "--jobs=-3"], "jobs = '-3' from the command line"),
            ([*BUILD, "--jobs", "many"], "jobs = 'many' from the command line"),
            (["plan", "--jobs", "1.5"], "jobs = '1.5' from the command line"),
            (["doctor", "--only", "weather"], "weather"),
            (["doctor", "--compare", "/nonexistent"], "/nonexistent"),
            (["install-wheel", "/nonexistent.whl"], "nonexistent.whl"),
        ],
        ids=" ".join,
    )
    def test_refused(self, user: Workshop, words: list[str], said: str) -> None:
        """The word that is wrong is named, and nothing is made."""
        refused(user.invoke(*words), 2, said)
        assert not user.root.path.exists()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("ONECAT_FORCE", "yes"),
            ("ONECAT_OFFLINE", "true"),
            ("MAX_JOBS", "0"),
            ("ONECAT_PROFILE", "h100"),
            ("ONECAT_GIT_MIRRORS", "https://example.org"),
            ("ONECAT_CONFIG", "{home}/broken.toml"),
            ("ONECAT_CONFIG", "{home}/unknown.toml"),
        ],
    )
    def test_settings(self, user: Workshop, name: str, value: str) -> None:
        """A setting that cannot be read is named, wherever it comes from."""
        (user.home / "broken.toml").write_text("jobs = \n")
        (user.home / "unknown.toml").write_text("jops = 3\n")
        given = value.format(home=user.home)
        refused(user.invoke(*BUILD, **{name: given}), 2)

    def test_no_profile_of_that_target(self, user: Workshop) -> None:
        """A checkout of another project than the profile's is told apart."""
        place = user.home / "other"
        place.mkdir()
        (place / "pyproject.toml").write_text('[project]\nname = "other"\n')
        words = [*BUILD, "--source", str(place)]
        refused(user.invoke(*words), 2, "no profile builds the project 'other'")
        words += ["--profile", "v100-cu128"]
        refused(user.invoke(*words), 2, "builds 1cat-vllm, but")

    @pytest.mark.parametrize(
        "words",
        [
            *(
                [*task, flag, value]
                for task in (
                    ["doctor"],
                    ["cuda-toolkit"],
                    ["shim-glibc"],
                    ["venv-local"],
                    ["plan"],
                    ["build-sm70"],
                    ["verify"],
                    ["rollback"],
                    ["activate", "--build", "x"],
                )
                for flag, value in (
                    ("--profile", "h100"),
                    ("--source", "/nonexistent"),
                )
            ),
            ["git-safe", "--source", "/nonexistent"],
            ["in-use", "--source", "/nonexistent"],
            ["plan", "--jobs", "0"],
            ["build-sm70", "--jobs", "many"],
            ["doctor", "--only", "weather"],
            ["doctor", "--compare", "/nonexistent"],
            ["activate"],
            ["activate", "--build", "x"],
            ["rollback"],
            ["report", "--build", "x"],
            ["install-wheel", "https://example.org/a-1-py3-none-any.whl"],
            ["install-wheel", "/nonexistent.whl"],
            ["diagnose", "--log", "/nonexistent"],
            ["bundle", "--output", "/nonexistent/x.tar.gz"],
        ],
        ids=" ".join,
    )
    def test_json(self, user: Workshop, words: list[str]) -> None:
        """With --json the error is one document on stdout as well."""
        got = user.invoke(*words, "--json")
        error = json.loads(got.stdout)["error"]
        assert got.returncode == error["code"] == 2, got.stderr
        assert error["what"] and error["hint"]

    @pytest.mark.parametrize("words", [["builds"], ["report"], ["in-use"], ["verify"]])
    def test_json_settings(self, user: Workshop, words: list[str]) -> None:
        """The same holds for a settings file that cannot be read."""
        broken = user.home / "broken.toml"
        broken.write_text("jobs = \n")
        got = user.invoke(*words, "--json", ONECAT_CONFIG=str(broken))
        assert json.loads(got.stdout)["error"]["code"] == got.returncode == 2

    @pytest.mark.parametrize(
        ("name", "code", "said"),
        [
            ("rig_sample-1-py3-none-any.whl", 2, "is empty"),
            ("folder", 2, "is a folder"),
            ("rig_sample-1-cp312-cp312-win_amd64.whl", 3, "another system"),
            ("torch-1-py3-none-any.whl", 2, "is a wheel of torch"),
        ],
    )
    def test_no_wheel(self, user: Workshop, name: str, code: int, said: str) -> None:
        """What cannot be installed is told before anything is made."""
        (user.home / "folder").mkdir()
        (user.home / "rig_sample-1-py3-none-any.whl").touch()
        for other in ("rig_sample-1-cp312-cp312-win_amd64", "torch-1-py3-none-any"):
            with zipfile.ZipFile(user.home / f"{other}.whl", "w") as archive:
                archive.writestr("x.py", "")
        refused(user.invoke("install-wheel", str(user.home / name)), code, said)
        assert not user.root.path.exists()


class TestToolchain:
    """A toolkit or compiler that will not do."""

    @pytest.mark.parametrize(
        ("make", "code", "said"),
        [
            (lambda place: place, 2, "does not exist"),
            (lambda place: place.mkdir(), 2, "holds no bin/nvcc"),
            (fake_nvcc, 3, "cannot compile for sm_70"),
            (lambda p: scripted_nvcc(p, "echo hello"), 3, "does not say its version"),
            (lambda p: scripted_nvcc(p, "exit 9"), 3, "does not say its version"),
        ],
        ids=["missing", "empty", "cuda 13", "nonsense", "failing"],
    )
    def test_cuda_home(
        self, user: Workshop, make: Callable[[Path], Any], code: int, said: str
    ) -> None:
        """The user's own CUDA_HOME is never passed over silently."""
        place = user.home / "cuda"
        make(place)
        got = user.invoke("cuda-toolkit", CUDA_HOME=str(place))
        refused(got, code, str(place), said)

    def test_hanging_nvcc(self, user: Workshop) -> None:
        """An nvcc that hangs is given up after its time."""
        place = scripted_nvcc(user.home / "cuda", "exec sleep 600")
        got = user.invoke("cuda-toolkit", CUDA_HOME=str(place))
        refused(got, 3, "did not answer within 20 s")

    def test_no_compiler(self, user: Workshop) -> None:
        """Without any C++ compiler the package that brings one is named."""
        env = {"PATH": str(_path(user.home, "git")), "NVCC_CCBIN": ""}
        got = user.invoke("cuda-toolkit", ONECAT_OFFLINE="1", **env)
        refused(got, 3, "compiler", "apt-get install g++")

    def test_no_such_compiler(self, user: Workshop) -> None:
        """An NVCC_CCBIN that names nothing is refused."""
        got = user.invoke("cuda-toolkit", NVCC_CCBIN="/nonexistent/g++")
        refused(got, 2, "/nonexistent/g++")

    def test_cuobjdump_fails(self, shop: Workshop, tmp_path: Path) -> None:
        """Without a working cuobjdump nothing is claimed."""
        home = tmp_path / "cuda"
        # a toolkit of the user's own: of one that was brought the damage is noticed
        marks = shutil.ignore_patterns(SENTINEL, inventory.LIST, inventory.RECORD)
        shutil.copytree(shop.env["CUDA_HOME"], home, symlinks=True, ignore=marks)
        tool = home / "bin" / "cuobjdump"
        tool.unlink()
        tool.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
        tool.chmod(0o755)
        got = shop.invoke("verify", CUDA_HOME=str(home))
        assert got.returncode == 1
        assert "Traceback" not in got.stderr and "cuobjdump" in got.stderr
        assert "unknown" in got.stderr
        assert got.stderr.strip().splitlines()[-1].startswith("hint: ")


class TestMissing:
    """Programs and networks that are not there."""

    def test_no_git(self, user: Workshop) -> None:
        """Without git its package is named."""
        path = _path(user.home, "g++", "cc1plus", "as", "ld")
        got = user.invoke(*BUILD, PATH=str(path))
        refused(got, 3, "git", "apt-get install git")

    def test_no_network(self, user: Workshop) -> None:
        """Without a network the download is named, and the next run goes on."""
        if not _can_unshare():
            pytest.skip("no network namespace can be made here")
        alone = ["unshare", "--net", *user.argv(*BUILD)]
        nothing = {"UV_CACHE_DIR": str(user.home / "nothing")}
        with user.started(alone, env=nothing) as proc:
            until(lambda: "broke off" in user.said, lambda: user.said)
            proc.send_signal(signal.SIGINT)
            assert proc.wait(60) == 130
        assert "try 2 of 4 in" in user.said
        assert f"finished files are kept in {user.home}/nothing" in user.said

    def test_offline(self, user: Workshop) -> None:
        """ONECAT_OFFLINE=1 fetches nothing and says what is missing."""
        nothing = str(user.home / "nothing")
        got = user.invoke(*BUILD, ONECAT_OFFLINE="1", UV_CACHE_DIR=nothing)
        refused(got, 1, "uv pip install failed", "network was disabled")
        record = user.records()[-1]
        assert record["steps"][-1]["title"] == "build requirements"
        assert record["result"] == "failed"


class TestSomebodyElse:
    """Locks and leases of others."""

    def test_dead_holder(self, shop: Workshop) -> None:
        """A holder that was killed is named, and its lock taken over."""
        code = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from tools.rig.guard.lock import BuildLock\n"
            "lock = BuildLock(Path(sys.argv[1]), Path(sys.argv[2]), 'a build')\n"
            "lock.__enter__()\n"
            "os.kill(os.getpid(), 9)\n"
        )
        argv = [sys.executable, "-c", code, str(shop.environment), str(shop.sample)]
        shop.run(argv, PYTHONPATH=str(HERE))
        got = shop.invoke("venv-local")
        assert got.returncode == 0, got.stderr
        assert "a command that died held the lock" in got.stderr

    def test_living_holder(self, shop: Workshop) -> None:
        """A holder that lives is named with pid and command."""
        with BuildLock(shop.environment, None, "somebody's build"):
            got = shop.invoke("venv-local")
        refused(got, 4, f"PID {os.getpid()} of", "somebody's build")
        assert lock_path(shop.environment).exists()

    def test_other_host(self, shop: Workshop) -> None:
        """A lease of another host is never removed; how to is said."""
        [beside, _] = lease.places(shop.sample)
        text = lease.dumped(lease.holder("a build"))
        other = {**json.loads(text), "host": "node7", "machine": "m", "boot": "b"}
        beside.write_text(json.dumps(other))
        try:
            refused(shop.invoke(*BUILD), 4, "another host, node7", str(beside))
            assert json.loads(beside.read_text()) == other
        finally:
            beside.unlink()


class TestVenv:
    """What may lie at ``.venv`` is left as it is, and said."""

    @pytest.fixture
    def link(self, shop: Workshop) -> Iterator[Path]:
        """Return the name ``.venv`` of the sample, free for a test."""
        link = shop.sample / ".venv"
        target = os.readlink(link)
        link.unlink()
        yield link
        if link.is_dir() and not link.is_symlink():
            shutil.rmtree(link)
        else:
            link.unlink(missing_ok=True)
        link.symlink_to(target)

    def test_folder(self, shop: Workshop, link: Path) -> None:
        """A real folder stays."""
        link.mkdir()
        (link / "mine").touch()
        got = shop.invoke("venv-local")
        assert got.returncode == 0, got.stderr
        assert "is a directory of yours and is left" in got.stderr
        assert (link / "mine").exists()

    @pytest.mark.parametrize("target", ["/tmp", "/nonexistent/elsewhere"])
    def test_other_link(self, shop: Workshop, link: Path, target: str) -> None:
        """A link to elsewhere stays, also one that dangles."""
        link.symlink_to(target)
        got = shop.invoke("venv-local")
        assert got.returncode == 0, got.stderr
        assert f"points to {target}" in got.stderr
        assert os.readlink(link) == target

    def test_link_of_another_host(self, shop: Workshop) -> None:
        """Our own link that dangles on this host gets its target, and stays."""
        place = shop.environment
        aside = place.with_name("aside")
        os.rename(place, aside)
        try:
            got = shop.invoke("venv-local")
            assert got.returncode == 0, got.stderr
            assert (place / "bin" / "python").exists()
            place.unlink()
        finally:
            os.rename(aside, place)
        assert place.name == place_id(shop.sample)


class TestBrokenFiles:
    """Our own files, cut short or edited by hand."""

    def test_record(self, shop: Workshop) -> None:
        """A record that cannot be read is listed as such and hides no other."""
        bad = shop.root.records / "20200101-000000-bad.json"
        bad.write_text('{"id": ')
        try:
            got = shop.invoke("builds", "--json")
        finally:
            bad.unlink()
        assert got.returncode == 0, got.stderr
        results = {r["id"]: r["result"] for r in json.loads(got.stdout)}
        assert results["20200101-000000-bad"] == "unreadable"
        assert len(results) > 1

    def test_remembered_place(self, user: Workshop) -> None:
        """A broken memory of the chosen place is named and left alone."""
        memory = user.home / ".local" / "state" / "1cat-rig" / "root.json"
        memory.parent.mkdir(parents=True)
        memory.write_text("{")
        refused(user.invoke("builds", ONECAT_LOCAL_ROOT=""), 1, str(memory))
        refused(user.invoke(*BUILD), 1, str(memory))
        assert memory.read_text() == "{"

    def test_journal(self, shop: Workshop) -> None:
        """A broken list of files that were being put in place is named."""
        journal, _ = switch.journals_of(shop.root, shop.environment.name)
        journal.write_text('{"phase": 7}')
        try:
            refused(shop.invoke(*BUILD), 1, str(journal))
        finally:
            journal.unlink()


class TestStreams:
    """Streams that are closed or full, or that nobody reads."""

    @pytest.mark.parametrize(
        "how",
        ["2>&-", "2>/dev/full", ">&-", "<&- >&- 2>&-", ">/dev/full", "2>&1 | true"],
    )
    @pytest.mark.parametrize(("task", "code"), [("builds", 0), ("verify", 3)])
    def test_exit_code(self, user: Workshop, task: str, code: int, how: str) -> None:
        """A task does its work, and its exit code tells how that went."""
        line = f"set -o pipefail; {shlex.join(user.argv(task))} {how}"
        got = user.run(["bash", "-c", line])
        assert got.returncode == code, got.stderr
        assert "Traceback" not in got.stderr and "unexpected" not in got.stderr
        assert not (user.home / ".local" / "state" / "1cat-rig" / "crashes").exists()

    @pytest.mark.parametrize("how", [">&-", ">/dev/full", "| true", ">&- 2>&-"])
    def test_data(self, user: Workshop, how: str) -> None:
        """A document that was not delivered is a failure, said in one line."""
        line = f"set -o pipefail; {shlex.join(user.argv('builds', '--json'))} {how}"
        got = user.run(["bash", "-c", line])
        assert got.returncode == 1, got.stderr
        assert "Traceback" not in got.stderr
        if "2>" not in how:
            assert "error: cannot write the result to stdout: " in got.stderr


class TestContents:
    """``invoke --list`` and ``--help`` are the first pages that people read."""

    def test_list(self, user: Workshop) -> None:
        """Every task has one line of its own that says what it does."""
        got = user.invoke("--list")
        assert got.returncode == 0
        assert "build-sm70" in got.stdout and "install-wheel" in got.stdout
        got = user.invoke("--list", "--list-format=json")
        tasks = json.loads(got.stdout)["tasks"]
        assert len(tasks) >= 11
        assert all(0 < len(t["help"]) <= 90 and t["help"][-1] == "." for t in tasks)

    def test_help(self, user: Workshop) -> None:
        """The help of the main task explains each of its flags."""
        said = user.invoke("build-sm70", "--help").stdout
        for flag in ("--json", "--profile", "--source", "--jobs", "--wheel"):
            line = next(x for x in said.splitlines() if flag in x)
            assert len(line.split()) > 3, line

    def test_checks(self, user: Workshop) -> None:
        """``doctor --list`` lists the checks, and not Invoke's tasks."""
        got = user.invoke("doctor", "--list", "--json")
        names = [check["id"] for check in json.loads(got.stdout)]
        assert "glibc" in names and "build-sm70" not in names


def _path(home: Path, *programs: str) -> Path:
    """Return a folder for PATH that holds a few programs and no others."""
    place = home / "bin"
    place.mkdir()
    for name in ("sh", "cat", "uname", *programs):
        found = shutil.which(name)
        if found:
            (place / name).symlink_to(found)
    return place


def _can_unshare() -> bool:
    got = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return got.returncode == 0
