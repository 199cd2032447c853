# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A machine that is in order, for the doctor's checks; a test changes one thing."""

from dataclasses import replace
from pathlib import Path

from tools.rig.base import config
from tools.rig.builds import profile as profiles
from tools.rig.builds.candidates import Candidate
from tools.rig.builds.place import PlaceFacts
from tools.rig.builds.toolkit_kit import Recipe
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cuda import Toolkit
from tools.rig.host.gpu import Card, Gpus, Pair
from tools.rig.host.look import Checkout, Disk, Link
from tools.rig.host.memory import Cores, Memory
from tools.rig.host.mounts import Mount
from tools.rig.host.pci import PciCard
from tools.rig.host.programs import Program
from tools.rig.host.pythons import Python
from tools.rig.host.storage import Rates
from tools.rig.host.system import Distribution, Module
from tools.rig.steps.checks.facts import Facts
from tools.rig.steps.checks.probes import Probes

GIB = 1 << 30
SOURCE = Path("/src/fork")
UID = 1000
VOLTA = tuple(range(50, 91, 10))

DEBIAN = Distribution("debian", "12", "Debian GNU/Linux 12 (bookworm)", "bookworm")
FAST = Rates(9000.0, 40000.0, 30000.0, 30000.0, 0.05, 0.2)
NAS = Rates(8.0, 16.0, 16.0, 16.0, 61.0, 0.4)
RECIPE = Recipe("debian", "trixie", "non-free", "12.4", "compiler", ("p",), (), 1)
V100 = Card(0, "Tesla V100-SXM2-16GB", "GPU-0", "0000:3b:00.0", 70, 16 * GIB, 0, ())
ON_BUS = PciCard("0000:3b:00.0", "1db1", "nvidia")


def toolkit(version="12.4.131", sms=VOLTA, origin="PATH", root="/opt/cuda", problem=""):
    """Return a toolkit that was found."""
    place = Path(root)
    return Toolkit(place, place / "bin/nvcc", version, tuple(sms), origin, problem)


def compiler(version="12.2", family="gcc", path="/usr/bin/g++", problem=""):
    """Return a host compiler that was found."""
    return HostCompiler(Path(path), family, version, problem)


def mount(fs="ext4", point="/", source="/dev/sda1", device="8:1"):
    """Return a mounted file system."""
    return Mount(Path(point), fs, source, "rw", device)


def disk(path=SOURCE, fs="ext4", rates=FAST, free=100 * GIB, **more):
    """Return a disk that was looked at."""
    values = {
        "exists": True,
        "owner": UID,
        "writable": True,
        "free_bytes": free,
        "free_inodes": 10_000_000,
        "links": True,
        **more,
    }
    return Disk(Path(path), Path(path), mount(fs), rates=rates, **values)


def two_cards(links=6, p2p="ok"):
    """Return a driver with two V100s and the links between them."""
    other = replace(V100, index=1, uuid="GPU-1", bus="0000:5e:00.0")
    pairs = (Pair(0, 1, links, p2p),)
    return Gpus("present", "", "570.86.10", "12.8", (V100, other), pairs)


def survey(**changes):
    """Return a survey of a checkout of ours on a fast disk."""
    root = Path("/home/me/.local/state/1cat-rig")
    values = {
        "checkout": Checkout(SOURCE, SOURCE, "fork-1234", UID, True, Link("absent")),
        "checkout_disk": disk(),
        "candidates": (Candidate(root, "state folder", disk(root)),),
        "uid": UID,
        "pythons": (Python(Path("/usr/bin/python3.12"), "3.12.4", "PATH"),),
        "wanted": "3.12",
        "need_headers": True,
        **changes,
    }
    return PlaceFacts(**values)


def programs(**versions):
    """Return a finder of programs: every one is there unless its version is None."""
    known = {"uv": "0.13.9", "git": "2.39.5", "cmake": "4.0.1", "ninja": "1.11.1"}
    known |= {"patch": "2.7.6", "ccache": "4.7.5", **versions}

    def find(name, env):
        version = known.get(name)
        if version is None:
            return None
        if version.startswith("!"):
            return Program(name, Path("/usr/bin", name), "", version[1:])
        return Program(name, Path("/usr/bin", name), version)

    return find


def probes(**changes):
    """Return probes of a Debian 12 with one V100, CUDA 12.4 and g++ 12."""
    seen = changes.pop("survey", survey())
    card = Gpus("present", "", "570.86.10", "12.8", (V100,))
    values = {
        "distribution": lambda: DEBIAN,
        "glibc": lambda: "2.36",
        "glibc_headers": lambda: "2.36",
        "wsl": lambda: False,
        "container": lambda: "",
        "module": lambda: Module("570.86.10", "proprietary"),
        "shm_bytes": lambda: 8 * GIB,
        "memory": lambda: Memory(64 * GIB, 60 * GIB, None, "", 60 * GIB),
        "cores": lambda: Cores(8, None, 8),
        "toolkits": lambda env, folder: [toolkit()],
        "compilers": lambda env: [compiler()],
        "brought": lambda folder: [],
        "recipes": lambda owner, parts: [RECIPE],
        "have_dpkg": lambda: True,
        "gpus": lambda: card,
        "pci_cards": lambda: [ON_BUS],
        "program": programs(),
        "disks": lambda question: seen,
        "pythons": lambda question: seen,
        "chosen_root": lambda env: None,
        "stubs": lambda env: [],
        "cudnn": lambda env, environment: [],
        "disk": lambda path: disk(path),
        "text": lambda path: (None, ""),
        "mirrors": lambda distribution: ["http://mirror.invalid/debian"],
        "reach": lambda url: "",
        **changes,
    }
    return Probes(**values)


def settings(**values):
    """Return settings as if given on the command line."""
    return config.resolve(cli=values, env={})


def profile(name="v100-cu128", **changes):
    """Return a profile that needs no more than a compiler of its toolkit."""
    return replace(profiles.load(name), toolkit_parts="compiler", **changes)


def facts(env=None, *, profile=None, settings=None, root=None, absent=False, **changes):
    """Return the facts of a healthy machine with `changes` to its probes."""
    return Facts(
        profile=profile or globals()["profile"](),
        settings=settings or globals()["settings"](),
        env={"PATH": "/usr/bin", "HOME": "/home/me", **(env or {})},
        source=SOURCE,
        absent=absent,
        root=root,
        probes=probes(**changes),
    )
