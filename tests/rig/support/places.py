# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A state root with small generations of one place, and a checkout for libraries."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.rig.support.power import Layer
from tools.rig.base.state import SENTINEL, StateRoot
from tools.rig.builds import generations
from tools.rig.builds.generation import Generation
from tools.rig.host.look import Disk
from tools.rig.host.storage import Mount

PLACE = "check-out-1234"
HEAD = "a" * 40
MOUNT = Mount(Path("/"), "ext4", "/dev/sda", "rw", "8:1")


def disk(path: Path, measure_s: float = 0) -> Disk:
    """Stand for the look at a disk, without its process."""
    there = path.is_dir()
    empty = not (there and any(path.iterdir()))
    return Disk(path, path, MOUNT, exists=there, empty=empty)


class Town:
    """One place with its generations."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.root = StateRoot(top / "root")
        self.checkout = top / "check out"
        (self.checkout / "pkg").mkdir(parents=True)
        (self.checkout / "pkg" / "a.py").write_text("source")
        self.root.make(self.root.venvs)
        self.home = generations.folder_of(self.root, PLACE)
        self.link = self.root.venvs / PLACE

    def environment(self, folder: Path, text: str) -> Path:
        """Make what stands for an environment."""
        folder.mkdir()
        (folder / SENTINEL).touch()
        (folder / "env.txt").write_text(text)
        return folder

    def generation(
        self, name: str, libraries: Mapping[str, str] | None = None, **more: Any
    ) -> Generation:
        """Make a whole generation; with libraries it is an editable one."""
        folder = generations.begin(self.root, PLACE, name, "the test")
        self.environment(folder, name)
        if libraries is not None:
            members = {f"in-wheel/{path}": text for path, text in libraries.items()}
            more |= {
                "wheel": str(self.wheel(name, members)),
                "libraries": tuple((f"in-wheel/{path}", path) for path in libraries),
                "head": HEAD,
            }
        mode = "wheel" if libraries is None else "editable"
        made = Generation(name, folder, mode=mode, checkout=str(self.checkout), **more)
        return generations.finish(made, Layer())

    def wheel(self, name: str, members: Mapping[str, str]) -> Path:
        """Make a kept wheel."""
        folder = self.root.make(self.root.artifacts / name)
        path = folder / "x-1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for member, text in members.items():
                info = zipfile.ZipInfo(member)
                info.external_attr = 0o755 << 16
                archive.writestr(info, text)
        return path

    def view(self) -> dict[str, Any]:
        """Return all that a user of the place meets."""
        tree = {
            str(p.relative_to(self.checkout)): p.read_text() if p.is_file() else "/"
            for p in self.checkout.rglob("*")
        }
        note = generations.placed(self.root, PLACE)
        return {
            "checkout": tree,
            "environment": (self.link / "env.txt").read_text(),
            "link": os.readlink(self.link) if self.link.is_symlink() else "",
            "venvs": sorted(p.name for p in self.root.venvs.iterdir()),
            "note": note,
        }
