# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""By which programs, folders and words of a command line a process is a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.support.fakeproc import FakeProc, Mapping_
from tests.rig.support.scanned import VENV, look, only, targets
from tests.rig.support.scanned import fake as fake
from tools.rig.guard.scan import scan
from tools.rig.guard.signs import Names, arguments, is_python, one_line, script


class TestSigns:
    """Programs, folders and interpreters."""

    def test_program(self, fake: FakeProc) -> None:
        """A program inside counts even when its file is gone."""
        fake.add(7, exe="/srv/venvs/one/bin/ninja (deleted)")
        assert only(look(fake)).why == ("runs /srv/venvs/one/bin/ninja (deleted)",)

    @pytest.mark.parametrize(
        ("cwd", "counts"),
        [
            ("/srv/venvs/one", True),
            ("/srv/venvs/one/bin", True),
            ("/srv/venvs/one-more", False),
            ("/srv/src/fork", False),
        ],
    )
    def test_folder(self, fake: FakeProc, cwd: str, counts: bool) -> None:
        """Working in the environment counts; a shell in the checkout does not."""
        fake.add(7, cwd=cwd)
        assert look(fake).free is not counts

    @pytest.mark.parametrize(
        ("program", "environ", "why"),
        [
            ("/srv/venvs/one/bin/python", {}, "was started as"),
            ("/srv/src/fork/.venv/bin/python3", {}, "was started as"),
            ("python", {"VIRTUAL_ENV": "/srv/venvs/one"}, "has VIRTUAL_ENV="),
            ("python", {"VIRTUAL_ENV": "/srv/src/fork/.venv/"}, "has VIRTUAL_ENV="),
            ("bin/python", {"VIRTUAL_ENV": "/srv/venvs/one"}, "has VIRTUAL_ENV="),
            ("python", {"VIRTUAL_ENV": "/srv/venvs/two"}, ""),
            ("python", {"PATH": "relative:/nonexistent"}, ""),
            ("/usr/bin/python3", {}, ""),
            ("", {}, ""),
        ],
    )
    def test_interpreter(
        self, fake: FakeProc, program: str, environ: dict[str, str], why: str
    ) -> None:
        """A Python tells by its first argument or by VIRTUAL_ENV."""
        words = [program, "-c", "pass"] if program else []
        fake.add(
            7,
            cmdline=words,
            exe="/usr/bin/python3.12",
            environ=environ,
            maps=[Mapping_("/usr/bin/python3.12", 77)],
        )
        found = look(fake).users
        assert [user.why[0].startswith(why) for user in found] == [True] * bool(why)

    def test_other_environment(self, fake: FakeProc, tmp_path: Path) -> None:
        """A Python of another environment that inherited VIRTUAL_ENV is not ours."""
        (tmp_path / "two/bin").mkdir(parents=True)
        (tmp_path / "two/bin/python").touch()
        (tmp_path / "two/pyvenv.cfg").touch()
        env = {"VIRTUAL_ENV": str(VENV), "PATH": f"{tmp_path}/none:{tmp_path}/two/bin"}
        for pid, program in ((7, f"{tmp_path}/two/bin/python"), (8, "python")):
            fake.add(pid, cmdline=[program], exe="/usr/bin/python3.12", environ=env)
        assert look(fake).free

    def test_folder_of_programs(self, fake: FakeProc, tmp_path: Path) -> None:
        """A Python that was started through an unknown link is ours."""
        (tmp_path / "real/bin").mkdir(parents=True)
        (tmp_path / "link").symlink_to("real")
        info = (tmp_path / "real/bin").stat()
        wanted = targets(bin=(info.st_dev, info.st_ino))
        for pid, program, cwd in (
            (7, f"{tmp_path}/link/bin/python", "/"),
            (8, "link/bin/python", str(tmp_path)),
        ):
            fake.add(pid, cmdline=[program], exe="/usr/bin/python3", cwd=cwd)
        assert [user.pid for user in look(fake, wanted).users] == [7, 8]

    def test_innocent(self, fake: FakeProc) -> None:
        """An editor, a search and a shell with the path in their arguments are free."""
        path = "/srv/venvs/one/lib/one.so"
        fake.add(7, cmdline=["vim", path], exe="/usr/bin/vim")
        fake.add(8, cmdline=["grep", "-r", "x", str(VENV)], exe="/usr/bin/grep")
        fake.add(9, cmdline=["bash"], exe="/bin/bash", environ={"VIRTUAL_ENV": path})
        fake.add(10, cmdline=["python3", "-c", "x", path], exe="/usr/bin/python3")
        assert look(fake).free

    def test_ourselves(self, fake: FakeProc) -> None:
        """We and those who started us are left out."""
        fake.add(30, maps=[Mapping_("/x", 501)])
        fake.add(31, parent=30, maps=[Mapping_("/x", 501)])
        result = scan(targets(), proc=fake.root, self_pid=31)
        assert result.free

    @pytest.mark.parametrize(
        ("program", "python"),
        [
            ("/usr/bin/python", True),
            ("/opt/python3.13t", True),
            ("python3.12 (deleted)", True),
            ("pypy3.10", True),
            ("/usr/bin/python3-config", False),
            ("pythonista", False),
        ],
    )
    def test_is_python(self, program: str, python: bool) -> None:
        """Interpreters are known by their names."""
        assert is_python(program) is python


class TestWords:
    """Command lines."""

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (["python", "a.py", "-m", "b"], "a.py"),
            (["python", "-Im", "b"], "b"),
            (["python", "-X", "dev", "-m", "b"], "b"),
            (["python", "-m"], ""),
            (["python", "-c", "x", "a.py"], ""),
            (["python"], ""),
        ],
    )
    def test_script(self, words: list[str], found: str) -> None:
        """What an interpreter runs is told from its own options and its arguments."""
        assert script(words) == found

    def test_no_words(self) -> None:
        """An empty command line is no sign."""
        assert arguments([], Names((b"/a",))) == ""

    def test_secrets(self, fake: FakeProc) -> None:
        """Secrets, line breaks and escapes of a command do not reach a terminal."""
        words = ["serve", "a\nb", "\x1b[31m", "--api-key", "abc"]
        fake.add(7, cmdline=words, maps=[Mapping_("/x", 501)])
        assert only(look(fake)).command == "serve a b  [31m --api-key ***"
        assert one_line(" ok\u202e ") == "ok"

    def test_without_arguments(self, fake: FakeProc) -> None:
        """A program without arguments is named as the kernel names it."""
        fake.add(7, cmdline=["x"], maps=[Mapping_("/x", 501)])
        (fake.root / "7/cmdline").write_bytes(b"")
        assert only(look(fake)).command == "[x]"
