# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Reading /proc, from a tree of our own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.rig.support.fakeproc import FakeProc, mount_line
from tools.rig.host import processes


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    """Give a tree with init and ourselves."""
    return FakeProc(tmp_path / "proc")


class TestStat:
    """The facts that tell processes apart."""

    def test_name_with_brackets(self, fake: FakeProc) -> None:
        """A program may call itself what it likes."""
        fake.add(7, cmdline=["/bin/a) R 1 (b"], parent=3, start=77)
        assert processes.stat(7, fake.root) == processes.Stat("S", 3, 7, 0x400000, 77)
        assert processes.start_time(7, fake.root) == 77

    def test_gone(self, fake: FakeProc) -> None:
        """A process that is not there has no facts, and that is no error."""
        assert processes.stat(7, fake.root) is None
        assert processes.start_time(7, fake.root) is None
        assert processes.cmdline(7, fake.root) == []
        assert processes.environ(7, fake.root) is None
        assert processes.uid(7, fake.root) is None
        assert processes.name(7, fake.root) == ""
        assert processes.mounts(7, fake.root) == []

    def test_cut_short(self, fake: FakeProc) -> None:
        """Nonsense is unknown, not a crash."""
        fake.add(7)
        (fake.root / "7/stat").write_text("7 (a) S")
        assert processes.stat(7, fake.root) is None

    @pytest.mark.parametrize(
        ("state", "flags", "memory"),
        [("S", 0, True), ("Z", 0, False), ("X", 0, False), ("S", 0x200000, False)],
    )
    def test_memory(self, fake: FakeProc, state: str, flags: int, memory: bool) -> None:
        """Kernel threads and the dead map nothing."""
        fake.add(7, state=state, flags=flags)
        facts = processes.stat(7, fake.root)
        assert facts is not None
        assert facts.has_memory is memory


class TestAlive:
    """A number alone proves nothing."""

    def test_same(self, fake: FakeProc) -> None:
        """The recorded start time makes it the recorded process."""
        fake.add(7, start=5)
        assert processes.alive(7, 5, fake.root)
        assert processes.alive(7, None, fake.root)

    def test_reused(self, fake: FakeProc) -> None:
        """Another start time is another process."""
        fake.add(7, start=6)
        assert not processes.alive(7, 5, fake.root)

    def test_dead(self, fake: FakeProc) -> None:
        """Neither a zombie nor nobody is alive."""
        fake.add(7, state="Z")
        assert not processes.alive(7, 100, fake.root)
        assert not processes.alive(8, 100, fake.root)

    def test_ourselves(self) -> None:
        """The real /proc knows this process."""
        assert processes.alive(os.getpid(), processes.start_time(os.getpid()))


class TestWords:
    """Arguments, environment and user."""

    def test_cmdline(self, fake: FakeProc) -> None:
        """Empty arguments in the middle stay, the tail of a set title goes."""
        fake.add(7, cmdline=["a", "", "b c"])
        assert processes.cmdline(7, fake.root) == ["a", "", "b c"]
        (fake.root / "7/cmdline").write_bytes(b"VLLM::EngineCore\0\0\0\0")
        assert processes.cmdline(7, fake.root) == ["VLLM::EngineCore"]
        (fake.root / "7/cmdline").write_bytes(b"")
        assert processes.cmdline(7, fake.root) == []

    def test_environ(self, fake: FakeProc) -> None:
        """Values keep their equals signs; words without one are no variables."""
        fake.add(7, environ={"A": "1=2", "B": ""})
        (fake.root / "7/environ").write_bytes(b"A=1=2\0B=\0junk\0")
        assert processes.environ(7, fake.root) == {"A": "1=2", "B": ""}
        assert processes.variable(7, "A", fake.root) == "1=2"
        assert processes.variable(7, "junk", fake.root) == ""
        assert processes.variable(8, "A", fake.root) == ""

    def test_user(self, fake: FakeProc) -> None:
        """The real user id is read, and named where it has a name."""
        fake.add(7, uid=0)
        assert processes.uid(7, fake.root) == 0
        assert processes.user_name(0) == "root"
        assert processes.user_name(3999999999) == "3999999999"
        assert processes.user_name(None) == "?"

    def test_boot_id(self, fake: FakeProc) -> None:
        """The id of the boot is one word; without it there is none."""
        assert processes.boot_id(fake.root) == "boot-1"
        assert processes.boot_id(fake.root / "none") == ""


class TestTree:
    """Who started whom."""

    def test_ancestors(self, fake: FakeProc) -> None:
        """The chain goes up to the first process and ends there."""
        fake.add(20, parent=1)
        fake.add(30, parent=20)
        assert processes.ancestors(30, fake.root) == {30, 20, 1}

    def test_loop(self, fake: FakeProc) -> None:
        """A parent read while numbers were used again cannot hold us for ever."""
        fake.add(20, parent=30)
        fake.add(30, parent=20)
        assert processes.ancestors(30, fake.root) == {30, 20}

    def test_orphan(self, fake: FakeProc) -> None:
        """A parent outside this pid namespace ends the chain."""
        fake.add(30, parent=99)
        assert processes.ancestors(30, fake.root) == {30, 99}

    def test_pids(self, fake: FakeProc) -> None:
        """Only numbers are processes."""
        assert sorted(processes.pids(fake.root)) == [1, fake.own]


class TestMounts:
    """The table of mounts."""

    def test_parsed(self, fake: FakeProc) -> None:
        """Escaped blanks become blanks, and lines that are none are passed over."""
        lines = [
            mount_line("8:1", "/", "/a\\040b\\134"),
            "nonsense",
            mount_line("0:31", "/x", "/c", "overlay", "lowerdir=/l"),
        ]
        fake.add(7, mountinfo=lines)
        first, second = processes.mounts(7, fake.root)
        assert (first.device, first.root, first.point) == ("8:1", b"/", b"/a b\\")
        assert (second.fs, second.options) == ("overlay", "lowerdir=/l")

    @pytest.mark.parametrize(
        ("options", "hidden"),
        [
            ("rw", False),
            ("rw,hidepid=1", False),
            ("rw,hidepid=2", True),
            ("rw,gid=5,hidepid=invisible", True),
        ],
    )
    def test_hidden(self, fake: FakeProc, options: str, hidden: bool) -> None:
        """A /proc that hides other users says so in its options."""
        line = mount_line("0:5", "/", str(fake.root), "proc", options)
        (fake.root / str(fake.own) / "mountinfo").write_text(line + "\n")
        assert processes.blind_spots(fake.own, fake.root) == ()
        shutil.rmtree(fake.root / "1")
        assert bool(processes.blind_spots(fake.own, fake.root)) is hidden

    @pytest.mark.parametrize(
        ("space", "blind"), [("pid:[4026531836]", False), ("pid:[4026532000]", True)]
    )
    def test_container(self, fake: FakeProc, space: str, blind: bool) -> None:
        """In a pid namespace of its own a process does not see the machine."""
        (fake.root / str(fake.own) / "ns/pid").symlink_to(space)
        assert bool(processes.blind_spots(fake.own, fake.root)) is blind

    def test_link(self, fake: FakeProc) -> None:
        """A link that may not be read is unknown."""
        assert processes.link(f"{fake.root}/self") == str(fake.own)
        assert processes.link(f"{fake.root}/none") is None
