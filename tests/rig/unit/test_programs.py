# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Programs and their versions, the loader's libraries, cards on the bus."""

import os

import pytest

from tools.rig.base.run import Result
from tools.rig.host import loader, pci, programs


def _program(folder, name):
    """Make an executable file; what it would say is up to ``fp``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\nexit 9\n")
    path.chmod(0o755)
    return path


class TestPrograms:
    """Finding a program and asking for its version."""

    @pytest.mark.parametrize(
        ("name", "said", "version"),
        [
            ("git", "git version 2.39.5\n", "2.39.5"),
            ("ninja", "1.11.1.git.kitware\n", "1.11.1"),
            ("patch", "GNU patch 2.7.6\nCopyright 2003, 2009\n", "2.7.6"),
            ("uv", "uv 0.13.9 (abc123 2026-11-01)\n", "0.13.9"),
            ("cmake", "cmake version 4.0.0-rc1\n", "4.0.0"),
            ("tool", "tool v3.2\n", "3.2"),
        ],
    )
    def test_version_is_found_in_free_text(self, fp, tmp_path, name, said, version):
        """Exactly ``PATH --version`` is run, and the first version in it counts."""
        path = _program(tmp_path, name)
        fp.register([str(path), "--version"], stdout=said)
        found = programs.find(name, {"PATH": str(tmp_path)}, beside=[])
        assert found == programs.Program(name, path, version)
        assert fp.call_count([str(path), "--version"]) == 1

    def test_version_on_stderr_counts(self, fp, tmp_path):
        """Some programs say their version on the other stream."""
        path = _program(tmp_path, "odd")
        fp.register([str(path), "--version"], stderr="odd 1.2\n")
        assert programs.probe("odd", path).version == "1.2"

    @pytest.mark.parametrize(
        ("said", "problem"),
        [
            ("", "nothing"),
            ("Segmentation report\n", "'Segmentation report'"),
            ("\x00\x01 garbage", "garbage"),
        ],
    )
    def test_nonsense_is_an_unknown_version(self, fp, tmp_path, said, problem):
        """Output without a version is shown, and no crash."""
        path = _program(tmp_path, "cmake")
        fp.register([str(path), "--version"], stdout=said)
        found = programs.probe("cmake", path)
        assert found.version == ""
        assert problem in found.problem

    @pytest.mark.parametrize(
        ("said", "problem"),
        [
            ("cmake: libfoo.so: cannot open\nmore\n", "libfoo.so"),
            ("Traceback (most recent call last):\n  x\nKeyError: 'k'\n", "KeyError"),
            ("", "status 3"),
        ],
    )
    def test_failure_names_its_status_and_reason(self, fp, tmp_path, said, problem):
        """The first line of the error is shown, of a traceback the last."""
        path = _program(tmp_path, "cmake")
        fp.register([str(path), "--version"], returncode=3, stderr=said)
        found = programs.probe("cmake", path)
        assert (found.version, "status 3" in found.problem) == ("", True)
        assert problem in found.problem

    def test_hanging_program_is_given_up(self, monkeypatch, tmp_path):
        """A program that does not answer is unknown after the time-out."""
        path = _program(tmp_path, "nvcc")
        late = Result((str(path),), -15, "", "", 7.0, timed_out=True)
        monkeypatch.setattr(programs, "run", lambda argv, timeout: late)
        assert programs.probe("nvcc", path, timeout=7).problem == (
            "did not answer within 7 s"
        )

    def test_not_found_is_none(self, tmp_path):
        """A program that is in none of the folders is None."""
        assert programs.find("nothing", {"PATH": str(tmp_path)}, beside=[]) is None

    def test_wheels_beside_our_python_are_found(self, fp, tmp_path):
        """What a wheel brought into the tools' environment is found after PATH."""
        path = _program(tmp_path / "venv bin", "ninja")
        fp.register([str(path), "--version"], stdout="1.13.0\n")
        found = programs.find(
            "ninja", {"PATH": str(tmp_path)}, beside=[tmp_path / "venv bin"]
        )
        assert found.path == path

    def test_default_looks_beside_the_running_python(self, tmp_path, monkeypatch, fp):
        """Without a list it is the folder of the interpreter."""
        path = _program(tmp_path, "uv")
        monkeypatch.setattr(programs.sys, "executable", str(tmp_path / "python"))
        fp.register([str(path), "--version"], stdout="uv 1.0\n")
        assert programs.find("uv", {"PATH": "/nonexistent"}).version == "1.0"


class TestLoader:
    """What the dynamic loader would meet."""

    def test_small_libcuda_on_the_path_is_a_stub(self, tmp_path):
        """A libcuda of a few bytes is a stub, under either of its names."""
        for name in ("libcuda.so", "libcuda.so.1"):
            (tmp_path / name).write_bytes(b"stub")
        env = {"LD_LIBRARY_PATH": f"/nonexistent:{tmp_path}:"}
        assert loader.stubs(env) == [
            tmp_path / "libcuda.so.1",
            tmp_path / "libcuda.so",
        ]

    def test_the_drivers_own_library_is_none(self, tmp_path):
        """The real library is tens of MB and no stub."""
        with (tmp_path / "libcuda.so.1").open("wb") as fh:
            fh.truncate(40 << 20)
        assert loader.stubs({"LD_LIBRARY_PATH": str(tmp_path)}) == []

    def test_no_variable_no_stub(self):
        """Without LD_LIBRARY_PATH there is nothing to find."""
        assert loader.stubs({}) == []

    def test_cudnn_files_and_wheel(self, tmp_path):
        """Versions come from file names, and from the metadata of the wheel."""
        (tmp_path / "a").mkdir()
        for name in ("libcudnn.so.9", "libcudnn.so.9.12.0", "libcudnn_ops.so.9.12.0"):
            (tmp_path / "a" / name).touch()
        (tmp_path / "sys").mkdir()
        (tmp_path / "sys/libcudnn.so.9.1.0").touch()
        packages = tmp_path / "venv/lib/python3.12/site-packages"
        wheel = packages / "nvidia_cudnn_cu12-9.10.2.21.dist-info"
        wheel.mkdir(parents=True)
        found = loader.cudnn(
            {"LD_LIBRARY_PATH": str(tmp_path / "a")},
            tmp_path / "venv",
            system=[tmp_path / "sys"],
        )
        assert found == [
            loader.Cudnn(
                "9.12.0", tmp_path / "a/libcudnn.so.9.12.0", "LD_LIBRARY_PATH"
            ),
            loader.Cudnn("9.10.2.21", wheel, "environment"),
            loader.Cudnn("9.1.0", tmp_path / "sys/libcudnn.so.9.1.0", "system"),
        ]

    def test_no_cudnn(self, tmp_path):
        """Missing folders hold no cuDNN."""
        assert loader.cudnn({}, None, system=[tmp_path / "none"]) == []


class TestPci:
    """NVIDIA cards that the kernel sees, with or without a driver."""

    def _device(self, top, bus, vendor, kind, device, driver=""):
        place = top / bus
        place.mkdir(parents=True)
        (place / "vendor").write_text(f"0x{vendor}\n")
        (place / "class").write_text(f"0x{kind}\n")
        (place / "device").write_text(f"0x{device}\n")
        if driver:
            target = top.parent / "drivers" / driver
            target.mkdir(parents=True, exist_ok=True)
            os.symlink(target, place / "driver")

    def test_cards_are_told_from_other_devices(self, tmp_path):
        """Only NVIDIA's display and 3D controllers count, with their drivers."""
        top = tmp_path / "devices"
        self._device(top, "0000:3b:00.0", "10de", "030200", "1db1", "nvidia")
        self._device(top, "0000:3b:00.1", "10de", "040300", "10f2")
        self._device(top, "0000:5e:00.0", "10de", "030000", "2330")
        self._device(top, "0000:00:02.0", "8086", "030000", "1db1")
        cards = pci.nvidia_cards(top)
        assert [(c.bus, c.driver) for c in cards] == [
            ("0000:3b:00.0", "nvidia"),
            ("0000:5e:00.0", ""),
        ]
        assert [c.volta for c in cards] == ["Tesla V100 SXM2 16GB", ""]

    def test_no_bus(self, tmp_path):
        """A machine without a PCI bus has no card; an unreadable device is none."""
        assert pci.nvidia_cards(tmp_path / "none") == []
        (tmp_path / "0000:00:00.0").mkdir()
        assert pci.nvidia_cards(tmp_path) == []
