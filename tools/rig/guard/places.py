# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Under which names a folder is seen: here, through bind mounts, in other containers.

A path that the kernel prints for a process is a path of that process's mounts. The same
folder may have several there, or none. Mount tables tell them all without touching a
disk, so that a dead network mount cannot stop us.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.rig.host.processes import MountEntry


@dataclass(frozen=True)
class Place:
    """A folder inside a file system: ``major:minor`` and the path from its own top."""

    device: str
    path: bytes


def place_of(path: bytes, mounts: Sequence[MountEntry]) -> Place | None:
    """Return where a real path (no links in it) lies; None when no mount holds it."""
    best: MountEntry | None = None
    for mount in mounts:
        # of two mounts at one point the later one is on top
        if below(path, mount.point) is not None and (
            best is None or len(mount.point) >= len(best.point)
        ):
            best = mount
    if best is None:
        return None
    return Place(best.device, joined(best.root, below(path, best.point) or b""))


def names_of(place: Place, mounts: Sequence[MountEntry]) -> tuple[bytes, ...]:
    """Return every path at which these mounts show `place` or a part of it."""
    found = []
    for mount in mounts:
        if mount.device != place.device:
            continue
        rest = below(place.path, mount.root)
        if rest is not None:
            name, shown = joined(mount.point, rest), place
        elif below(mount.root, place.path) is not None:
            # only a folder inside ours is mounted there
            name, shown = mount.point, Place(mount.device, mount.root)
        else:
            continue
        # another mount on top may show something else under that name
        if place_of(name, mounts) == shown:
            found.append(name)
    return tuple(dict.fromkeys(found))


def below(path: bytes, folder: bytes) -> bytes | None:
    """Return the part of `path` after `folder`, b"" for itself; None when outside."""
    if folder == b"/":
        return path[1:]
    if path == folder:
        return b""
    return path[len(folder) + 1 :] if path.startswith(folder + b"/") else None


def joined(folder: bytes, rest: bytes) -> bytes:
    """Return `rest` below `folder`."""
    if not rest:
        return folder
    return (b"/" if folder == b"/" else folder + b"/") + rest
