# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The scan over a tree of processes of our own."""

from __future__ import annotations

import mmap
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig.support.fakeproc import FakeProc, Mapping_, mount_line
from tools.rig.guard.places import Place, below, joined, names_of, place_of
from tools.rig.guard.scan import ScanResult, User, scan
from tools.rig.guard.signs import Names, arguments, is_python, one_line, script
from tools.rig.guard.targets import (
    FileFact,
    Targets,
    is_library,
    maps_device,
    may_be_run,
)
from tools.rig.host.processes import MountEntry

VENV = Path("/srv/venvs/one")
CHECKOUT = Path("/srv/src/fork")
DEVICE = b"fe:00"


def targets(**changes: object) -> Targets:
    """Return an environment and a checkout with one library each."""
    one = FileFact(b"/srv/venvs/one/lib/one.so", 1, (1, 501))
    linked = FileFact(b"/srv/venvs/one/lib/linked.so", 3, (1, 502))
    own = FileFact(b"/srv/src/fork/vllm/_C.so", 1, (1, 123456789))
    plain = Targets(
        venv=VENV,
        checkout=CHECKOUT,
        files={DEVICE: {b"501": one, b"502": linked, b"123456789": own}},
        spellings=(b"/srv/venvs/one", b"/srv/src/fork/.venv"),
        others=(b"/srv/src/fork/.old",),
        venv_place=Place("254:0", b"/srv/venvs/one"),
        checkout_place=Place("254:0", b"/srv/src/fork"),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # names are checked by replace


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    """Give a tree with init and ourselves, whose root is mounted once."""
    tree = FakeProc(tmp_path / "proc")
    line = mount_line("254:0", "/", "/")
    (tree.root / str(tree.own) / "mountinfo").write_text(line + "\n")
    return tree


def look(
    fake: FakeProc, wanted: Targets | None = None, **options: object
) -> ScanResult:
    """Scan the tree as its process `own`."""
    return scan(
        wanted or targets(),
        proc=fake.root,
        self_pid=fake.own,
        **options,  # type: ignore[arg-type]  # passed through
    )


def only(result: ScanResult) -> User:
    """Return the one user that was found."""
    (user,) = result.users
    return user


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


class TestNamespaces:
    """Processes that see other mounts."""

    def test_other_path(self, fake: FakeProc) -> None:
        """A deleted file counts under the path that the container has for ours."""
        lines = [
            mount_line("0:40", "/", "/"),
            mount_line("254:0", "/srv/venvs", "/mnt"),
        ]
        maps = [Mapping_("/mnt/one/lib/gone.so (deleted)", 999)]
        fake.add(7, namespace="mnt:[2]", mountinfo=lines, maps=maps)
        fake.add(8, namespace="mnt:[2]", mountinfo=lines, cwd="/mnt/one/lib")
        users = look(fake).users
        assert [user.pid for user in users] == [7, 8]
        assert users[1].why == ("works in /mnt/one/lib",)

    def test_part_mounted(self, fake: FakeProc) -> None:
        """A container that has only a folder inside ours is seen."""
        lines = [
            mount_line("0:40", "/", "/"),
            mount_line("254:0", "/srv/venvs/one/lib", "/lib2"),
        ]
        maps = [Mapping_("/lib2/gone.so (deleted)", 999)]
        fake.add(7, namespace="mnt:[2]", mountinfo=lines, maps=maps)
        assert only(look(fake)).pid == 7

    def test_same_path(self, fake: FakeProc) -> None:
        """What a container has at our path, but elsewhere, is not ours."""
        maps = [Mapping_("/srv/venvs/one/lib/x.so", 999, device="00:28")]
        lines = [mount_line("0:40", "/", "/")]
        fake.add(7, namespace="mnt:[2]", mountinfo=lines, maps=maps)
        python = ["/srv/venvs/one/bin/python"]
        fake.add(
            8,
            namespace="mnt:[2]",
            mountinfo=lines,
            cmdline=python,
            exe="/usr/bin/python3.12",
            root="/nonexistent",
        )
        assert look(fake).free

    def test_hidden_below(self) -> None:
        """A mount on top of a path takes the name away from what is below it."""
        mounts = [
            MountEntry("254:0", b"/", b"/", "ext4", ""),
            MountEntry("254:0", b"/other", b"/srv/venvs/one", "ext4", ""),
        ]
        assert names_of(Place("254:0", b"/srv/venvs/one"), mounts) == ()
        assert names_of(Place("254:0", b"/other/x"), mounts) == (
            b"/other/x",
            b"/srv/venvs/one/x",
        )

    def test_subvolume(self) -> None:
        """The place of a path counts from the top of its file system."""
        mounts = [
            MountEntry("0:31", b"/@root", b"/", "btrfs", ""),
            MountEntry("0:31", b"/@home", b"/home", "btrfs", ""),
        ]
        assert place_of(b"/home/a", mounts) == Place("0:31", b"/@home/a")
        assert place_of(b"/homes", mounts) == Place("0:31", b"/@root/homes")
        assert place_of(b"/a", []) is None

    def test_paths(self) -> None:
        """A folder is not below one whose name only begins the same."""
        assert below(b"/a/b", b"/a") == b"b"
        assert below(b"/ab", b"/a") is None
        assert below(b"/a", b"/a") == b""
        assert below(b"/a", b"/") == b"a"
        assert joined(b"/", b"a") == b"/a"
        assert joined(b"/a", b"") == b"/a"


class TestSigns:
    """Programs, folders and interpreters."""

    def test_program(self, fake: FakeProc) -> None:
        """A program inside counts even when its file is gone."""
        fake.add(7, exe="/srv/venvs/one/bin/ninja (deleted)")
        assert only(look(fake)).why == ("runs /srv/venvs/one/bin/ninja (deleted)",)

    @pytest.mark.parametrize(
        ("cwd", "counts"),
        [
            ("/srv/venvs/one", True),
            ("/srv/venvs/one/bin", True),
            ("/srv/venvs/one-more", False),
            ("/srv/src/fork", False),
        ],
    )
    def test_folder(self, fake: FakeProc, cwd: str, counts: bool) -> None:
        """Working in the environment counts; a shell in the checkout does not."""
        fake.add(7, cwd=cwd)
        assert look(fake).free is not counts

    @pytest.mark.parametrize(
        ("program", "environ", "why"),
        [
            ("/srv/venvs/one/bin/python", {}, "was started as"),
            ("/srv/src/fork/.venv/bin/python3", {}, "was started as"),
            ("python", {"VIRTUAL_ENV": "/srv/venvs/one"}, "has VIRTUAL_ENV="),
            ("python", {"VIRTUAL_ENV": "/srv/src/fork/.venv/"}, "has VIRTUAL_ENV="),
            ("bin/python", {"VIRTUAL_ENV": "/srv/venvs/one"}, "has VIRTUAL_ENV="),
            ("python", {"VIRTUAL_ENV": "/srv/venvs/two"}, ""),
            ("python", {"PATH": "relative:/nonexistent"}, ""),
            ("/usr/bin/python3", {}, ""),
            ("", {}, ""),
        ],
    )
    def test_interpreter(
        self, fake: FakeProc, program: str, environ: dict[str, str], why: str
    ) -> None:
        """A Python tells by its first argument or by VIRTUAL_ENV."""
        words = [program, "-c", "pass"] if program else []
        fake.add(
            7,
            cmdline=words,
            exe="/usr/bin/python3.12",
            environ=environ,
            maps=[Mapping_("/usr/bin/python3.12", 77)],
        )
        found = look(fake).users
        assert [user.why[0].startswith(why) for user in found] == [True] * bool(why)

    def test_other_environment(self, fake: FakeProc, tmp_path: Path) -> None:
        """A Python of another environment that inherited VIRTUAL_ENV is not ours."""
        (tmp_path / "two/bin").mkdir(parents=True)
        (tmp_path / "two/bin/python").touch()
        (tmp_path / "two/pyvenv.cfg").touch()
        env = {"VIRTUAL_ENV": str(VENV), "PATH": f"{tmp_path}/none:{tmp_path}/two/bin"}
        for pid, program in ((7, f"{tmp_path}/two/bin/python"), (8, "python")):
            fake.add(pid, cmdline=[program], exe="/usr/bin/python3.12", environ=env)
        assert look(fake).free

    def test_folder_of_programs(self, fake: FakeProc, tmp_path: Path) -> None:
        """A Python that was started through an unknown link is ours."""
        (tmp_path / "real/bin").mkdir(parents=True)
        (tmp_path / "link").symlink_to("real")
        info = (tmp_path / "real/bin").stat()
        wanted = targets(bin=(info.st_dev, info.st_ino))
        for pid, program, cwd in (
            (7, f"{tmp_path}/link/bin/python", "/"),
            (8, "link/bin/python", str(tmp_path)),
        ):
            fake.add(pid, cmdline=[program], exe="/usr/bin/python3", cwd=cwd)
        assert [user.pid for user in look(fake, wanted).users] == [7, 8]

    def test_innocent(self, fake: FakeProc) -> None:
        """An editor, a search and a shell with the path in their arguments are free."""
        path = "/srv/venvs/one/lib/one.so"
        fake.add(7, cmdline=["vim", path], exe="/usr/bin/vim")
        fake.add(8, cmdline=["grep", "-r", "x", str(VENV)], exe="/usr/bin/grep")
        fake.add(9, cmdline=["bash"], exe="/bin/bash", environ={"VIRTUAL_ENV": path})
        fake.add(10, cmdline=["python3", "-c", "x", path], exe="/usr/bin/python3")
        assert look(fake).free

    def test_ourselves(self, fake: FakeProc) -> None:
        """We and those who started us are left out."""
        fake.add(30, maps=[Mapping_("/x", 501)])
        fake.add(31, parent=30, maps=[Mapping_("/x", 501)])
        result = scan(targets(), proc=fake.root, self_pid=31)
        assert result.free

    @pytest.mark.parametrize(
        ("program", "python"),
        [
            ("/usr/bin/python", True),
            ("/opt/python3.13t", True),
            ("python3.12 (deleted)", True),
            ("pypy3.10", True),
            ("/usr/bin/python3-config", False),
            ("pythonista", False),
        ],
    )
    def test_is_python(self, program: str, python: bool) -> None:
        """Interpreters are known by their names."""
        assert is_python(program) is python


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


class TestWords:
    """Command lines."""

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (["python", "a.py", "-m", "b"], "a.py"),
            (["python", "-Im", "b"], "b"),
            (["python", "-X", "dev", "-m", "b"], "b"),
            (["python", "-m"], ""),
            (["python", "-c", "x", "a.py"], ""),
            (["python"], ""),
        ],
    )
    def test_script(self, words: list[str], found: str) -> None:
        """What an interpreter runs is told from its own options and its arguments."""
        assert script(words) == found

    def test_no_words(self) -> None:
        """An empty command line is no sign."""
        assert arguments([], Names((b"/a",))) == ""

    def test_secrets(self, fake: FakeProc) -> None:
        """Secrets, line breaks and escapes of a command do not reach a terminal."""
        words = ["serve", "a\nb", "\x1b[31m", "--api-key", "abc"]
        fake.add(7, cmdline=words, maps=[Mapping_("/x", 501)])
        assert only(look(fake)).command == "serve a b  [31m --api-key ***"
        assert one_line(" ok\u202e ") == "ok"

    def test_without_arguments(self, fake: FakeProc) -> None:
        """A program without arguments is named as the kernel names it."""
        fake.add(7, cmdline=["x"], maps=[Mapping_("/x", 501)])
        (fake.root / "7/cmdline").write_bytes(b"")
        assert only(look(fake)).command == "[x]"


class TestTargets:
    """What is looked for."""

    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        """Give a checkout with an environment beside it and others inside."""
        for name in (
            "env/bin/python",
            "env/lib/a.so",
            "env/lib/a.py",
            "fork/vllm/_C.so",
            "fork/vllm/_C.py",
            "fork/.git/x.so",
            "fork/.deps/y.so",
            "fork/.old/lib/z.so",
            "fork/.old/pyvenv.cfg",
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("x")
        (tmp_path / "fork/.venv").symlink_to("../env")
        (tmp_path / "fork/link.so").symlink_to("vllm/_C.so")
        return tmp_path

    def names(self, found: Targets) -> set[str]:
        """Return the names of all files that are looked for."""
        return {
            os.path.basename(os.fsdecode(fact.path))
            for facts in found.files.values()
            for fact in facts.values()
        }

    def test_walk(self, tree: Path) -> None:
        """Programs and libraries of the environment, libraries of the checkout."""
        found = Targets.of(tree / "fork/.venv", tree / "fork")
        assert self.names(found) == {"python", "a.so", "_C.so"}
        assert found.venv == tree / "env"
        assert os.fsencode(tree / "fork/.venv") in found.spellings
        assert found.others == (os.fsencode(tree / "fork/.old"),)
        assert found.bin is not None

    def test_environment_inside(self, tree: Path) -> None:
        """An environment inside the checkout is walked once and is no other one."""
        found = Targets.of(tree / "fork/.old", tree / "fork")
        assert self.names(found) == {"z.so", "_C.so"}
        assert found.others == ()
        assert found.shown(os.fsencode(tree / "fork/.old/lib/z.so")) == "lib/z.so"
        assert found.shown(b"/x/y.so") == "/x/y.so"

    def test_none(self, tmp_path: Path) -> None:
        """An environment that does not exist yet has no files and no users."""
        found = Targets.of(tmp_path / "none")
        assert not found.files
        assert found.bin is None
        assert found.checkout_place is None

    def test_empty_file(self, tmp_path: Path) -> None:
        """A file that cannot be mapped leaves the device to stat(2)."""
        (tmp_path / "e").mkdir()
        (tmp_path / "e/a.so").touch()
        (device,) = Targets.of(tmp_path / "e").files
        number = (tmp_path / "e").stat().st_dev
        assert device == b"%02x:%02x" % (os.major(number), os.minor(number))
        assert maps_device(tmp_path / "e/a.so") is None
        assert maps_device(tmp_path / "none") is None

    def test_device(self, tmp_path: Path) -> None:
        """The device is the one that maps prints while the file is mapped."""
        (tmp_path / "a.so").write_text("x")
        with (
            (tmp_path / "a.so").open("rb") as fh,
            mmap.mmap(fh.fileno(), 1, access=mmap.ACCESS_READ),
        ):
            table = Path("/proc/self/maps").read_bytes()
        (line,) = (row for row in table.splitlines() if b"/a.so" in row)
        assert maps_device(tmp_path / "a.so") == line.split()[3]

    def test_names(self) -> None:
        """Text is never run from; libraries carry their suffix anywhere."""
        assert may_be_run(b"ninja")
        assert not may_be_run(b"x.py")
        assert is_library(b"libc.so.6")
        assert is_library(b"_C.abi3.so")
        assert not is_library(b"x.soap")
