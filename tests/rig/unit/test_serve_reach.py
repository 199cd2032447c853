# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether the user of a unit can reach what its server needs."""

from __future__ import annotations

import io
import json
import os
import pwd
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tests.rig.support.unit_plans import PLAN
from tools.rig.serve import reach, reach_child
from tools.rig.serve.plan import ServePlan
from tools.rig.serve.reach import Need
from tools.rig.serve.unit_text import Launcher

NOBODY = pwd.getpwuid(65534)


@pytest.fixture
def plan(tmp_path: Path) -> ServePlan:
    """Return a server whose files are there."""
    for name in ("e/bin", "e/lib/python3.12/site-packages", "m", "root/servers", "c"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("e/bin/python", "m/config.json", "m/a.safetensors", "m/README.md"):
        (tmp_path / name).touch(0o755)
    for name in ("key", "c/tasks.py"):
        (tmp_path / name).touch(0o600)
    return replace(
        PLAN,
        python=tmp_path / "e/bin/python",
        model=tmp_path / "m",
        api_key_file=tmp_path / "key",
    )


def test_what_is_needed(plan: ServePlan, tmp_path: Path) -> None:
    """Interpreters, folders, weights, the key and the state are; a README is not."""
    start = Launcher((sys.executable, "-m", "invoke"), tmp_path / "c")
    found = {
        need.path: need.modes for need in reach.needs(plan, start, tmp_path / "root")
    }
    assert found[Path(sys.executable)] == "x"
    assert found[Path(os.__file__)] == "r"
    ours = {
        os.fspath(path.relative_to(tmp_path)): modes
        for path, modes in found.items()
        if tmp_path in path.parents
    }
    assert ours == {
        "c": "rx",
        "c/tasks.py": "r",
        "e": "rx",
        "e/bin/python": "x",
        "e/lib/python3.12/site-packages": "rx",
        "m": "rx",
        "m/config.json": "r",
        "m/a.safetensors": "r",
        "key": "r",
        "root": "wx",
        "root/servers": "wx",
    }
    template = tmp_path / "c/chat.jinja"
    template.touch()
    rest = ("--config=/no/c.yaml", f"--chat-template={template}", "/" + "x" * 5000)
    more = replace(plan, rest=(*rest, "/\0"))
    extra = {*reach.needs(more, start, tmp_path)} - {
        *reach.needs(plan, start, tmp_path)
    }
    assert extra == {Need(template)}
    one = replace(plan, model=tmp_path / "m/a.safetensors", api_key_file=None)
    gone = Launcher(("/no/python",), Path("/no"))
    modes = {n.path: n.modes for n in reach.needs(one, gone, Path("/no"))}
    assert modes[one.model] == "r"
    assert not any(path.parts[1] == "no" for path in modes)


def test_what_is_closed_is_told_by_place(tmp_path: Path) -> None:
    """One closed folder is one sentence, whatever lies in it."""
    key = tmp_path / "key"
    key.touch(0o600)
    wide = tmp_path / "wide"
    wide.touch(0o644)
    wanted = [Need(Path("/r o/m"), "rx"), Need(Path("/r o/m/c")), Need(key), Need(wide)]
    wanted += [Need(tmp_path, "wx"), Need(Path("/fine"), "x")]
    answer = ["/r o", "/r o", str(key), str(wide), str(tmp_path), None]
    found = reach.look("llm", wanted, lambda user, needs: answer)
    assert found.unknown == ""
    shut = "/r o is closed; move it, or: chmod o+x '/r o'"
    assert found.problems == (
        f"llm cannot read /r o/m and 1 more: {shut}",
        f"llm cannot read {key}: sudo chown llm {key}",
        f"llm cannot read {wide}: chmod o+r {wide}",
        f"llm cannot write to {tmp_path}: sudo chown llm {tmp_path}",
    )
    assert reach.look("", [], lambda user, needs: []).problems == ()
    unknown = reach.look("llm", wanted, lambda user, needs: None)
    assert "whether llm can read" in unknown.unknown and not unknown.problems


def test_our_own_rights(tmp_path: Path) -> None:
    """For ourselves nothing is started; for others only root can ask."""
    wanted = [Need(tmp_path, "rx"), Need(tmp_path / "none")]
    mine = [None, str(tmp_path / "none")]
    assert reach.with_rights_of("", wanted) == mine
    assert reach.with_rights_of(pwd.getpwuid(os.geteuid()).pw_name, wanted) == mine
    assert reach.with_rights_of("no-such-user-here", wanted) is None


def test_another_user(
    tmp_path: Path, fp: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root has a child ask; an answer that is none is unknown."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    command = [sys.executable, "-I", os.fspath(reach._CHILD)]
    wanted = [Need(tmp_path, "rx")]
    for said, code, found in (
        ("[null]", 0, [None]),
        ('["/a"]', 0, ["/a"]),
        ("[]", 0, None),
        ("[null]", 1, None),
        ("oh", 0, None),
    ):
        fp.register(command, stdout=said, returncode=code)
        assert reach.with_rights_of(NOBODY.pw_name, wanted) == found
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert reach.with_rights_of(NOBODY.pw_name, wanted) is None


def test_the_child_becomes_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Groups, group and user are those of the service before anything is asked."""
    done: list[Any] = []
    monkeypatch.setattr(os, "initgroups", lambda *words: done.append(words))
    monkeypatch.setattr(os, "setresgid", lambda *words: done.append(words))
    monkeypatch.setattr(os, "setresuid", lambda *words: done.append(words))
    order = {"name": "llm", "uid": 7, "gid": 8, "asked": [[str(tmp_path), "rx"]]}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(order)))
    assert reach_child.main() == 0
    assert done == [("llm", 8), (8, 8, 8), (7, 7, 7)]
    assert json.loads(capsys.readouterr().out) == [None]


def test_the_folder_on_the_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is named is the first folder that is closed, also behind a link."""
    place = tmp_path / "shut"
    (place / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to(place / "a")
    real = os.access

    def access(path: str, mode: int) -> bool:
        return not os.path.realpath(path).startswith(str(place)) and real(path, mode)

    monkeypatch.setattr(os, "access", access)
    assert reach_child.closed(str(tmp_path / "link"), "rx") == str(place)
    assert reach_child.closed(str(place), "w") == str(place)
    assert reach_child.closed(str(tmp_path), "rx") is None
