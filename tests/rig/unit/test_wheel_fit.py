# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a wheel's name fits this Python and system."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from tools.rig.base.errors import CannotError, StepFailed, UsageError
from tools.rig.builds import wheel_fit
from tools.rig.builds.wheel_fit import Interpreter, WheelName

HERE = ["manylinux_2_36_x86_64", "manylinux_2_17_x86_64", "linux_x86_64"]
V312 = Interpreter("cpython", (3, 12))


def named(tmp_path: Path, tag: str) -> WheelName:
    """Return the name of a wheel with this tag."""
    wheel = tmp_path / f"rig_Sample-1.0+g1-{tag}.whl"
    wheel.touch()
    return wheel_fit.name_of(wheel)


class TestName:
    """Reading a file name."""

    def test_a_wheel(self, tmp_path: Path) -> None:
        """Project names are normalised."""
        name = named(tmp_path, "cp310-abi3-linux_x86_64")
        assert (name.project, name.version) == ("rig-sample", "1.0+g1")

    def test_a_renamed_download(self, tmp_path: Path) -> None:
        """A name that a browser changed is refused, since it says what it is for."""
        wheel = tmp_path / "vllm (1).whl"
        wheel.touch()
        with pytest.raises(UsageError, match="not named like a wheel"):
            wheel_fit.name_of(wheel)


class TestFile:
    """What is typed for a wheel."""

    NAME = "rig_sample-1-py3-none-any.whl"

    def test_a_wheel(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file is taken by whatever path."""
        with zipfile.ZipFile(tmp_path / self.NAME, "w") as archive:
            archive.writestr("a.py", "")
        monkeypatch.chdir(tmp_path)
        assert wheel_fit.file_of(self.NAME) == tmp_path / self.NAME

    @pytest.mark.parametrize(
        ("typed", "words", "hint"),
        [
            ("", "which wheel", "invoke install-wheel FILE"),
            ("https://me:pass@example.org/{}", "is an address", "curl -LO"),
            ("{here}/none/{}", "there is no file", "ls -l {here}/none"),
            ("{here}/file/{}", "there is no file", "ls -l {here}/file"),
            ("{here}/folder/{}", "is a folder", "ls {here}/folder/{}"),
            ("{here}/empty/{}", "is empty", "download it again"),
            ("{here}/page/{}", "is no wheel: it is no zip file", "download it again"),
            ("{here}/pipe/{}", "is no file", "ls -l {here}/pipe/{}"),
            ("{here}/page/a.zip", "not named like a wheel", "download it again"),
        ],
    )
    def test_refused(self, tmp_path: Path, typed: str, words: str, hint: str) -> None:
        """It is told what is wrong with it, and what to do."""
        for name in ("folder", "empty", "page", "pipe"):
            (tmp_path / name).mkdir()
        (tmp_path / "file").touch()
        (tmp_path / "folder" / self.NAME).mkdir()
        (tmp_path / "empty" / self.NAME).touch()
        (tmp_path / "page" / self.NAME).write_text("<html>no such release</html>")
        (tmp_path / "page" / "a.zip").write_text("x")
        os.mkfifo(tmp_path / "pipe" / self.NAME)
        with pytest.raises(UsageError, match=words) as caught:
            wheel_fit.file_of(typed.format(self.NAME, here=tmp_path))
        assert hint.format(self.NAME, here=tmp_path) in caught.value.hint
        assert "pass" not in caught.value.what.replace(str(tmp_path), "")


class TestCheck:
    """Comparing with the interpreter."""

    @pytest.mark.parametrize(
        ("tag", "python"),
        [
            ("cp312-cp312-linux_x86_64", V312),
            ("cp310-abi3-manylinux_2_17_x86_64", V312),
            ("py3-none-any", V312),
            ("py3-none-manylinux_2_36_x86_64", Interpreter("pypy", (3, 11))),
            ("cp313-cp313t-linux_x86_64", Interpreter("cpython", (3, 13), True)),
        ],
    )
    def test_fits(self, tmp_path: Path, tag: str, python: Interpreter) -> None:
        """A wheel for this Python or for its stable ABI is taken."""
        name = named(tmp_path, tag)
        wheel_fit.check(name, python, HERE)
        assert name.tags

    @pytest.mark.parametrize(
        ("tag", "python", "words", "hint"),
        [
            (
                "cp311-cp311-linux_x86_64",
                V312,
                "another Python (cp311-cp311-linux_x86_64) than cpython 3.12",
                "export ONECAT_PYTHON=3.11 and run invoke venv-local",
            ),
            (
                "cp310-abi3-linux_x86_64",
                Interpreter("cpython", (3, 13), True),
                "than cpython 3.13 without the GIL",
                "ONECAT_PYTHON=3.10",
            ),
            ("py2-none-any", V312, "another Python", "<the wheel's>"),
            ("cp312-cp312-manylinux_2_39_x86_64", V312, "another system", "build-sm70"),
            ("cp312-cp312-linux_aarch64", V312, "another system", "build-sm70"),
        ],
    )
    def test_does_not_fit(
        self, tmp_path: Path, tag: str, python: Interpreter, words: str, hint: str
    ) -> None:
        """The error says which part does not fit, and what to change."""
        with pytest.raises(CannotError) as info:
            wheel_fit.check(named(tmp_path, tag), python, HERE)
        assert words in info.value.what
        assert hint in info.value.hint

    def test_platforms_of_this_machine(self, tmp_path: Path) -> None:
        """Without a list the machine's own platforms are taken."""
        name = named(tmp_path, "cp312-cp312-win_amd64")
        with pytest.raises(CannotError, match="another system"):
            wheel_fit.check(name, V312)


class TestInterpreter:
    """Asking the interpreter what it is."""

    def test_answer(self, fp: FakeProcess) -> None:
        """Name, version and kind come from the interpreter itself."""
        fp.register(
            ["/v/bin/python", "-I", "-c", fp.any()],
            stdout='["cpython", 3, 13, true]\n',
        )
        found = wheel_fit.interpreter_of(Path("/v/bin/python"), {})
        assert found == Interpreter("cpython", (3, 13), True)

    def test_no_answer(self, fp: FakeProcess) -> None:
        """A broken interpreter is an expected failure."""
        fp.register(["/v/bin/python", "-I", "-c", fp.any()], returncode=1)
        with pytest.raises(StepFailed, match="does not say which Python"):
            wheel_fit.interpreter_of(Path("/v/bin/python"), {})
