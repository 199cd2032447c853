# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Memory and processors of the machine, and of cgroups of both versions."""

import pytest

from tools.rig.host import memory

GIB = 1 << 30
MEMINFO = "MemTotal:  16777216 kB\nMemAvailable:  12582912 kB\nHugePages_Total:  3\n"
NO_LIMIT_V1 = "9223372036854771712"


class Machine:
    """A folder with a /proc and with mounted cgroups."""

    def __init__(self, top):
        self.proc = top / "proc"
        self.groups = top / "cgroup"
        self.write(self.proc / "meminfo", MEMINFO)
        self.lines = []
        self.mounts = ["22 27 0:21 / /proc rw - proc proc rw"]

    def write(self, path, text):
        """Write a file and the folders above it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def v2(self, path, root="/"):
        """Mount version 2 and put this process into the group `path`."""
        self.lines.append(f"0::{path}")
        self.mounts.append(
            f"31 23 0:28 {root} {self._point('')} rw shared:4 - cgroup2 cgroup2 rw"
        )
        self.finish()

    def v1(self, controllers, path, root="/"):
        """Mount a hierarchy of version 1 and put this process into `path`."""
        self.lines.append(f"4:{controllers}:{path}")
        point = self._point(controllers)
        self.mounts.append(
            f"35 31 0:32 {root} {point} rw - cgroup cgroup rw,{controllers}"
        )
        self.finish()

    def _point(self, name):
        point = self.groups / name
        point.mkdir(parents=True, exist_ok=True)
        return str(point).replace(" ", "\\040")

    def group(self, path, **files):
        """Write a group's files; two underscores stand for a dot."""
        for name, text in files.items():
            self.write(self.groups / path / name.replace("__", "."), text)

    def finish(self):
        """Write the kernel's tables."""
        self.write(self.proc / "self/cgroup", "\n".join(self.lines) + "\n")
        self.write(self.proc / "self/mountinfo", "\n".join(self.mounts) + "\n")


@pytest.fixture
def machine(tmp_path):
    """Return a machine with 16 GiB, 12 of them free, and no cgroup."""
    return Machine(tmp_path / "a b")


class TestMemory:
    """How much a build may take."""

    def test_without_cgroups_the_machine_counts(self, machine):
        """No cgroup file means no limit."""
        have = memory.read(machine.proc)
        assert (have.total, have.available) == (16 * GIB, 12 * GIB)
        assert (have.limit, have.limited_by) == (None, "")
        assert have.usable == 12 * GIB

    def test_v2_limit_of_the_own_group(self, machine):
        """What is left below memory.max is usable, and page cache counts as free."""
        machine.v2("/user/build")
        machine.group(
            "user/build",
            memory__max=str(4 * GIB),
            memory__current=str(3 * GIB),
            memory__stat=f"anon 5\ninactive_file {GIB}\n",
        )
        have = memory.read(machine.proc)
        assert have.limit == 4 * GIB
        assert have.limited_by.endswith("user/build/memory.max")
        assert have.usable == 2 * GIB

    def test_v2_limit_of_a_group_above(self, machine):
        """The lowest limit on the way up counts, whichever group sets it."""
        machine.v2("/slice/job/step")
        machine.group("slice/job/step", memory__max="max\n")
        machine.group("slice/job", memory__max=str(6 * GIB), memory__current="0")
        machine.group("slice", memory__max=str(8 * GIB), memory__current="0")
        have = memory.read(machine.proc)
        assert have.limit == 6 * GIB
        assert have.usable == 6 * GIB

    def test_usable_is_the_least_room_of_all(self, machine):
        """A full group above leaves nothing, though its limit is the higher one."""
        machine.v2("/slice/job")
        machine.group("slice/job", memory__max=str(2 * GIB), memory__current="0")
        machine.group("slice", memory__max=str(8 * GIB), memory__current=str(9 * GIB))
        have = memory.read(machine.proc)
        assert have.limit == 2 * GIB
        assert have.usable == 0

    def test_v1_limit(self, machine):
        """Version 1 has other file names and another word for page cache."""
        machine.v1("memory", "/docker/abc")
        machine.group(
            "memory/docker/abc",
            memory__limit_in_bytes=str(5 * GIB),
            memory__usage_in_bytes=str(2 * GIB),
            memory__stat="total_inactive_file nonsense\n",
        )
        machine.group("memory", memory__limit_in_bytes=NO_LIMIT_V1)
        have = memory.read(machine.proc)
        assert have.limit == 5 * GIB
        assert have.usable == 3 * GIB

    def test_v1_huge_number_means_unlimited(self, machine):
        """The largest page-aligned number is version 1's way to say no limit."""
        machine.v1("memory", "/")
        machine.group("memory", memory__limit_in_bytes=NO_LIMIT_V1)
        assert memory.read(machine.proc).limit is None

    def test_limit_above_the_machine_is_none(self, machine):
        """A limit that the machine does not reach limits nothing."""
        machine.v2("/")
        machine.group("", memory__max=str(64 * GIB), memory__current="0")
        have = memory.read(machine.proc)
        assert have.limit is None
        assert have.usable == 12 * GIB

    def test_container_without_a_cgroup_namespace(self, machine):
        """The mount shows the container's own group, the path names it from outside."""
        machine.v1("memory", "/docker/abc", root="/docker/abc")
        machine.group("memory", memory__limit_in_bytes=str(3 * GIB))
        assert memory.read(machine.proc).limit == 3 * GIB

    @pytest.mark.parametrize("path", ["/elsewhere", "/../outside"])
    def test_path_outside_of_the_mount(self, machine, path):
        """Then only what is mounted can be read."""
        machine.v2(path, root="/docker/abc")
        machine.group("", memory__max=str(3 * GIB))
        assert memory.read(machine.proc).limit == 3 * GIB

    def test_unreadable_proc_is_all_zero(self, tmp_path):
        """Nothing readable gives zeros, which a caller takes as unknown."""
        have = memory.read(tmp_path)
        assert (have.total, have.usable, have.limit) == (0, 0, None)

    def test_odd_lines_are_passed_over(self, machine):
        """Short or foreign lines in the kernel's tables do no harm."""
        machine.lines = ["", "nonsense", "3:cpuset:/x", "0::/"]
        machine.mounts = ["", "1 2 3", "1 2 0:1 / /x rw - cgroup", "no separator"]
        machine.finish()
        machine.write(machine.proc / "meminfo", "MemTotal: many kB\nEmpty:\n")
        assert memory.read(machine.proc).total == 0


class TestCores:
    """How many processors a build may use."""

    def test_affinity_without_a_quota(self, machine):
        """The affinity mask is the ceiling."""
        have = memory.cores(machine.proc, affinity=lambda: 6)
        assert (have.affinity, have.quota, have.usable) == (6, None, 6)

    def test_our_own_affinity_is_the_default(self, machine):
        """Without a fake the kernel is asked, and it never says none."""
        assert memory.cores(machine.proc).usable >= 1

    @pytest.mark.parametrize(
        ("text", "usable"),
        [
            ("250000 100000", 2),
            ("50000 100000", 1),
            ("max 100000", 8),
            ("nonsense", 8),
            ("0 100000", 8),
            ("1600000 100000", 8),
        ],
    )
    def test_v2_quota(self, machine, text, usable):
        """Two and a half processors count as two, a half one as one."""
        machine.v2("/job")
        machine.group("job", cpu__max=text)
        assert memory.cores(machine.proc, affinity=lambda: 8).usable == usable

    @pytest.mark.parametrize(("quota", "usable"), [("300000", 3), ("-1", 8)])
    def test_v1_quota(self, machine, quota, usable):
        """Version 1 keeps quota and period in two files, -1 is no quota."""
        machine.v1("cpu,cpuacct", "/job")
        machine.group(
            "cpu,cpuacct/job", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000"
        )
        assert memory.cores(machine.proc, affinity=lambda: 8).usable == usable

    def test_lowest_quota_on_the_way_up_counts(self, machine):
        """A tighter group above is found."""
        machine.v2("/a/b")
        machine.group("a/b", cpu__max="800000 100000")
        machine.group("a", cpu__max="200000 100000")
        have = memory.cores(machine.proc, affinity=lambda: 16)
        assert (have.quota, have.usable) == (2.0, 2)
