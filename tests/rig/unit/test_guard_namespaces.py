# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The scan of processes that see other mounts than we do."""

from __future__ import annotations

from tests.rig.support.fakeproc import FakeProc, Mapping_, mount_line
from tests.rig.support.scanned import fake as fake
from tests.rig.support.scanned import look, only
from tools.rig.guard.places import Place, below, joined, names_of, place_of
from tools.rig.host.processes import MountEntry


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
