# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Logs that are named, or the last failed build's, and what this machine adds."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from tools.rig.base.console import Console
from tools.rig.base.errors import ExitCode, UsageError
from tools.rig.steps.diagnose import diagnose, machine_facts

PLAIN = {"LANG": "C"}
UNSUPPORTED = "nvcc fatal   : Unsupported gpu architecture 'compute_70'\n"


@pytest.fixture
def out() -> io.StringIO:
    """Return what people see."""
    return io.StringIO()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Write the log of a build that failed."""
    file = tmp_path / "logs" / "one.log"
    file.parent.mkdir()
    file.write_text(f"[1/2] Building CUDA object a.o\n{UNSUPPORTED}")
    return file


def record(log: Path | str, result: str = "failed") -> dict[str, Any]:
    """Return a build's record."""
    return {
        "result": result,
        "log": str(log),
        "environment": "/v",
        "checkout": "/c",
        "plan": {"env": {"CUDA_HOME": "/k", "MAX_JOBS": "5", "CUDAHOSTCXX": "/g++"}},
    }


class TestLogs:
    """Which logs are looked at."""

    def test_last_failed(self, out: io.StringIO, log: Path) -> None:
        """Without a name, the newest build that failed or died is explained."""
        older = record(log.parent / "gone.log")
        records = [record("/new", "done"), record(log, "died"), older]
        result = diagnose(Console(out, {}), [], records, env=PLAIN)
        assert result.logs[0].log == str(log)
        assert result.exit_code == ExitCode.FAILED
        said = out.getvalue()
        assert f"the last build that failed; 1 later ones did not: {log}" in said
        assert "ROOT CAUSE" in said

    @pytest.mark.parametrize(
        ("records", "what"),
        [([], "no build is recorded"), ([record("/x", "done")], "no failed build")],
    )
    def test_none(self, out: io.StringIO, records: list[Any], what: str) -> None:
        """Where nothing failed, it is said how to name a log."""
        with pytest.raises(UsageError, match=what) as caught:
            diagnose(Console(out, {}), [], records)
        assert "invoke diagnose LOG" in caught.value.hint

    def test_no_log(self, out: io.StringIO) -> None:
        """A build that failed before it logged anything is told by its record."""
        early = {**record("/none"), "error": "CUDA_HOME holds no nvcc"}
        with pytest.raises(UsageError, match="it said: CUDA_HOME holds no nvcc"):
            diagnose(Console(out, {}), [], [early])

    def test_several(self, out: io.StringIO, log: Path, tmp_path: Path) -> None:
        """Of several logs the one that explains most comes first."""
        well = tmp_path / "well.txt"
        well.write_text("all is well\n")
        result = diagnose(Console(out, {}), [str(well), str(log)], [], env=PLAIN)
        assert [one.log for one in result.logs] == [str(log), str(well)]
        document = result.to_json()
        assert document["verdict"] == "failure" and document["log"] == str(log)
        assert [other["verdict"] for other in document["others"]] == ["healthy"]
        assert f"== {log}" in out.getvalue()

    @pytest.mark.parametrize(
        ("text", "code"),
        [("all is well\n", ExitCode.OK), ("ValueError: oh\n", ExitCode.UNKNOWN)],
    )
    def test_codes(
        self, out: io.StringIO, tmp_path: Path, text: str, code: ExitCode
    ) -> None:
        """0 nothing wrong, 5 not recognised."""
        file = tmp_path / "x.txt"
        file.write_text(text)
        result = diagnose(Console(out, {}), [str(file)], [], env=PLAIN)
        assert result.exit_code == code
        assert "others" not in result.to_json()


class TestLanguage:
    """English, and Chinese."""

    def test_chosen(self, out: io.StringIO, log: Path) -> None:
        """The option beats the locale."""
        diagnose(Console(out, {}), [str(log)], [], lang="zh", env=PLAIN)
        assert "根本原因" in out.getvalue()

    def test_as_locales_say(self, out: io.StringIO, log: Path) -> None:
        """A locale's name is a language."""
        diagnose(Console(out, {}), [str(log)], [], lang="zh_CN.UTF-8", env=PLAIN)
        assert "根本原因" in out.getvalue()

    def test_unknown(self, out: io.StringIO, log: Path) -> None:
        """Another language is wrong usage, said before anything is read."""
        with pytest.raises(UsageError, match="--lang fr"):
            diagnose(Console(out, {}), [str(log)], [], lang="fr")


def test_facts_of_this_machine(out: io.StringIO, log: Path) -> None:
    """Facts fill in where the log is one of ours, and only there."""
    here = diagnose(Console(out, {}), [str(log)], [record(log)], env=PLAIN)
    assert here.facts[0]["cuda_home"] == "/k"
    assert here.facts[0]["jobs"] == "2"
    assert here.facts[0]["state"] == str(log.parent.parent)
    foreign = diagnose(Console(out, {}), [str(log)], [record("/other")], env=PLAIN)
    assert foreign.facts == ({},)


@pytest.mark.parametrize(
    "data", [{}, {"plan": None}, {"plan": {"env": 3}}, {"plan": {"env": {"X": "y"}}}]
)
def test_poor_record(data: dict[str, Any]) -> None:
    """A record that holds little fills in nothing."""
    assert machine_facts(data) == {}
    assert "jobs" not in machine_facts({"plan": {"env": {"MAX_JOBS": "many"}}})


@pytest.mark.parametrize(
    ("told", "jobs"),
    [
        ({"plan": {"compiles_at_once": 2, "env": {"MAX_JOBS": "64"}}}, ("1", "2")),
        (
            {"plan": {"compiles_at_once": 16}, "admission": {"at_once": 5}},
            ("2", "5"),
        ),
        (
            {"plan": {"compiles_at_once": 4}, "admission": {"at_once": 0}},
            ("2", "4"),
        ),
        ({"plan": {"compiles_at_once": "x"}, "admission": [1]}, (None, None)),
        ({"plan": {"compiles_at_once": 1}}, ("1", "1")),
    ],
)
def test_fewer_than_ran(told: dict[str, Any], jobs: tuple[str, str]) -> None:
    """What is advised is less than what ran, not than what ninja let wait."""
    facts = machine_facts(told)
    assert (facts.get("jobs"), facts.get("ran")) == jobs
