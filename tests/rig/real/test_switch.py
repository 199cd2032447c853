# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A switch under real processes, real kills and real disks."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rig.support import disks
from tests.rig.support.places import PLACE, Town
from tools.rig.base.errors import StepFailed
from tools.rig.base.state import SENTINEL, StateRoot
from tools.rig.builds import generations, switch
from tools.rig.builds.generation import Generation
from tools.rig.builds.target import HERE

pytestmark = pytest.mark.real

KILLS = 30
PAD = 3 << 20
"""Bytes in a library, so that writing one takes a while."""

SOURCE = """
static const char pad[{pad}] = {{1}};
int version(void) {{ return pad[{pad} - 1] + {version}; }}
"""

PACKAGE = """
import ctypes, os
here = os.path.dirname(__file__)
libraries = [ctypes.CDLL(os.path.join(here, n)) for n in ("_a.so", "_b.so")]
versions = [library.version() for library in libraries]
"""

SERVER = """
import sys, pkg
print("up", flush=True)
for line in sys.stdin:
    print(*[library.version() for library in pkg.libraries], flush=True)
"""

SWITCHER = """
import sys
from pathlib import Path
from tools.rig.base.state import StateRoot
from tools.rig.builds import generations, switch
root, place = StateRoot(Path(sys.argv[1])), sys.argv[2]
print("up", flush=True)
while True:
    for name in ("1", "2"):
        switch.switch(root, place, generations.find(root, place, name))
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the two versions of a library."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("libraries")
    found = {}
    for version in ("1", "2"):
        source = folder / f"v{version}.c"
        source.write_text(SOURCE.format(pad=PAD, version=version))
        made = folder / f"v{version}.so"
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", made], check=True)
        # what does not compress takes longer, and fills disks
        found[version] = made.read_bytes() + random.Random(version).randbytes(1 << 20)
    return found


class Site(Town):
    """A place whose generations are real environments of a package in the checkout."""

    def __init__(self, top: Path, libraries: dict[str, bytes]) -> None:
        super().__init__(top)
        (self.checkout / "pkg" / "__init__.py").write_text(PACKAGE)
        self.all = {version: self._make(version, libraries) for version in "12"}

    def _make(self, version: str, libraries: dict[str, bytes]) -> Generation:
        folder = generations.begin(self.root, PLACE, version, "the test")
        argv = [sys.executable, "-m", "venv", "--without-pip", os.fspath(folder)]
        subprocess.run(argv, check=True)
        (folder / SENTINEL).touch()
        site = next((folder / "lib").glob("python3*/site-packages"))
        (site / "checkout.pth").write_text(f"{self.checkout}\n")
        (site / "of_environment.py").write_text(f"version = {version}\n")
        wheels = self.root.make(self.root.artifacts / version)
        with zipfile.ZipFile(wheels / "x.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            for name in ("pkg/_a.so", "pkg/_b.so"):
                archive.writestr(name, libraries[version])
        return generations.finish(
            Generation(
                version,
                folder,
                mode="editable",
                wheel=str(wheels / "x.whl"),
                checkout=str(self.checkout),
                libraries=(("pkg/_a.so", "pkg/_a.so"), ("pkg/_b.so", "pkg/_b.so")),
            )
        )

    def switch(
        self, version: str, before: Callable[[], object] | None = None
    ) -> switch.Switched:
        """Switch."""
        return switch.switch(self.root, PLACE, self.all[version], before=before)

    def imported(self) -> list[str]:
        """Return the versions that a new process sees: environment and libraries."""
        code = "import of_environment as e, pkg; print(e.version, *pkg.versions)"
        argv = [self.link / "bin" / "python", "-c", code]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return done.stdout.split()

    @contextlib.contextmanager
    def server(self, *around: str) -> Iterator[Callable[[], list[str]]]:
        """Run a process that has the libraries mapped; yield what asks it."""
        argv = [*around, os.fspath(self.link / "bin" / "python"), "-c", SERVER]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(argv, text=True, **pipes) as process:
            assert process.stdin and process.stdout
            said, asked = process.stdout, process.stdin

            def ask() -> list[str]:
                asked.write("?\n")
                asked.flush()
                return said.readline().split()

            try:
                assert said.readline() == "up\n"
                yield ask
            finally:
                process.kill()


@pytest.fixture
def site(tmp_path: Path, libraries: dict[str, bytes]) -> Site:
    """Return a site with the first generation in force."""
    made = Site(tmp_path, libraries)
    made.switch("1")
    return made


def _namespaces() -> bool:
    argv = ["unshare", "--mount", "true"]
    try:
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class TestServer:
    """A running process is not disturbed."""

    @pytest.mark.parametrize("around", [(), ("unshare", "--mount")])
    def test_mapped(self, site: Site, around: tuple[str, ...]) -> None:
        """It keeps the libraries that it mapped, in its own mount namespace too."""
        if around and not _namespaces():
            pytest.skip("no mount namespaces here")
        with site.server(*around) as ask:
            assert ask() == ["1", "1"]
            site.switch("2")
            assert ask() == ["1", "1"]
            assert site.imported() == ["2", "2", "2"]
            site.switch("1")
            site.switch("2")
            assert ask() == ["1", "1"]

    def test_started_at_the_last_moment(self, site: Site) -> None:
        """One that starts after the last look, before the renames, works on."""
        with contextlib.ExitStack() as stack:
            asks: list[Callable[[], list[str]]] = []
            site.switch(
                "2", before=lambda: asks.append(stack.enter_context(site.server()))
            )
            assert asks[0]() == ["1", "1"]
            assert site.imported() == ["2", "2", "2"]


class TestKill:
    """SIGKILL at any moment."""

    def test_random_moments(self, site: Site) -> None:
        """The next command finishes or undoes it, and one whole environment works."""
        began = time.monotonic()
        site.switch("2")
        once = time.monotonic() - began
        chance, said = random.Random(4), []
        argv = [sys.executable, "-c", SWITCHER, os.fspath(site.root.path), PLACE]
        for _ in range(KILLS):
            with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=HERE) as process:
                assert process.stdout and process.stdout.readline() == b"up\n"
                time.sleep(chance.uniform(0, 3 * once))
                process.send_signal(signal.SIGKILL)
            assert (site.link / "bin" / "python").exists()
            said.append(switch.settle(site.root, PLACE))
            one, *others = site.imported()
            assert others == [one, one]
            assert not list(site.checkout.rglob("*.rig-new"))
        assert {"finished", "undone"} & set(said), "no kill met a switch"
        site.switch("2")
        assert site.imported() == ["2", "2", "2"]


class TestFullDisk:
    """No room: a message, and what was in force still works."""

    @pytest.mark.parametrize("left", [0, 4 << 10, 64 << 10, 1 << 20, 3 << 20, 4 << 20])
    @pytest.mark.parametrize("kind", ["memory", "ext4"])
    def test_everything_on_it(
        self, tmp_path: Path, libraries: dict[str, bytes], kind: str, left: int
    ) -> None:
        """Checkout and state on one disk that fills up while the switch writes."""
        disk = (
            disks.memory("size=64m")
            if kind == "memory"
            else disks.ext4(tmp_path / "d", 96)
        )
        if why := disks.refused(
            disks.memory() if kind == "memory" else disks.ext4(tmp_path / "try", 8)
        ):
            pytest.skip(f"no disks can be mounted here: {why}")
        with disk as top:
            site = Site(top, libraries)
            site.switch("1")
            filled = fill(top, left)
            try:
                with pytest.raises(StepFailed, match="No space left") as caught:
                    site.switch("2")
                assert caught.value.hint.startswith("df -h ")
                assert f"{site.root.path / 'cache'} may go" in caught.value.hint
                assert site.imported() == ["1", "1", "1"]
            finally:
                filled.unlink()
            assert switch.settle(site.root, PLACE) in ("", "undone", "finished")
            assert site.switch("2").active == "2"
            assert site.imported() == ["2", "2", "2"]


class TestImage:
    """An environment that came with a container's image."""

    def test_folder_of_the_lower_layer(self, tmp_path: Path) -> None:
        """It cannot be renamed: nothing is changed, and the hint helps."""
        names = ("lower", "upper", "work", "merged")
        lower, upper, work, merged = (tmp_path / name for name in names)
        for folder in (lower, upper, work, merged):
            folder.mkdir()
        town = Town(lower)
        town.environment(town.link, "before")
        options = f"lowerdir={lower},upperdir={upper},workdir={work},redirect_dir=off"
        argv = ["mount", "-t", "overlay", "none", os.fspath(merged), "-o", options]
        if subprocess.run(argv, capture_output=True, check=False).returncode:
            pytest.skip("no overlay mounts here")
        try:
            town.root = StateRoot(merged / "root")
            town.home = generations.folder_of(town.root, PLACE)
            town.link = town.root.venvs / PLACE
            made = town.generation("1")
            with pytest.raises(StepFailed, match="cannot finish placing") as caught:
                switch.switch(town.root, PLACE, made)
            assert "Nothing was changed" in caught.value.usual
            assert (town.link / "env.txt").read_text() == "before"
            shutil.move(town.link, town.link.with_name("old"))
            assert "mv " in caught.value.hint
            switch.switch(town.root, PLACE, made)
            assert (town.link / "env.txt").read_text() == "1"
        finally:
            subprocess.run(["umount", os.fspath(merged)], check=True)


def fill(top: Path, left: int) -> Path:
    """Fill a disk up to `left` bytes, and return the file that does it."""
    file = top / "filler"
    with file.open("wb", buffering=0) as fh, contextlib.suppress(OSError):
        while True:
            fh.write(b"x" * 65536)
    os.truncate(file, max(file.stat().st_size - left, 0))
    os.sync()
    return file
