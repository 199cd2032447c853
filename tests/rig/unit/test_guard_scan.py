# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The scan of what processes map, and of those that may not be looked into."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.rig.support.fakeproc import FakeProc, Mapping_, mount_line
from tests.rig.support.scanned import DEVICE, look, only, targets
from tests.rig.support.scanned import fake as fake
from tools.rig.guard.reigns import Reign
from tools.rig.guard.signs import identity
from tools.rig.guard.targets import FileFact


class TestMaps:
    """Mapped files."""

    def test_free(self, fake: FakeProc) -> None:
        """Nobody uses it: nobody is named and nothing is unknown."""
        fake.add(7)
        result = look(fake)
        assert result.free
        assert (result.users, result.suspects, result.unknown) == ((), (), 0)
        assert result.seconds > 0

    def test_inode(self, fake: FakeProc) -> None:
        """The inode counts whatever the path is."""
        fake.add(7, uid=0, maps=[Mapping_("/elsewhere/x.so", 501)], start=9)
        user = only(look(fake))
        assert (user.pid, user.user, user.start) == (7, "root", 9)
        assert user.maps == ("lib/one.so",)
        assert user.command == "/usr/bin/sleep 9"

    def test_other_device(self, fake: FakeProc) -> None:
        """The same inode on another device is another file."""
        fake.add(7, maps=[Mapping_("/elsewhere/x.so", 501, device="00:1f")])
        assert look(fake).free

    def test_longer_inode(self, fake: FakeProc) -> None:
        """Inodes that only begin like one of ours are not ours."""
        fake.add(7, maps=[Mapping_("/a", 5012), Mapping_("/b", 1234567890)])
        assert look(fake).free

    def test_long_inode(self, fake: FakeProc) -> None:
        """Inodes longer than what is compared at first are found."""
        fake.add(7, maps=[Mapping_("/srv/src/fork/vllm/_C.so", 123456789)])
        assert only(look(fake)).maps == ("vllm/_C.so",)

    def test_anonymous(self, fake: FakeProc) -> None:
        """Mappings without a file are passed over."""
        maps = [Mapping_("", 0), Mapping_("[heap]", 0), Mapping_("/x", 501)]
        fake.add(7, maps=maps)
        assert only(look(fake)).maps == ("lib/one.so",)

    def test_hard_link(self, fake: FakeProc) -> None:
        """A file with several links counts by its path only."""
        fake.add(7, maps=[Mapping_("/cache/linked.so", 502)])
        fake.add(8, maps=[Mapping_("/srv/venvs/one/lib/linked.so", 502)])
        assert only(look(fake)).pid == 8

    @pytest.mark.parametrize(
        ("path", "counts"),
        [
            ("/srv/venvs/one/lib/gone.so (deleted)", True),
            ("/srv/venvs/one/lib/new.so", True),
            ("/srv/venvs/one/lib/a.py", False),
            ("/srv/venvs/one-more/lib/a.so", False),
            ("/srv/src/fork/vllm/_moe.so (deleted)", True),
            ("/srv/src/fork/data.bin", False),
            ("/srv/src/fork/.old/lib/a.so", False),
            ("/memfd:/srv/venvs/one/ (deleted)", False),
        ],
    )
    def test_path(self, fake: FakeProc, path: str, counts: bool) -> None:
        """A file whose inode is not ours any more counts by its place."""
        fake.add(7, maps=[Mapping_(path, 999)])
        assert look(fake).free is not counts

    def test_vague_device(self, fake: FakeProc, tmp_path: Path) -> None:
        """Where one device number covers several volumes the file itself decides."""
        info = (tmp_path / "x.so", tmp_path / "y.so")
        for path in info:
            path.write_text("x")
        same = info[0].stat()
        fact = FileFact(b"/srv/venvs/one/lib/one.so", 1, (same.st_dev, same.st_ino))
        wanted = targets(files={DEVICE: {b"501": fact}}, vague=frozenset({DEVICE}))
        for pid, path in enumerate((*info, tmp_path / "gone.so"), 7):
            fake.add(pid, maps=[Mapping_(str(path), 501)])
        fake.add(20, maps=[Mapping_("/srv/venvs/one/lib/one.so", 501)])
        assert {user.pid for user in look(fake, wanted).users} == {7, 20}


class TestClosed:
    """Processes that may not be looked into."""

    def test_unknown(self, fake: FakeProc) -> None:
        """Without any sign it is counted, not named and not free of doubt."""
        fake.add(7, readable=False)
        fake.add(8, readable=False, cmdline=["vim", "/srv/venvs/one/x"])
        result = look(fake)
        assert result.free
        assert result.unknown == 2

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (["/srv/venvs/one/bin/python", "x"], "was started as"),
            (["/srv/src/fork/.venv/bin/vllm"], "was started as"),
            (["VLLM::EngineCore"], "is a part of a vLLM server"),
            (["python3", "-W", "x", "/srv/venvs/one/bin/vllm"], "runs /srv"),
            (["python3", "/srv/src/fork/serve.py"], "runs /srv"),
            (["python3", "-u", "-m", "vllm.entrypoints.cli"], "runs the module"),
        ],
    )
    def test_suspect(self, fake: FakeProc, words: list[str], why: str) -> None:
        """A command line that all may read makes a suspect."""
        fake.add(7, readable=False, cmdline=words, uid=65534)
        result = look(fake)
        (suspect,) = result.suspects
        assert not result.free
        assert result.unknown == 0
        assert suspect.why[0].startswith(why)
        assert suspect.command == " ".join(words)

    def test_other_environment(self, fake: FakeProc, tmp_path: Path) -> None:
        """A Python that is another environment's for sure is unknown, no suspect."""
        bin_folder = self.environment(tmp_path / "two")
        self.closed(fake, 7, f"{bin_folder}/python")
        result = look(fake, gpu_pids=lambda: {7})
        assert (result.suspects, result.unknown) == ((), 1)

    def test_parts_of_its_server(self, fake: FakeProc, tmp_path: Path) -> None:
        """Parts of a server run what the server runs; orphans may be ours."""
        bin_folder = self.environment(tmp_path / "two")
        self.closed(fake, 7, f"{bin_folder}/python")
        self.closed(fake, 8, "VLLM::EngineCore", parent=7)
        self.closed(fake, 9, "VLLM::Worker_TP0", parent=8)
        self.closed(fake, 10, "VLLM::EngineCore", parent=1)
        self.closed(fake, 11, "/srv/venvs/one/bin/python")
        self.closed(fake, 12, "VLLM::EngineCore", parent=11)
        result = look(fake, gpu_pids=lambda: {8, 9})
        assert [user.pid for user in result.suspects] == [10, 11, 12]
        assert result.unknown == 3

    def test_other_mounts(self, fake: FakeProc, tmp_path: Path) -> None:
        """Where it sees other mounts the same path proves nothing."""
        bin_folder = self.environment(tmp_path / "two")
        words = [f"{bin_folder}/python3.12", "-m", "vllm.entrypoints.cli"]
        fake.add(7, readable=False, cmdline=words, mountinfo=["another"])
        fake.add(8, readable=False, cmdline=words)
        (fake.root / "8/mountinfo").unlink()
        assert [user.pid for user in look(fake).suspects] == [7, 8]

    def test_no_other_environment(self, fake: FakeProc, tmp_path: Path) -> None:
        """Ours under any name, a system's Python and a bare name stay suspects."""
        own = self.environment(tmp_path / "own")
        now = self.environment(tmp_path / "now")
        (tmp_path / "link").symlink_to("own")
        (tmp_path / ".venv").symlink_to("now")
        (tmp_path / "usr/bin").mkdir(parents=True)
        reign = Reign("own", b"/nowhere", identity(now), now=False)
        wanted = targets(bin=identity(own), reign=reign)
        for pid, program in enumerate(
            [
                f"{own}/python",
                f"{tmp_path}/link/bin/python3",
                f"{tmp_path}/.venv/bin/python",
                f"{tmp_path}/usr/bin/python3",
                f"{tmp_path}/gone/bin/python3",
                "two/bin/python",
                "python3",
            ],
            7,
        ):
            self.closed(fake, pid, program)
        found = look(fake, wanted).suspects
        assert [user.pid for user in found] == list(range(7, 14))

    def test_our_script(self, fake: FakeProc, tmp_path: Path) -> None:
        """Another environment's Python with a script of ours stays a suspect."""
        bin_folder = self.environment(tmp_path / "two")
        self.closed(fake, 7, f"{bin_folder}/python", ["/srv/venvs/one/bin/vllm"])
        assert [user.pid for user in look(fake).suspects] == [7]

    @staticmethod
    def environment(folder: Path) -> Path:
        """Make what looks like an environment, and return where its programs are."""
        (folder / "bin").mkdir(parents=True)
        (folder / "pyvenv.cfg").touch()
        return folder / "bin"

    @staticmethod
    def closed(
        fake: FakeProc,
        pid: int,
        program: str,
        rest: Sequence[str] = ("-m", "vllm.x"),
        parent: int = 1,
    ) -> None:
        """Add a process with our mounts that may not be looked into."""
        # a title leaves no arguments behind it
        words = [program] if program.startswith("VLLM::") else [program, *rest]
        line = mount_line("254:0", "/", "/")
        fake.add(pid, readable=False, cmdline=words, mountinfo=[line], parent=parent)

    def test_gpu(self, fake: FakeProc) -> None:
        """Who holds a GPU and may not be looked into is a suspect."""
        fake.add(7, readable=False)
        fake.add(8, readable=False)
        result = look(fake, gpu_pids=lambda: {8, 99})
        assert [user.pid for user in result.suspects] == [8]
        assert result.suspects[0].why == ("computes on a GPU",)
        # 99 is of another pid namespace: it holds a GPU, but we cannot even see it
        assert result.unknown == 2

    def test_gpu_is_not_asked_in_vain(self, fake: FakeProc) -> None:
        """NVML is asked only when somebody may not be looked into."""
        fake.add(7)
        asked = []
        look(fake, gpu_pids=lambda: asked.append(1) or set())
        assert asked == []

    def test_no_memory(self, fake: FakeProc) -> None:
        """Kernel threads and the dead are not unknown, readable or not."""
        fake.add(7, cmdline=[], flags=0x200040, readable=False)
        fake.add(8, cmdline=[], flags=0x200040)
        fake.add(9, state="Z", readable=False)
        fake.add(10, cmdline=["x"], readable=False)
        (fake.root / "10/stat").unlink()
        assert look(fake).unknown == 0

    def test_leaves(self, fake: FakeProc) -> None:
        """A process that leaves while we look is no user and not unknown."""
        fake.add(7)
        (fake.root / "7/maps").unlink()
        result = look(fake)
        assert result.free
        assert result.unknown == 0

    def test_hidden(self, fake: FakeProc) -> None:
        """A /proc that hides others makes the result say so."""
        line = mount_line("0:5", "/", str(fake.root), "proc", "rw,hidepid=2")
        (fake.root / str(fake.own) / "mountinfo").write_text(line + "\n")
        shutil.rmtree(fake.root / "1")
        assert look(fake).blind == ("/proc hides the processes of other users",)
