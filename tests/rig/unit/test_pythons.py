# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Interpreters: how they are found, asked and chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pytest_subprocess import FakeProcess

from tools.rig.base import run
from tools.rig.host import pythons
from tools.rig.host.pythons import Python


def said(version: str, base: Path | str, **more: Any) -> str:
    """Return what an interpreter answers."""
    return json.dumps(
        {
            "version": version,
            "base": str(base),
            "implementation": "cpython",
            "free_threaded": False,
            "wide": True,
            "headers": True,
            **more,
        }
    )


class TestProbe:
    """Asking one interpreter."""

    def test_argv_and_answer(self, fp: FakeProcess) -> None:
        """The base interpreter and its version come back."""
        fp.register(
            ["/v/bin/python3", "-I", "-c", pythons._ASK],
            stdout=said("3.12.4", "/usr/bin/python3.12"),
        )
        got = pythons.probe(Path("/v/bin/python3"), "PATH")
        assert got == Python(Path("/usr/bin/python3.12"), "3.12.4", "PATH")
        assert got.release == (3, 12)

    @pytest.mark.parametrize(
        ("more", "problem"),
        [
            ({"implementation": "pypy"}, "it is pypy"),
            ({"free_threaded": True}, "it is a free-threaded build"),
            ({"wide": False}, "it is a 32-bit build"),
        ],
    )
    def test_unfit(self, more: dict[str, Any], problem: str) -> None:
        """Builds that the target's extensions do not load in are told apart."""
        answer = run.Result((), 0, said("3.13.1", "/p", **more), "", 0.1)
        got = pythons.probe(Path("/p"), "x", ask=lambda *a, **k: answer)
        assert got.problem == problem and got.version == "3.13.1"

    def test_hangs(self) -> None:
        """One that does not answer has no version."""
        answer = run.Result((), -9, "", "", 5.0, True)
        got = pythons.probe(Path("/p"), "x", timeout=5, ask=lambda *a, **k: answer)
        assert got.problem == "no answer within 5 s" and got.release == (0, 0)

    @pytest.mark.parametrize(
        ("out", "err", "problem"),
        [
            ("", "pyenv: python3.9: command not found\nmore", "pyenv: python3.9"),
            ("nonsense", "", "exit status 127"),
            ('{"version": "3.12.1"}', "", "exit status 127"),
        ],
    )
    def test_broken(self, out: str, err: str, problem: str) -> None:
        """What is no Python, or half of one, says why."""
        answer = run.Result((), 127, out, err, 0.1)
        got = pythons.probe(Path("/p"), "x", ask=lambda *a, **k: answer)
        assert got.problem.startswith(f"it does not work: {problem}")


def program(path: Path, text: str = "x") -> Path:
    """Make a file that may be started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class TestFind:
    """Where interpreters are looked for."""

    def test_all_places_each_once(self, tmp_path: Path) -> None:
        """Path, uv's own, system folders and version managers; links count once."""
        first = program(tmp_path / "bin/python3.12")
        (tmp_path / "bin/python3").symlink_to(first)
        program(tmp_path / "bin/python3-config")
        (tmp_path / "bin/python3.9").write_text("may not be started")
        managed = program(tmp_path / "uv/bin/python3.13")
        system = program(tmp_path / "system/python3.11")
        pyenv = program(tmp_path / "home/.pyenv/versions/3.10.1/bin/python3.10")
        mise = program(
            tmp_path / "home/.local/share/mise/installs/python/3/bin/python3"
        )
        asked: list[list[str]] = []

        def ask(argv: list[Any], **how: Any) -> run.Result:
            asked.append([str(a) for a in argv])
            if argv[0] == Path("/uv"):
                rows = json.dumps([{"path": str(managed)}, {"path": None}])
                return run.Result((), 0, rows, "", 0.1)
            return run.Result((), 0, said("3.12.0", argv[0]), "", 0.1)

        env = {
            "PATH": f"relative:{tmp_path}/bin:{tmp_path}/absent",
            "HOME": f"{tmp_path}/home",
        }
        got = pythons.find(
            env, Path("/uv"), ask=ask, system=[tmp_path / "system", tmp_path / "bin"]
        )
        places = [tmp_path / "bin/python3", managed, system, pyenv, mise]
        assert [p.path for p in got] == places
        assert [p.origin for p in got][:2] == ["PATH", "uv"]
        command = (
            "/uv python list --only-installed --managed-python --no-python-downloads "
            "--offline --no-cache --output-format json"
        )
        assert command.split() in asked

    def test_base_of_an_environment_counts_once(self, tmp_path: Path) -> None:
        """Two environments of one interpreter are one interpreter."""
        program(tmp_path / "a/python3")
        program(tmp_path / "b/python3")
        answer = run.Result((), 0, said("3.12.0", "/usr/bin/python3.12"), "", 0.1)
        got = pythons.find(
            {"PATH": f"{tmp_path}/a:{tmp_path}/b"},
            ask=lambda *a, **k: answer,
            system=[],
        )
        assert len(got) == 1

    def test_shims_are_not_started(self, tmp_path: Path) -> None:
        """A version manager's shims are passed over: slow, and leading elsewhere."""
        program(tmp_path / "shims" / "python3.12")

        def ask(argv: list[Any], **how: Any) -> run.Result:
            raise AssertionError(f"started {argv}")

        env = {"PATH": f"{tmp_path}/shims"}
        assert pythons.find(env, None, system=(), ask=ask) == []

    def test_enough(self, tmp_path: Path) -> None:
        """The search ends when what is wanted is found."""
        for name in "abc":
            program(tmp_path / name / "python3")

        def ask(argv: list[Any], **how: Any) -> run.Result:
            return run.Result((), 0, said("3.12.0", argv[0]), "", 0.1)

        got = pythons.find(
            {"PATH": f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/c"},
            ask=ask,
            system=[],
            enough=lambda p: p.path.parent.name == "b",
        )
        assert len(got) == 2

    @pytest.mark.parametrize("out", ["", "[1]", "{}", "null"])
    def test_uv_that_talks_nonsense(self, out: str) -> None:
        """What uv cannot say is nothing."""
        answer = run.Result((), 0, out, "", 0.1)
        assert (
            pythons.find({}, Path("/uv"), ask=lambda *a, **k: answer, system=[]) == []
        )


@pytest.mark.parametrize(
    ("requires", "version", "answer"),
    [
        (">=3.10,<3.15", "3.12.4", True),
        (">=3.10,<3.15", "3.15.0", False),
        ("", "3.9.1", True),
        ("gibberish", "3.9.1", True),
        (">=3.10", "unknown", False),
        (">=3.10", "3.14.0rc1", True),
    ],
)
def test_admits(requires: str, version: str, answer: bool) -> None:
    """The target's own words decide, where they can be read."""
    assert pythons.admits(requires, version) is answer


def python(version: str, **more: Any) -> Python:
    """Return an interpreter of a version."""
    return Python(Path(f"/py/{version}"), version, "PATH", **more)


@pytest.mark.parametrize(
    ("versions", "wanted", "best"),
    [
        (["3.10.1", "3.12.1", "3.13.0"], "3.12", "3.12.1"),
        (["3.10.1", "3.11.1", "3.14.0"], "3.12", "3.11.1"),
        (["3.11.1", "3.13.0"], "3.12", "3.13.0"),
        (["3.9.1", "3.15.0"], "3.12", None),
        (["3.1.0", "3.12.1"], "3.1", "3.12.1"),
        (["3.11.1", "3.13.0"], "odd", "3.11.1"),
        ([], "3.12", None),
    ],
)
def test_choose(versions: list[str], wanted: str, best: str | None) -> None:
    """The wanted one, else the nearest that is admitted, the newer of two."""
    got = pythons.choose(map(python, versions), wanted, ">=3.10,<3.15")
    assert (got.version if got else None) == best


def test_choose_and_headers() -> None:
    """One with headers goes first; without them it is out where they are needed."""
    bare, whole = python("3.12.1", headers=False), python("3.12.2")
    sick = python("3.12.3", problem="it is pypy")
    assert pythons.choose([sick, bare, whole], "3.12") == whole
    assert pythons.choose([bare], "3.12") == bare
    assert pythons.choose([bare], "3.12", need_headers=True) is None
