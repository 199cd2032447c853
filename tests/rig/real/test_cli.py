# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What is typed wrong gets a clear message, and what may be typed is listed."""

from __future__ import annotations

import json
import zipfile

import pytest

from tests.rig.support.newcomer import BUILD, refused
from tests.rig.support.newcomer import user as user
from tests.rig.support.workshop import Workshop

pytestmark = pytest.mark.real


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
