# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Looks at disks that may hang, in a process that may be left behind.

Started by :mod:`tools.rig.host.look` as ``python -I look_child.py`` with one JSON
request on standard input. Before it touches a place it prints ``@ <place>``, so that
the last such line names the place where it hangs; its last line is the JSON answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))

from tools.rig.base.state import SENTINEL, home_of, place_id
from tools.rig.host import storage

Touch = Callable[[str], None]

PYPROJECT_LIMIT = 1 << 20
"""Bytes of a file of settings that are read at most."""

MOST_LINKS = 40
"""Links that are followed one inside the other, as in the kernel."""


def answer(request: dict[str, Any], touch: Touch) -> dict[str, Any]:
    """Do what `request` asks: ``disk``, ``checkout``, ``link`` or ``read``.

    Parameters
    ----------
    request
        ``op`` and its parameters.
    touch
        Called with each place before it is touched.
    """
    operations = {"disk": _disk, "checkout": _checkout, "link": _link, "read": _text}
    return operations[request["op"]](request, touch)


def resolve(path: str, touch: Touch, links: int = 0) -> str:
    """Return the real path of `path`, telling each place on the way.

    Raises
    ------
    OSError
        For a loop of links, and for what may not be looked at. What does not exist is
        no error.
    """
    here = "/"
    for part in Path(os.path.normpath(os.path.abspath(path))).parts[1:]:
        step = os.path.join(here, part)
        touch(step)
        try:
            mode = os.lstat(step).st_mode
        except (FileNotFoundError, NotADirectoryError):
            mode = 0
        if stat.S_ISLNK(mode):
            if links >= MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), step)
            step = resolve(os.path.join(here, os.readlink(step)), touch, links + 1)
        here = step
    return here


def _disk(request: dict[str, Any], touch: Touch) -> dict[str, Any]:
    real = Path(resolve(request["path"], touch))
    base = storage.nearest_existing(real)
    mount = storage.mount_of(base)
    there = real.is_dir()
    out: dict[str, Any] = {
        "real": str(real),
        "exists": there,
        "problem": "",
        "owner": storage.owner(real) if there else None,
        "made": _made(real),
        "empty": not (there and os.listdir(real)),
        "mount": dataclasses.asdict(mount) | {"point": str(mount.point)},
        "rates": None,
        "links": None,
    }
    out["free_bytes"], out["free_inodes"] = storage.free(base)
    out["writable"] = os.access(base, os.W_OK | os.X_OK)
    if os.path.lexists(real) and not there:
        out["problem"], out["writable"] = "it is not a folder", False
    elif request["measure_s"] and storage.kind(mount.fs) not in request["skip"]:
        try:
            out["links"] = _can_link(base)
            if mount.device not in request["known"]:
                rates = storage.measure(base, request["measure_s"])
                out["rates"] = dataclasses.asdict(rates)
        except OSError as exc:
            out["problem"], out["writable"] = exc.strerror or str(exc), False
    return out


def _made(folder: Path) -> bool:
    """Say whether the suite made a folder: its mark, or that of environments in it."""
    marks = (folder / SENTINEL, folder / "venvs" / SENTINEL)
    return any(mark.is_file() for mark in marks)


def _can_link(base: Path) -> bool:
    place = base / f".rig-probe-{secrets.token_hex(4)}"
    place.mkdir()
    try:
        (place / "link").symlink_to("nowhere")
    except OSError:
        return False
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return True


def _checkout(request: dict[str, Any], touch: Touch) -> dict[str, Any]:
    real = resolve(request["path"], touch)
    link = os.path.join(real, request["link"])
    touch(link)
    out: dict[str, Any] = {
        "real": real,
        "exists": os.path.isdir(real),
        "owner": os.stat(real).st_uid if os.path.isdir(real) else None,
        "place": place_id(Path(real)),
        "pyproject": "",
        "writable": os.access(real, os.W_OK | os.X_OK),
    }
    out["link"] = _state(link, touch)
    with (
        contextlib.suppress(OSError),
        open(
            os.path.join(real, "pyproject.toml"), encoding="utf-8", errors="replace"
        ) as fh,
    ):
        out["pyproject"] = fh.read(PYPROJECT_LIMIT)
    return out


def _state(link: str, touch: Touch) -> dict[str, Any]:
    try:
        mode = os.lstat(link).st_mode
    except FileNotFoundError:
        return {"kind": "absent", "target": "", "real": "", "exists": False}
    if not stat.S_ISLNK(mode):
        kind = "directory" if stat.S_ISDIR(mode) else "file"
        return {"kind": kind, "target": "", "real": link, "exists": True}
    target = os.readlink(link)
    pointed = os.path.join(os.path.dirname(link), target)
    try:
        real = resolve(pointed, touch)
    except OSError:
        real = pointed
    return {
        "kind": "link",
        "target": target,
        "real": real,
        "exists": os.path.exists(real),
        "made": _own(home_of(Path(real))),
    }


def _own(environment: Path) -> bool:
    """Say whether an environment lies, or lay, in a state root that this user made."""
    root = environment.parent.parent
    try:
        mine = environment.parent.name == "venvs" and _made(root)
        return mine and root.stat().st_uid == os.getuid()
    except OSError:
        # closed to us, so it is another user's
        return False


def _link(request: dict[str, Any], touch: Touch) -> dict[str, Any]:
    """Make a symbolic link by one call, so that none is half-made."""
    link, instead = request["link"], request.get("instead")
    touch(link)
    try:
        if instead:
            _put_link(request["target"], link, instead)
        else:
            os.symlink(request["target"], link)
    except OSError as exc:
        return {"made": False, "problem": exc.strerror or str(exc)}
    return {"made": True, "problem": ""}


def _put_link(target: str, link: str, instead: str) -> None:
    """Replace a link that still has the target `instead`."""
    if os.readlink(link) != instead:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), link)
    temp = os.path.join(os.path.dirname(link), f".rig-link-{secrets.token_hex(4)}")
    os.symlink(target, temp)
    try:
        os.replace(temp, link)
    except OSError:
        os.unlink(temp)
        raise


def _text(request: dict[str, Any], touch: Touch) -> dict[str, Any]:
    real = resolve(request["path"], touch)
    try:
        return {"text": Path(real).read_text(encoding="utf-8"), "problem": ""}
    except FileNotFoundError:
        return {"text": None, "problem": ""}
    except (OSError, ValueError) as exc:
        return {"text": None, "problem": str(exc)}


def main() -> int:
    """Answer the request on standard input."""

    def touch(place: str) -> None:
        print("@", json.dumps(place), flush=True)

    try:
        out = answer(json.load(sys.stdin), touch)
    except OSError as exc:
        out = {"error": str(exc)}
    print(json.dumps(out), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
