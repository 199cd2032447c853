# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Memory that runs out: seen for what it is, and the compile is run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.support.admission import MIB, Yard, events
from tests.rig.support.memory_group import MemoryGroup, memory_group
from tools.rig.base.launch_use import oom_kills
from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.predictions import Predictions

pytestmark = pytest.mark.real

_ROOT = Path(__file__).parents[3]
_LIMIT = 400 * MIB


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """Return a yard, removed afterwards."""
    made = Yard(tmp_path)
    yield made
    made.close()


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    """Return a cgroup of 400 MiB."""
    with memory_group(_LIMIT) as made:
        if made is None:
            pytest.skip("no memory cgroup can be made here")
        yield made


def build(yard: Yard, group: MemoryGroup, names: list[str], cores: int) -> None:
    """Compile sources side by side inside the group; print how each went."""
    driver = textwrap.dedent(
        f"""
        import json, os, subprocess
        from pathlib import Path
        from tools.rig.builds.admission.client import Admission, Files
        here = Path({str(yard.path)!r})
        files = Files.of(here / "logs", "b", here / "predictions.json")
        with Admission("b", files, {cores}, folder=Path({str(yard.socket)!r})) as one:
            env = {{**os.environ, **one.env}}
            words = [{str(yard.admit)!r}, {str(yard.compiler)!r}]
            procs = [
                subprocess.Popen(
                    [*words, "-c", name, "-o", name + ".o"], cwd=here, env=env,
                    text=True, stderr=subprocess.PIPE,
                )
                for name in {names!r}
            ]
            said = [proc.communicate()[1] for proc in procs]
            codes = [proc.returncode for proc in procs]
        result = dict(codes=codes, said=said, ran_out=one.ran_out, learnt=one.learnt)
        (here / "result.json").write_text(json.dumps(result))
        """
    )
    got = subprocess.run(
        group.inside(sys.executable, "-c", driver),
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=80,
    )
    assert got.returncode == 0, got.stderr


def test_ran_out_once(yard: Yard, group: MemoryGroup) -> None:
    """What was killed by a neighbour's hunger is compiled again, and nobody notices."""
    text = (
        "first = not os.path.exists(made + '.2'); open(made + '.2', 'w')\n"
        "hold(260 if first else 30, 1.5)"
    )
    yard.source("a.cpp", text)
    yard.source("b.cpp", text)
    known = Predictions()
    for name in ("a", "b"):
        # a promise that the first try does not keep
        known.learn(f"{name}.cpp.o", Curve.flat(2, 30 * MIB))
    known.save(yard.path / "predictions.json")
    build(yard, group, ["a.cpp", "b.cpp"], cores=2)
    result = json.loads((yard.path / "result.json").read_text())
    assert group.kills() >= 1
    assert result["codes"] == [0, 0]
    assert 1 <= len(result["ran_out"]) <= 2
    for event in result["ran_out"]:
        assert event["code"] == 0 and event["attempts"] == 2
    assert any("memory ran out under" in said for said in result["said"])


def test_never_fits(yard: Yard, group: MemoryGroup) -> None:
    """A compile that is larger than the machine fails after three tries and says so."""
    yard.source("a.cpp", "hold(500, 1)")
    build(yard, group, ["a.cpp"], cores=2)
    result = json.loads((yard.path / "result.json").read_text())
    assert group.kills() == 3
    assert result["codes"] == [-9]
    (event,) = result["ran_out"]
    assert (event["attempts"], event["code"], event["oom"]) == (3, -9, True)
    assert "memory ran out under a.cpp.o" in result["said"][0]
    assert result["learnt"] == 0


def test_kernel_log(group: MemoryGroup, tmp_path: Path) -> None:
    """Where no counter can be read, the kernel's own log tells of a kill."""
    nowhere = str(tmp_path / "none")
    before = oom_kills(nowhere, nowhere)
    if before is None:
        pytest.skip("the kernel's log cannot be read here")
    assert oom_kills(nowhere, nowhere) == before
    hungry = "b = bytearray(500 << 20); b[::4096] = b'x' * len(b[::4096])"
    done = subprocess.run(group.inside(sys.executable, "-c", hungry), check=False)
    assert done.returncode == -9 and group.kills() == 1
    after = oom_kills(nowhere, nowhere)
    assert after is not None and after > before


def test_killed_below_the_compiler(yard: Yard, group: MemoryGroup) -> None:
    """A driver whose own child was killed says so, and that counts as much."""
    hungry = "b = bytearray(500 << 20); b[::4096] = b'x' * len(b[::4096])"
    yard.source(
        "a.cpp",
        "import subprocess\n"
        "if os.path.exists(made + '.2'): sys.exit(0)\n"
        "open(made + '.2', 'w')\n"
        f"subprocess.run([sys.executable, '-IS', '-c', {hungry!r}])\n"
        "print('g++: fatal error: Killed signal terminated program', file=sys.stderr)\n"
        "sys.exit(1)",
    )
    build(yard, group, ["a.cpp"], cores=2)
    result = json.loads((yard.path / "result.json").read_text())
    assert result["codes"] == [0]
    assert result["ran_out"][0]["attempts"] == 2
    # what the first try said would only mislead
    assert "fatal error" not in result["said"][0]


def test_saying_so_is_not_enough(yard: Yard) -> None:
    """A compile that says Killed without any kill by the kernel is not run again."""
    words = yard.source("a.cpp", "print('Killed', file=sys.stderr); sys.exit(1)")
    with yard.admission() as admission:
        got = yard.run(words, yard.env(admission))
    assert (got.returncode, got.stderr) == (1, "Killed\n")
    assert events(admission)[0]["attempts"] == 1
