# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The sample built through links to the lasting folder, by setuptools itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import regex as re

from tests.rig.support.toolkit import fitting_compiler, sm70_toolkit
from tools.rig.base.state import StateRoot, place_id
from tools.rig.builds import compile_cache, ninja_log, sample, work_folder
from tools.rig.builds.compile_cache import CompileCache
from tools.rig.builds.work_folder import Names, WorkFolder

pytestmark = pytest.mark.real

NAMES = Names(sysconfig.get_platform(), str(sys.implementation.cache_tag))
ALL = {"binding.cpp", "wide.cu", "narrow.cu", "host.cpp"}


class Sample:
    """A checkout of the sample, and how it is built."""

    def __init__(self, checkout: Path, root: StateRoot) -> None:
        self.checkout = checkout
        self.root = root
        self.variant = "sample-cuda12.4"
        self.counts = root.path / "counts"

    def work(self) -> WorkFolder:
        """Lay the lasting folder out."""
        place = place_id(self.checkout)
        work = work_folder.plan(
            self.root, place, self.variant, self.checkout, NAMES, {}
        )
        work_folder.lay_out(work, self.root)
        return work

    def build(self, *words: str) -> set[str]:
        """Build a wheel, and return the names of the sources that ninja compiled."""
        kit = sm70_toolkit()
        host = str(fitting_compiler(kit.release).path)
        ccache = shutil.which("ccache")
        chosen = CompileCache("ccache", ccache) if ccache else CompileCache()
        env = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.root.path),
            "CUDA_HOME": str(kit.root),
            "CUDACXX": str(kit.nvcc),
            "CXX": host,
            "CUDAHOSTCXX": host,
            "MAX_JOBS": "2",
            "RIG_SAMPLE_DEP_SRC_DIR": str(sample.TEMPLATES / "dependency"),
            "CCACHE_STATSLOG": str(self.counts),
        }
        env |= compile_cache.defaults(chosen, self.root.cache, self.checkout)
        script = compile_cache.launcher(self.root.make(self.root.shims))
        env |= compile_cache.forced(chosen, script, env, self.work())
        self.counts.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "setup.py", *(words or ("bdist_wheel",))],
            cwd=self.checkout,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return set(re.findall(r"Building \w+ object \S+/(\S+)\.o", done.stdout))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    """Return the sample, built once."""
    folder = tmp_path_factory.mktemp("work")
    laid = sample.lay_out(folder / "one", os.environ)
    made = Sample(laid.path, StateRoot(folder / "root"))
    assert made.build() == ALL
    yield made
    shutil.rmtree(folder)


def add_line(file: Path) -> None:
    """Change a source so that its text is another."""
    with file.open("a") as fh:
        name = file.name.replace(".", "_")
        fh.write(f"static inline int added_{name}(int x) {{ return x; }}\n")


def test_nothing_changed(first: Sample) -> None:
    """Nothing is compiled again, the tree stays clean, and the log is found."""
    assert first.build() == set()
    git = ["git", "-C", str(first.checkout), "status", "--porcelain"]
    said = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    assert said == ""
    temp = first.checkout / "build" / NAMES.temp
    assert temp.is_symlink() and temp.resolve().is_relative_to(first.root.path)
    built = {Path(step.output).stem for step in ninja_log.of_checkout(first.checkout)}
    assert built >= ALL


def test_one_source(first: Sample) -> None:
    """A changed source is compiled, and no other."""
    add_line(first.checkout / "csrc" / "narrow.cu")
    assert first.build() == {"narrow.cu"}


def test_one_header(first: Sample) -> None:
    """A changed header compiles exactly what includes it."""
    csrc = first.checkout / "csrc"
    add_line(csrc / "check.cuh")
    users = {p.name for p in csrc.iterdir() if '"check.cuh"' in p.read_text()}
    assert users and users < ALL
    assert first.build() == users


def test_two_toolkits(first: Sample) -> None:
    """Another toolkit's folder is its own, and going back compiles nothing."""
    first.build()
    first.variant = "sample-cuda12.8"
    assert first.build() == ALL
    first.variant = "sample-cuda12.4"
    assert first.build() == set()


def test_a_clone_elsewhere(first: Sample, tmp_path: Path) -> None:
    """What a clone in another folder must compile, the cache has."""
    if not shutil.which("ccache"):
        pytest.skip("ccache is not installed")
    first.build()
    place = tmp_path / "a clone" / "far away"
    shutil.copytree(first.checkout, place, symlinks=True)
    theirs = os.readlink(place / "build" / NAMES.temp)
    clone = Sample(place, first.root)
    assert clone.build() == ALL
    counts = compile_cache.counts_of_ccache(clone.counts)
    assert (counts["hits"], counts["misses"], counts["not_cached"]) == (4, 0, 0)
    # the copied links led to the first one's objects, which nobody touched
    assert os.readlink(place / "build" / NAMES.temp) != theirs
    assert first.build() == set()


def test_setuptools_cleans(first: Sample) -> None:
    """``clean`` leaves nothing that the next build could not live with."""
    subprocess.run(
        [sys.executable, "setup.py", "-q", "clean", "--all"],
        cwd=first.checkout,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert first.build() in (set(), ALL)
    assert (first.checkout / "build" / NAMES.temp).is_symlink()
