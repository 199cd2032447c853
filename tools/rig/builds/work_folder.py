# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""One lasting build folder for each checkout, profile and toolkit, on the local disk.

setuptools builds in ``build/temp.*`` of the checkout, which may lie on a NAS and knows
nothing of profiles. So these become links into the state root, and ninja finds its log,
its dependencies and its objects again. Folders, not ``build`` itself: a target's
``.gitignore`` may say ``build/``, which a link of that name would not match. No option
of setuptools does the same: a target that starts a second ``setup.py`` hands it the
same options, and two builds would share one log.

The folder also holds ``near``, links by which the compile cache names the checkout, its
environment and its dependencies (see :mod:`tools.rig.base.near`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import regex as re

from tools.rig.base.errors import unwritable
from tools.rig.base.state import StateRoot

NEAR = "near"


@dataclass(frozen=True)
class Names:
    """How the environment's Python names its build folders, as setuptools does.

    ``platform`` is ``sysconfig.get_platform()`` there, ``tag`` its cache tag (and a
    ``t`` without the GIL). Where they are wrong, the build stays in the checkout.
    """

    platform: str
    tag: str

    @property
    def temp(self) -> str:
        """Folder for objects."""
        return f"temp.{self.platform}-{self.tag}"

    @property
    def lib(self) -> str:
        """Folder for what goes into the wheel."""
        return f"lib.{self.platform}-{self.tag}"

    @property
    def bdist(self) -> str:
        """Folder in which the wheel is put together."""
        return f"bdist.{self.platform}"


@dataclass(frozen=True)
class WorkFolder:
    """A build's lasting folder.

    ``near`` maps a path that compiles may be told to the link for it; ``links`` maps
    places below the checkout to the folders that stand there.
    """

    checkout: Path
    home: Path
    near: Mapping[Path, Path]
    links: Mapping[Path, Path]
    projects: tuple[str, ...] = ()


def variant(profile: str, release: str, compiler: str) -> str:
    """Return the name of a build folder: profile, toolkit and host compiler.

    Objects of two toolkits never lie beside each other, and going back to the first
    costs nothing.
    """
    words = [profile, f"cuda{release}" if release else "", compiler]
    name = "-".join(word for word in words if word)
    return str(re.sub(r"[^A-Za-z0-9._-]+", "-", name))


def plan(
    root: StateRoot,
    place: str,
    name: str,
    checkout: Path,
    names: Names,
    near: Mapping[str, Path],
    projects: Sequence[str] = (),
) -> WorkFolder:
    """Return the folder of a build; nothing is made.

    Parameters
    ----------
    root
        The state root.
    place
        The checkout's short name (:func:`tools.rig.base.state.place_id`).
    name
        See :func:`variant`.
    checkout
        The source tree.
    names
        How the environment's Python names build folders.
    near
        What the compile cache must not see the absolute path of, by short names:
        the environment, the dependencies. The checkout comes by itself.
    projects
        Folders of the checkout in which the target builds a project of its own.
    """
    home = StateRoot(root.path.resolve()).work / place / name
    shapes = (names.temp, names.lib, names.bdist)
    links = {
        Path(project, "build", shape): home / project / "build" / shape
        for project in ("", *projects)
        for shape in shapes
        if (checkout / project).is_dir()
    }
    named = {"src": checkout, **near}
    return WorkFolder(
        checkout,
        home,
        {path: home / NEAR / short for short, path in named.items()},
        links,
        tuple(projects),
    )


def lay_out(work: WorkFolder, root: StateRoot) -> list[str]:
    """Make the folder and the links to it; return a line for each thing to know.

    The build's lock must be held. A real folder of a checkout on the same file system
    moves in, with what was built there, unless this variant has objects already; any
    other is put aside, once. A link that is none of ours, and a folder on a disk that
    knows no links, stay in use as they are.

    Raises
    ------
    StepFailed
        When the state root cannot be written, or somebody else's file is in the way.
    """
    for folder in (root.work, work.home.parent, work.home):
        root.make(folder)
    said = []
    try:
        (work.home / NEAR).mkdir(exist_ok=True)
        for path, link in work.near.items():
            _point(link, path)
        for target in work.links.values():
            target.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise unwritable(work.home, exc) from exc
    for below, target in work.links.items():
        link = work.checkout / below
        try:
            said += _adopt(link, target, below)
        except OSError as exc:
            said.append(f"{link} stays in the checkout: {exc.strerror}")
    try:
        _tidy(work)
    except OSError as exc:
        raise unwritable(Path(exc.filename or work.home), exc) from exc
    return said


def _adopt(link: Path, target: Path, below: Path) -> list[str]:
    """Make `link` lead to `target`; what others put there is kept."""
    said = []
    if link.is_symlink():
        now = Path(os.readlink(link))
        if now == target:
            return []
        if not is_ours(now, below):
            return [f"{link} is a link of your own, to {now}, and stays"]
    link.parent.mkdir(exist_ok=True)
    # first of all: where no link can be made, nothing is moved
    with _new_link(link, target) as fresh:
        if link.is_dir() and not link.is_symlink():
            said += _make_way(link, target)
        os.replace(fresh, link)
    return said


def _make_way(link: Path, target: Path) -> list[str]:
    if not any(link.iterdir()):
        link.rmdir()
        return []
    if not any(target.iterdir()):
        with contextlib.suppress(OSError):
            # an empty folder is replaced, on one file system
            os.rename(link, target)
            return [f"{link} was moved to {target}"]
    aside = link.with_name(f"aside-{secrets.token_hex(2)}.{link.name}")
    os.rename(link, aside)
    return [f"an earlier build folder was put aside: {aside}"]


def is_ours(now: Path, below: Path) -> bool:
    """Say whether a link leads to a work folder, of whatever root, place and variant.

    Parameters
    ----------
    now
        Where the link leads.
    below
        Its place in the checkout.
    """
    count = len(below.parts)
    start, tail = now.parts[:-count], now.parts[-count:]
    return tail == below.parts and len(start) > 3 and start[-3] == "work"


def _point(link: Path, target: Path) -> None:
    if not (link.is_symlink() and Path(os.readlink(link)) == target):
        with _new_link(link, target) as fresh:
            os.replace(fresh, link)


@contextlib.contextmanager
def _new_link(link: Path, target: Path) -> Iterator[Path]:
    """Make a link beside `link`, to be renamed."""
    fresh = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
    fresh.symlink_to(target, target_is_directory=True)
    try:
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)


def _tidy(work: WorkFolder) -> None:
    """Take away what would make a build that goes on here wait, fail or be wrong."""
    for below, folder in work.links.items():
        # never what lies in the checkout or behind a link of the user's
        if below.name.startswith("temp."):
            _tidy_objects(folder)
        elif below.name.startswith("lib."):
            project = below.parent.parent
            _tidy_library(folder, work.checkout / project, bool(project.parts))


def _tidy_objects(folder: Path) -> None:
    for path in _files(folder):
        if path.name == "lock" and (path.parent / "build.ninja").exists():
            # torch waits for ever for the holder of such a file
            path.unlink()
        elif path.suffix == ".o" and not path.lstat().st_size:
            # after a power cut; ninja trusts the date
            path.unlink()


def _tidy_library(folder: Path, project: Path, of_torch: bool) -> None:
    for path in _files(folder):
        if path.suffix == ".so":
            # setuptools compares a library with its sources, not with their headers,
            # and starts no ninja; CMake's are looked after by ninja itself
            gone = of_torch
        else:
            # else a file that left the checkout would be in every wheel to come
            gone = not (project / path.relative_to(folder)).exists()
        if gone:
            path.unlink()


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        for name in names:
            yield Path(place, name)
