# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A bundle with real git, processes and tar, from a machine full of secrets."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support import planted
from tests.rig.support.planted import Planted
from tools.rig.builds.target import HERE

pytestmark = pytest.mark.real

SCRIPT = """\
import sys
from pathlib import Path
from tools.rig.base.report import run_command
from tools.rig.steps.bundle import bundle
output, show, source = Path(sys.argv[1]), sys.argv[2] == "show", sys.argv[3]
sys.exit(run_command(
    lambda console: bundle(console, {"source": source}, output=output, show=show),
    as_json=True,
))
"""
LIMIT_S = 300

need_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


def environment(at: Planted) -> dict[str, str]:
    """Return the environment of somebody else, on this machine."""
    keep = {k: os.environ[k] for k in ("PATH", "LANG", "TMPDIR") if k in os.environ}
    return {
        **keep,
        **{k: v for k, v in at.env.items() if k not in ("PATH", "HTTPS_PROXY")},
        # a proxy that is none must not be asked, but its password is to be found
        "OLD_PROXY": at.env["HTTPS_PROXY"],
        "PYTHONPATH": str(HERE),
        "ONECAT_LOCAL_ROOT": str(at.root),
        "ONECAT_OFFLINE": "1",
    }


def start(
    at: Planted, output: Path, source: Path, how: str = "write"
) -> subprocess.Popen[str]:
    """Start making a bundle."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(output), how, str(source)],
        env=environment(at),
        cwd=at.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def git(*words: str, at: Path) -> None:
    """Run git in a checkout of the test's own."""
    name = ["-c", "user.name=x", "-c", "user.email=x@x.org"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(
        ["git", "-C", str(at), *name, *words], check=True, env=env, capture_output=True
    )


@pytest.fixture
def at(tmp_path: Path) -> Planted:
    """Return a machine with secrets in every place."""
    return Planted(tmp_path)


@pytest.fixture
def checkout(at: Planted) -> Path:
    """Return a checkout of the sample whose remote and files have secrets in them."""
    place = at.home / "src" / "rig-sample"
    shutil.copytree(HERE / "tools/rig/sample_target/project", place)
    git("init", "-q", at=place)
    git("add", "-A", at=place)
    git("commit", "-q", "-m", "x", at=place)
    url = f"https://bob:{at.new('git remote')}@{at.domain}/x.git"
    git("remote", "add", "origin", url, at=place)
    (place / f"notes-{at.secrets['env HF_TOKEN']}.txt").write_text("x")
    return place


@pytest.fixture
def server(at: Planted, tmp_path: Path) -> Iterator[None]:
    """Run a process that looks like a server and was given secrets."""
    program = tmp_path / "python-of-server"
    program.symlink_to(sys.executable)
    words = ["-c", "import time; time.sleep(600)", "-m", "vllm.entrypoints"]
    words += ["--api-key", at.new("server's argument"), "--port", "8000"]
    proc = subprocess.Popen(
        ["vllm", *words], executable=sys.executable, env={**os.environ, **at.given}
    )
    yield
    proc.kill()
    proc.wait()


@need_git
def test_no_secret_leaves(at: Planted, checkout: Path, server: None) -> None:
    """The whole bundle of a real machine holds nothing that was planted."""
    output = at.folder / "out.tar.gz"
    proc = start(at, output, checkout)
    out, err = proc.communicate(timeout=LIMIT_S)
    assert proc.returncode == 0, err
    data = json.loads(out)
    assert data["path"] == str(output)
    names = {entry["name"] for entry in data["contents"]}
    assert names >= {
        *("doctor.json", "doctor.txt", "git.txt", "processes.txt", "machine.json"),
        *("builds/20260102-030405-abcd.log", "servers/1.log", "summary.md"),
    }
    text = planted.everything(output) + (at.folder / "out.md").read_text()
    left = {
        where: form
        for where, value in at.secrets.items()
        for form in planted.remains(value)
        if form in text
    }
    assert not left
    assert not [name for name in at.names if name in text]
    # what is printed names the output, and nothing else of the machine
    said = (out + err).replace(str(at.folder), "")
    assert not [w for w, value in at.secrets.items() if value in said]


@need_git
def test_real_tar_unpacks_it(at: Planted, checkout: Path) -> None:
    """Tar of the system reads it; git's state is in it, with the remote masked."""
    output = at.folder / "out.tar.gz"
    proc = start(at, output, checkout)
    _, err = proc.communicate(timeout=LIMIT_S)
    assert proc.returncode == 0, err
    into = at.folder / "into"
    into.mkdir()
    subprocess.run(["tar", "xzf", str(output), "-C", str(into)], check=True)
    (top,) = into.iterdir()
    state = (top / "git.txt").read_text()
    head = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert head in state and "https://***@" in state and "notes-***" in state
    assert json.loads((top / "doctor.json").read_text())["verdict"]
    assert "CUDA 12.4.131.0, driver 580.95.05" in "".join(
        p.read_text() for p in top.glob("builds/*.log")
    )
    assert len((top / "summary.md").read_text()) < 65_000
    again = start(at, output, checkout)
    out, _ = again.communicate(timeout=LIMIT_S)
    assert again.returncode == 2
    assert "is there already" in json.loads(out)["error"]["what"]


def test_nothing_is_here(tmp_path: Path) -> None:
    """Without a checkout, a state root, a home or any program a bundle comes out."""
    output = tmp_path / "out.tar.gz"
    env = {"PATH": str(tmp_path), "PYTHONPATH": str(HERE), "HOME": str(tmp_path / "x")}
    words = [sys.executable, "-c", SCRIPT, str(output), "write", str(tmp_path / "no")]
    done = subprocess.run(
        words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert output.is_file() and data["problems"]
    assert any(problem.startswith("state root") for problem in data["problems"])


@need_git
def test_show_writes_nothing(at: Planted, checkout: Path) -> None:
    """``--show`` leaves the folder as it was."""
    before = sorted(path.name for path in at.folder.iterdir())
    proc = start(at, at.folder / "out.tar.gz", checkout, "show")
    out, err = proc.communicate(timeout=LIMIT_S)
    assert proc.returncode == 0, err
    assert json.loads(out)["path"] is None
    assert sorted(path.name for path in at.folder.iterdir()) == before


@need_git
def test_interrupt_leaves_nothing(at: Planted, checkout: Path) -> None:
    """Ctrl-C in the middle ends it at once, and no file is there."""
    output = at.folder / "out.tar.gz"
    proc = start(at, output, checkout)
    time.sleep(2)
    proc.send_signal(signal.SIGINT)
    proc.communicate(timeout=60)
    assert proc.returncode == 130
    assert not list(at.folder.glob("*out.*"))
