# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A folder as it looks on a NAS: slow metadata, another owner, and dead when told so.

As a program: ``python slowfs.py SOURCE MOUNTPOINT [--delay-ms N] [--uid N]
[--hang-file PATH]`` passes everything through to SOURCE. In tests: :func:`mounted`.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

READY_S = 20.0
"""Seconds that a mount gets to appear."""


def unavailable() -> str:
    """Return why nothing can be mounted here, or nothing; found out by looking."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no /dev/fuse that we may use"
    if shutil.which("fusermount3") is None:
        return "no fusermount3 (package fuse3)"
    try:
        importlib.import_module("mfusepy")
    except (ImportError, OSError) as exc:
        return f"mfusepy cannot be loaded: {exc}"
    return ""


@contextlib.contextmanager
def mounted(
    source: Path,
    point: Path,
    *,
    delay_ms: float = 0,
    uid: int | None = None,
    hang_file: Path | None = None,
) -> Iterator[Path]:
    """Mount `source` on `point` in a process of its own; unmount whatever happens.

    While `hang_file` exists, every call on the mount waits for ever.
    """
    here = os.fspath(Path(__file__).resolve())
    argv = [sys.executable, here, os.fspath(source), os.fspath(point)]
    argv += ["--delay-ms", str(delay_ms)]
    argv += [] if uid is None else ["--uid", str(uid)]
    argv += [] if hang_file is None else ["--hang-file", os.fspath(hang_file)]
    proc = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + READY_S
        while not _listed(point):
            if proc.poll() is not None or time.monotonic() > deadline:
                proc.kill()
                raise RuntimeError(f"slowfs did not start: {proc.communicate()[1]}")
            time.sleep(0.02)
        yield point
    finally:
        if hang_file is not None:
            hang_file.unlink(missing_ok=True)
        for _ in range(100):
            if not _listed(point):
                break
            subprocess.run(
                ["fusermount3", "-u", "-q", os.fspath(point)],
                check=False,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(0.05)
        else:
            subprocess.run(["fusermount3", "-u", "-z", os.fspath(point)], check=False)
        try:
            proc.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            proc.kill()
            proc.communicate()


def _listed(point: Path) -> bool:
    name = os.fspath(point).replace("\\", "\\134").replace(" ", "\\040")
    table = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    return any(f" {name} " in line and "slowfs" in line for line in table.splitlines())


def _serve(args: argparse.Namespace) -> None:
    import mfusepy

    top = os.path.realpath(args.source)

    def real(path: str) -> str:
        return top + path

    def slow(call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def wrapped(*args_: Any, **kwargs: Any) -> Any:
            while args.hang_file and os.path.exists(args.hang_file):
                time.sleep(0.05)
            time.sleep(args.delay_ms / 1000)
            return call(*args_, **kwargs)

        return wrapped

    class Passing(mfusepy.Operations):  # type: ignore[misc]  # mfusepy has no types
        use_ns = True

        @slow
        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            st = os.lstat(real(path))
            names = ("st_mode", "st_nlink", "st_size", "st_gid", "st_uid")
            out = {name: getattr(st, name) for name in names}
            out |= {n: getattr(st, f"{n}_ns") for n in ("st_atime", "st_mtime")}
            out["st_ctime"] = st.st_ctime_ns
            if args.uid is not None:
                out["st_uid"] = args.uid
            return out

        @slow
        def create(self, path: str, mode: int, fi: Any = None) -> int:
            return os.open(real(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

        @slow
        def open(self, path: str, flags: int) -> int:
            return os.open(real(path), flags & ~os.O_APPEND)

        @slow
        def mkdir(self, path: str, mode: int) -> int:
            os.mkdir(real(path), mode)
            return 0

        @slow
        def rmdir(self, path: str) -> int:
            os.rmdir(real(path))
            return 0

        @slow
        def unlink(self, path: str) -> int:
            os.unlink(real(path))
            return 0

        @slow
        def rename(self, old: str, new: str) -> int:
            os.rename(real(old), real(new))
            return 0

        @slow
        def symlink(self, target: str, source: str) -> int:
            os.symlink(source, real(target))
            return 0

        @slow
        def link(self, target: str, source: str) -> int:
            os.link(real(source), real(target))
            return 0

        @slow
        def readlink(self, path: str) -> str:
            return os.readlink(real(path))

        @slow
        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", *os.listdir(real(path))]

        @slow
        def statfs(self, path: str) -> dict[str, int]:
            st = os.statvfs(real(path))
            names = [n for n in dir(st) if n.startswith("f_") and n != "f_fsid"]
            return {name: getattr(st, name) for name in names}

        @slow
        def chmod(self, path: str, mode: int) -> int:
            os.chmod(real(path), mode)
            return 0

        def chown(self, path: str, uid: int, gid: int) -> int:
            raise mfusepy.FuseOSError(errno.EPERM)

        @slow
        def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
            os.utime(real(path), ns=times)
            return 0

        @slow
        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            os.truncate(real(path), length)
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(fh, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            return os.pwrite(fh, data, offset)

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            os.fsync(fh)
            return 0

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

    options: dict[str, Any] = {"fsname": "nas-slowfs", "subtype": "slowfs"}
    if os.geteuid() == 0:
        options["allow_other"] = True
    mfusepy.FUSE(Passing(), args.mountpoint, foreground=True, **options)


def main() -> None:
    """Mount and serve until unmounted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("mountpoint")
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--hang-file")
    _serve(parser.parse_args())


if __name__ == "__main__":
    main()
