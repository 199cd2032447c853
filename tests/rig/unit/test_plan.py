# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The plan is what is printed and what is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.rig.base.state import StateRoot
from tools.rig.builds import compile_setup, plan, profile
from tools.rig.builds.admission.curves import Curve
from tools.rig.builds.admission.predictions import Predictions
from tools.rig.builds.compile_cache import CompileCache
from tools.rig.builds.compile_setup import CompileSetup, Machine
from tools.rig.builds.environment import Composed, Places
from tools.rig.builds.plan import BuildPlan

V100 = profile.load("v100-cu128")
PLACES = Places(*map(Path, ("/s r c", "/home", "/bench", "/new", "/t", "/d", "/c")))


def setup(root: Path = Path("/state")) -> CompileSetup:
    """Return how the compiles of a V100 build are run."""
    return compile_setup.plan(
        V100,
        StateRoot(root),
        "src-1",
        Path("/s r c"),
        {"env": Path("/bench")},
        release="12.4",
        compiler="gcc12",
        build_id="{build}",
        python="3.12.4",
        asked=(2, "command line"),
        cache=CompileCache("ccache", "/bin/ccache"),
        at=Machine(6 << 30, 4, 8 << 30),
        shims=Path("/shims"),
    )


def make(
    *,
    wheel_only: bool = False,
    backend: str | None = None,
    its: CompileSetup | None = None,
) -> BuildPlan:
    """Return a plan for the V100."""
    return plan.make(
        V100,
        PLACES,
        Composed({"MAX_JOBS": "2", "HF_TOKEN": "hf_secretsecretsecret"}, ("one note",)),
        its or setup(),
        "CUDA 12.4",
        Path("/wheels"),
        ("/bin/uv",),
        torch_backend=backend,
        wheel_only=wheel_only,
        notes=("shim",),
    )


def pip(environment: str, *words: str) -> tuple[str, ...]:
    """Return the command that installs into an environment."""
    python = f"/{environment}/bin/python"
    return ("/bin/uv", "pip", "install", "--python", python, *words)


HELD = ("--constraint", "/wheels/constraints.txt")
REQS = ("--requirement", f"/s r c/{V100.build_requirements}")
LISTED = ("--requirement", "{requirements}")


def test_editable() -> None:
    """The wheel comes from the bench, all else goes into the new environment."""
    made = make()
    needs, wheel, rest, editable = made.commands
    titles = [plan.BUILD_NEEDS, plan.WHEEL, plan.NEEDS, plan.EDITABLE]
    assert [c.title for c in made.commands] == titles
    assert needs.argv == pip("bench", *HELD, *REQS)
    assert wheel.argv[:4] == ("/bin/uv", "build", "--wheel", "--no-build-isolation")
    assert wheel.argv[4:6] == ("--python", "/bench/bin/python")
    assert wheel.argv[-3:] == ("--out-dir", "/wheels", "/s r c") and wheel.compiles
    assert rest.argv == pip("new", *HELD, *REQS, *LISTED)
    flags = ("--no-build-isolation", "--no-deps", "--editable", "/s r c")
    assert editable.argv == pip("new", *flags) and not editable.compiles
    assert editable.env == V100.editable_env
    assert made.mode == "editable" and made.command("wheel") is wheel


def test_wheel_only() -> None:
    """With --wheel the wheel itself is installed, and no build requirements."""
    made = make(wheel_only=True)
    rest, last = made.commands[2:]
    assert rest.argv == pip("new", *HELD, *LISTED)
    assert last.argv == pip("new", "--no-deps", "{wheel}") and last.env == {}
    assert made.mode == "wheel"


def test_filled() -> None:
    """What earlier commands made goes into the open places, of the environment too."""
    rest, editable = make().commands[2:]
    filled = editable.filled(hollow_wheel="/h/x.whl")
    assert filled.argv == editable.argv
    assert filled.env["VLLM_PRECOMPILED_WHEEL_LOCATION"] == "/h/x.whl"
    assert rest.filled(requirements="/r.txt").argv[-1] == "/r.txt"
    assert "{requirements}" in rest.argv


def test_torch_backend() -> None:
    """The index of torch goes to every command that may install it."""
    for command in (make(backend="cu126").commands[i] for i in (0, 2)):
        at = command.argv.index("--torch-backend")
        assert command.argv[at + 1] == "cu126"
    assert not [c for c in make().commands if "--torch-backend" in c.argv]


def test_people_see_what_is_done() -> None:
    """The lines can be typed, notes come last, secrets are masked."""
    lines = make().lines()
    assert "profile      v100-cu128" in lines
    assert "environment  /home" in lines and "generation   /new" in lines
    where = str(setup().work.home)
    assert where.endswith("/src-1/v100-cu128-cuda12.4-gcc12")
    assert f"build folder {where}" in lines and "cache        ccache" in lines
    budget = "up to 8.0 GiB for all together"
    assert f"compiles     at most 2 (command line says so), {budget}" in lines
    assert "memory       6.0 GiB free for compiles now" in lines
    assert "expected     nothing was measured yet" in lines
    assert "  MAX_JOBS=2" in lines and "  HF_TOKEN=***" in lines
    typed = next(ln for ln in lines if "--editable" in ln)
    assert typed.endswith("--editable '/s r c'")
    assert "VLLM_USE_PRECOMPILED=1" in typed
    assert lines[-2:] == ["note: shim", "note: one note"]


def test_expected(tmp_path: Path) -> None:
    """What earlier builds measured says how long all of it takes without a cache."""
    known = Predictions()
    for name in ("a.cu.o", "b.cu.o"):
        known.learn(name, Curve(((0.0, 1 << 30), (60.0, 1 << 30))))
    known.save(tmp_path / "predictions" / "v100-cu128-12.4.json")
    made = make(its=setup(tmp_path))
    assert made.to_json()["expected_s"] == pytest.approx(60, abs=5)
    line = next(ln for ln in made.lines() if ln.startswith("expected"))
    assert line.endswith("for all 2 compiles that were measured, uncached")


def test_launchers() -> None:
    """Admission comes before the cache, the cache before the compiler."""
    env = compile_setup.environment(setup(), {"CUDACXX": "/cuda/bin/nvcc"})
    words = "/shims/rig-admit;/shims/rig-cache"
    assert f"-DCMAKE_CUDA_COMPILER_LAUNCHER={words}" in env["CMAKE_ARGS"].split()
    assert env["PYTORCH_NVCC"] == f"{words.replace(';', ' ')} /cuda/bin/nvcc"
    assert env["CCACHE_STATSLOG"] == "/state/logs/{build}.ccache"


def test_json() -> None:
    """The same as data, secrets masked."""
    data = make().to_json()
    assert data["env"] == {"MAX_JOBS": "2", "HF_TOKEN": "***"}
    assert data["commands"][1]["argv"] == list(make().commands[1].argv)
    assert data["checkout"] == "/s r c" and data["notes"] == ["shim", "one note"]


@pytest.mark.parametrize(
    ("name", "text"), [("v100-cu128", "torch==2.10.0\n"), ("sample", "")]
)
def test_constraints(name: str, text: str) -> None:
    """Torch is held where the profile has one."""
    assert plan.constraints(profile.load(name)) == text
