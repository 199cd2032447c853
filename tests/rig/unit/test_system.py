# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Facts about distribution, C library, container, kernel module and proxies."""

import pytest

from tools.rig.host import system

DEBIAN = """PRETTY_NAME="Debian GNU/Linux 13 (trixie)"
NAME="Debian GNU/Linux"
# a comment
VERSION_ID="13"
VERSION_CODENAME=trixie
ID=debian

"""
UBUNTU = 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nNAME="Ubuntu"\n'
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  "
    "Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc version 12.2.0\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  "
    "Release Build  (dvs-builder)\n"
)


@pytest.fixture
def proc(tmp_path):
    """Return an empty folder that stands for /proc."""
    return tmp_path / "proc"


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class TestDistribution:
    """What os-release says."""

    def test_debian(self, tmp_path):
        """Quotes go, comments and empty lines are passed over."""
        here = system.distribution((_write(tmp_path / "os", DEBIAN),))
        assert here.id == "debian"
        assert (here.version, here.codename) == ("13", "trixie")
        assert here.name == "Debian GNU/Linux 13 (trixie)"
        assert here.family == "debian"

    def test_second_place_counts_when_the_first_is_missing(self, tmp_path):
        """/usr/lib/os-release stands in for /etc/os-release."""
        place = _write(tmp_path / "os", UBUNTU)
        here = system.distribution((tmp_path / "none", place))
        assert (here.id, here.name, here.family) == ("ubuntu", "Ubuntu", "debian")

    @pytest.mark.parametrize(
        ("text", "family"),
        [
            ("ID=rocky\nID_LIKE='rhel centos fedora'", "rhel"),
            ("ID=fedora", "rhel"),
            ("ID=arch", ""),
            ("ID=linuxmint\nID_LIKE=ubuntu", "debian"),
        ],
    )
    def test_family_follows_id_and_id_like(self, tmp_path, text, family):
        """The family decides whose package names are told to the user."""
        assert system.distribution((_write(tmp_path / "os", text),)).family == family

    def test_no_file_is_an_unknown_distribution(self, tmp_path):
        """Nothing readable gives empty fields."""
        assert system.distribution((tmp_path / "none",)).id == ""

    def test_unbalanced_quote_is_kept_as_it_stands(self, tmp_path):
        """A broken line is no reason to fail."""
        here = system.distribution((_write(tmp_path / "os", 'NAME="half\nID=x'),))
        assert (here.name, here.id) == ('"half', "x")


class TestGlibc:
    """Which C library runs, and which one a compiler meets."""

    def test_running_version_is_a_number(self):
        """The C library of the running machine is glibc with a version."""
        major, minor = system.glibc().split(".")[:2]
        assert int(major) == 2
        assert int(minor) > 0

    def test_headers_version(self, tmp_path):
        """The version of the headers comes from features.h."""
        text = "#define\t__GLIBC__\t2\n# define __GLIBC_MINOR__ 41\n#define X 1\n"
        _write(tmp_path / "features.h", text)
        assert system.glibc_headers(tmp_path) == "2.41"

    @pytest.mark.parametrize("text", [None, "", "#define __GLIBC__ 2\n"])
    def test_no_headers_is_unknown(self, tmp_path, text):
        """A missing or foreign features.h gives an empty version."""
        if text is not None:
            _write(tmp_path / "features.h", text)
        assert system.glibc_headers(tmp_path) == ""

    @pytest.mark.parametrize(
        ("answer", "expected"), [("glibc 2.41", "2.41"), (None, None), ("musl 1", None)]
    )
    def test_confstr_is_asked_first(self, monkeypatch, answer, expected):
        """Where confstr does not know, the library itself is asked."""
        direct = system.glibc()
        monkeypatch.setattr(system.os, "confstr", lambda name: answer)
        assert system.glibc() == (expected or direct)

    def test_another_c_library_is_unknown(self, monkeypatch):
        """A C library without gnu_get_libc_version is not glibc."""
        monkeypatch.setattr(system.os, "confstr", lambda name: None)
        monkeypatch.setattr(system.ctypes, "CDLL", lambda name: object())
        assert system.glibc() == ""


class TestMachine:
    """WSL and containers."""

    def test_wsl_kernel_names_microsoft(self, proc):
        """WSL is known by its kernel's name."""
        _write(proc / "sys/kernel/osrelease", "5.15.90.1-Microsoft-standard-WSL2\n")
        assert system.wsl(proc)

    def test_ordinary_kernel_is_not_wsl(self, proc):
        """Any other kernel is not WSL, nor is an unreadable one."""
        assert not system.wsl(proc)
        _write(proc / "sys/kernel/osrelease", "6.1.0-18-amd64\n")
        assert not system.wsl(proc)

    @pytest.mark.parametrize(
        ("file", "text", "kind"),
        [
            (".dockerenv", "", "docker"),
            ("run/.containerenv", "", "podman"),
            ("run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"),
            ("proc/1/environ", "PATH=/bin\0container=lxc\0", "lxc"),
        ],
    )
    def test_marker_files(self, tmp_path, file, text, kind):
        """Each kind of container leaves its own mark."""
        _write(tmp_path / file, text)
        assert system.container(tmp_path, {}) == kind

    @pytest.mark.parametrize(
        ("env", "kind"),
        [
            ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
            ({"container": "oci"}, "oci"),
            ({"container": "wsl"}, ""),
            ({}, ""),
        ],
    )
    def test_environment(self, tmp_path, env, kind):
        """Kubernetes and systemd also say it in the environment."""
        assert system.container(tmp_path, env) == kind

    def test_empty_marks_say_nothing(self, tmp_path):
        """An empty file or value is no container."""
        _write(tmp_path / "run/systemd/container", "\n")
        _write(tmp_path / "proc/1/environ", "container=\0")
        assert system.container(tmp_path, {}) == ""

    def test_our_own_environment_is_the_default(self, tmp_path, monkeypatch):
        """Without an environment ours is looked at."""
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
        assert system.container(tmp_path) == "kubernetes"


class TestModule:
    """The kernel module and its flavour."""

    @pytest.mark.parametrize(
        ("text", "version", "flavour"),
        [
            (PROPRIETARY, "535.104.05", "proprietary"),
            (OPEN, "570.86.10", "open"),
            ("NVRM version: something else\n", "", ""),
            ("", "", ""),
        ],
    )
    def test_flavour_is_read_from_the_version_line(self, proc, text, version, flavour):
        """The open module names itself; an unreadable line is unknown."""
        _write(proc / "driver/nvidia/version", text)
        assert system.kernel_module(proc) == system.Module(version, flavour)

    def test_no_module(self, proc):
        """Without the file no module is loaded."""
        assert system.kernel_module(proc) is None


class TestShm:
    """The size of shared memory."""

    def test_size_in_bytes(self, tmp_path):
        """The size is that of the whole file system."""
        assert system.shm_bytes(tmp_path) > 0

    def test_missing(self, tmp_path):
        """No such folder is None."""
        assert system.shm_bytes(tmp_path / "none") is None


class TestProxies:
    """Proxies and what must not go through them."""

    def test_set_variables_are_found_in_either_case(self):
        """Curl reads lower case, others upper case."""
        env = {"HTTPS_PROXY": "http://p:1", "http_proxy": "http://p:2", "all_proxy": ""}
        assert set(system.proxies(env)) == {"HTTPS_PROXY", "http_proxy"}

    @pytest.mark.parametrize(
        ("given", "gaps"),
        [
            ("", ("localhost", "127.0.0.1")),
            ("localhost", ("127.0.0.1",)),
            (".LOCALHOST, 127.0.0.1", ()),
            ("*", ()),
            ("localhost,127.0.0.0/8", ()),
            ("example.org", ("localhost", "127.0.0.1")),
        ],
    )
    def test_gaps(self, given, gaps):
        """NO_PROXY must name this machine in both of its usual forms."""
        env = {"http_proxy": "http://p:1", "NO_PROXY": given}
        assert system.unproxied_gaps(env) == gaps

    def test_no_proxy_no_gap(self):
        """Without a proxy nothing can go astray."""
        assert system.unproxied_gaps({"NO_PROXY": ""}) == ()

    def test_lower_case_no_proxy_counts(self):
        """Both spellings of NO_PROXY are read."""
        env = {"http_proxy": "x", "no_proxy": "localhost", "NO_PROXY": "127.0.0.1"}
        assert system.unproxied_gaps(env) == ()
