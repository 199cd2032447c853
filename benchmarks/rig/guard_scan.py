# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How long the scan for users takes, as ratios measured in one run.

    python benchmarks/rig/guard_scan.py [--processes 500] [--mappings 300] [--fake]

Against (1) merely reading the files that the scan reads, and (2) psutil's memory_maps
over the same processes. The processes are real ones by default: children of this one
that sleep and share its mappings. With ``--fake`` they are a folder of files that looks
like /proc: reading those costs next to nothing, since no kernel has to print them, so
there the first ratio says how long the comparing takes and nothing about a machine.

The environment that is looked for lies on the file system that most of the mappings are
of, which is the slowest case: every inode must be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import mmap
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil

from tests.rig.support.fakeproc import FakeProc, Mapping_
from tools.rig.guard import signs
from tools.rig.guard.scan import scan
from tools.rig.guard.targets import Targets
from tools.rig.host import processes

READ_LIMIT = 1.5
PSUTIL_LIMIT = 10.0


def main() -> int:
    """Measure, print the ratios and return 1 when one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=500)
    parser.add_argument("--mappings", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--fake", action="store_true", help="files instead of /proc")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        targets = environment(Path(folder))
        kind = fake if options.fake else real
        with kind(Path(folder), options.processes, options.mappings) as (proc, pids):
            return measured(targets, proc, pids, options.rounds, options.fake)


def measured(
    targets: Targets, proc: Path, pids: Sequence[int], rounds: int, is_fake: bool
) -> int:
    """Run all three in turn and compare the best of each, since machines are busy."""
    times: dict[str, list[float]] = {"read": [], "scan": [], "psutil": []}
    for _ in range(rounds):
        times["read"].append(timed(lambda: read_all(proc)))
        times["scan"].append(timed(lambda: scan(targets, proc=proc)))
    psutil.PROCFS_PATH = str(proc)
    for _ in range(2):
        times["psutil"].append(timed(lambda: [maps_of(pid) for pid in pids]))
    read, scanned, slow = (min(times[k]) for k in times)
    against_read, against_psutil = scanned / read, slow / scanned
    counted = sum(processes.read(f"{proc}/{pid}/maps").count(b"\n") for pid in pids)
    where = "a folder of files" if is_fake else "/proc"
    print(f"{len(pids)} processes in {where}, {counted / len(pids):.0f} mappings each")
    print(f"reading the same files  {read * 1e3:9.1f} ms")
    print(f"scan                    {scanned * 1e3:9.1f} ms")
    print(f"psutil memory_maps      {slow * 1e3:9.1f} ms")
    print(f"scan / reading  = {against_read:.2f}  (limit {READ_LIMIT})")
    print(f"psutil / scan   = {against_psutil:.1f}  (at least {PSUTIL_LIMIT:.0f})")
    # without a kernel behind the files the first ratio has no limit
    fine = is_fake or against_read <= READ_LIMIT
    return 0 if fine and against_psutil >= PSUTIL_LIMIT else 1


def read_all(proc: Path) -> int:
    """Read what the scan reads, with the same calls, and compare nothing."""
    size = 0
    for pid in processes.pids(proc):
        here = f"{proc}/{pid}"
        with contextlib.suppress(OSError):
            size += len(processes.read(here + "/maps"))
            exe = os.readlink(here + "/exe")
            size += len(os.readlink(here + "/cwd")) + len(os.readlink(here + "/ns/mnt"))
            if signs.is_python(exe):
                size += len(processes.read(here + "/cmdline"))
    return size


def maps_of(pid: int) -> int:
    """Return how many mappings psutil finds."""
    return len(psutil.Process(pid).memory_maps(grouped=False))


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def environment(folder: Path) -> Targets:
    """Return an environment of 4000 files that nobody uses."""
    for index in range(4000):
        path = folder / f"venv/lib/d{index % 100}/lib{index}.so"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return Targets.of(folder / "venv")


@contextlib.contextmanager
def real(folder: Path, count: int, mappings: int) -> Iterator[tuple[Path, list[int]]]:
    """Start children that map parts of the system's libraries and sleep."""
    libraries = [
        name
        for name in sorted(glob.glob("/usr/lib/*/lib*.so*"))
        if os.path.isfile(name) and os.path.getsize(name) > 5 * mmap.PAGESIZE
    ]
    have = processes.read("/proc/self/maps").count(b"\n")
    held = []
    for index in range(max(0, mappings - have)):
        name = libraries[index // 4 % len(libraries)]
        fd = os.open(name, os.O_RDONLY)
        part = index % 4
        # neighbours with different rights are not joined to one mapping
        rights = mmap.PROT_READ | (mmap.PROT_EXEC if part % 2 else 0)
        held.append(
            mmap.mmap(
                fd,
                mmap.PAGESIZE,
                flags=mmap.MAP_PRIVATE,
                prot=rights,
                offset=part * mmap.PAGESIZE,
            )
        )
        os.close(fd)
    pids: list[int] = []
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            pids.append(pid)
        yield Path("/proc"), pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


@contextlib.contextmanager
def fake(folder: Path, count: int, mappings: int) -> Iterator[tuple[Path, list[int]]]:
    """Write a folder that looks like /proc, one process in ten a Python."""
    number = folder.stat().st_dev
    device = f"{os.major(number):02x}:{os.minor(number):02x}"
    tree = FakeProc(folder / "proc", own=os.getpid())
    (tree.root / "stat").write_text("btime 1\n")
    pids = []
    for index in range(count):
        maps = [
            Mapping_(f"/usr/lib/lib{part // 5}.so", 10**8 + part // 5, device)
            for part in range(mappings)
        ]
        exe = "/usr/bin/python3.12" if index % 10 == 0 else "/usr/bin/server"
        words = [exe, "-c", "pass"]
        pids.append(
            tree.add(10**6 + index, cmdline=words, exe=exe, maps=maps, smaps=True)
        )
    yield tree.root, pids


if __name__ == "__main__":
    sys.exit(main())
