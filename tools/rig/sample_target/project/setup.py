# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Builds the sample as the fork builds itself: CMake behind setuptools.

The variables that steer it are the fork's, or stand for one of the fork's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import zipfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()


class CMakeExtension(Extension):
    """An extension whose sources only CMake knows."""

    def __init__(self, name: str) -> None:
        super().__init__(name, sources=[], py_limited_api=True)

    @property
    def target(self) -> str:
        """Name of the CMake target, which is also its install component."""
        return self.name.rpartition(".")[2]


class CMakeBuild(build_ext):
    """Configures once, builds every target, installs each where it is expected."""

    def build_extensions(self) -> None:
        """Build all extensions in one CMake tree."""
        temp = Path(self.build_temp).resolve()
        temp.mkdir(parents=True, exist_ok=True)
        self.spawn(["cmake", "-S", str(ROOT), "-B", str(temp), *cmake_args()])
        targets = [ext.target for ext in self.extensions]
        build = ["cmake", "--build", str(temp), "-j", str(jobs())]
        self.spawn([*build, *(f"--target={name}" for name in targets)])
        for ext in self.extensions:
            # unlinks before it writes: a process that maps the old library keeps it
            place = Path(self.get_ext_fullpath(ext.name)).resolve().parent
            install = ["cmake", "--install", str(temp), "--prefix", str(place)]
            self.spawn([*install, "--component", ext.target])


class PrecompiledBuild(build_ext):
    """Takes what libraries a wheel holds into the source tree; compiles nothing."""

    def run(self) -> None:
        """Unpack the wheel's libraries; one that holds none changes nothing."""
        wheel = os.environ.get("SAMPLE_PRECOMPILED_WHEEL_LOCATION", "")
        if not Path(wheel).is_file():
            sys.exit(f"SAMPLE_PRECOMPILED_WHEEL_LOCATION is no wheel file: {wheel!r}")
        places = [ROOT] if self.inplace else [ROOT, Path(self.build_lib)]
        with zipfile.ZipFile(wheel) as archive:
            for ext in self.extensions:
                member = f"{ext.name.replace('.', '/')}.abi3.so"
                if member in archive.namelist():
                    for place in places:
                        put(archive.read(member), place / member)


def put(content: bytes, path: Path) -> None:
    """Write a library as a new file: who has the old one mapped keeps it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)


def cmake_args() -> list[str]:
    """Return the arguments of the configure run, from the environment."""
    arch_list = os.environ.get("TORCH_CUDA_ARCH_LIST", "7.0")
    deps = os.environ.get("FETCHCONTENT_BASE_DIR", str(ROOT / ".deps"))
    args = [
        f"-DCMAKE_BUILD_TYPE={os.environ.get('CMAKE_BUILD_TYPE', 'RelWithDebInfo')}",
        f"-DCMAKE_CUDA_ARCHITECTURES={cmake_architectures(arch_list)}",
        f"-DRIG_SAMPLE_ARCH_LIST={arch_list.replace(';', ' ')}",
        f"-DRIG_SAMPLE_PYTHON={sys.executable}",
        f"-DFETCHCONTENT_BASE_DIR={deps}",
        f"-DNVCC_THREADS={os.environ.get('NVCC_THREADS', '1')}",
    ]
    if os.environ.get("VERBOSE", "0") not in ("", "0"):
        args.append("-DCMAKE_VERBOSE_MAKEFILE=ON")
    launcher = cache_launcher()
    if launcher:
        languages = ("C", "CXX", "CUDA")
        args += [f"-DCMAKE_{name}_COMPILER_LAUNCHER={launcher}" for name in languages]
    if shutil.which("ninja"):
        args += [
            "-GNinja",
            "-DCMAKE_JOB_POOL_COMPILE:STRING=compile",
            f"-DCMAKE_JOB_POOLS:STRING=compile={jobs()}",
        ]
    cuda = cuda_home()
    if cuda:
        args.append(f"-DCMAKE_CUDA_COMPILER={cuda / 'bin' / 'nvcc'}")
        if not has_static_cudart(cuda):
            args.append("-DCMAKE_CUDA_RUNTIME_LIBRARY=Shared")
            # CMake's compiler identification links before it reads that variable
            flags = os.environ.get("CUDAFLAGS", "")
            os.environ["CUDAFLAGS"] = f"{flags} --cudart=shared".strip()
    source = os.environ.get("RIG_SAMPLE_DEP_SRC_DIR")
    if source:
        args.append(f"-DFETCHCONTENT_SOURCE_DIR_RIG_SAMPLE_DEP={source}")
    return args + shlex.split(os.environ.get("CMAKE_ARGS", ""))


def cmake_architectures(arch_list: str) -> str:
    """Translate ``7.0;8.0+PTX`` into CMake's ``70-real;80``."""
    found = []
    for word in arch_list.replace(";", " ").split():
        number, plus, ptx = word.partition("+")
        major, dot, minor = number.partition(".")
        if not (dot and major.isdigit() and minor.rstrip("af").isdigit()):
            sys.exit(f"TORCH_CUDA_ARCH_LIST: unknown CUDA arch {word!r}, want 7.0")
        if plus and ptx != "PTX":
            sys.exit(f"TORCH_CUDA_ARCH_LIST: unknown suffix in {word!r}, want +PTX")
        found.append(major + minor + ("" if plus else "-real"))
    if not found:
        sys.exit("TORCH_CUDA_ARCH_LIST is empty")
    return ";".join(found)


def cuda_home() -> Path | None:
    """Return the toolkit: CUDA_HOME, else the first nvcc's, else the usual place."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if named:
        return Path(named)
    nvcc = shutil.which("nvcc")
    if nvcc:
        return Path(nvcc).resolve().parent.parent
    usual = Path("/usr/local/cuda")
    return usual if usual.is_dir() else None


def has_static_cudart(cuda: Path) -> bool:
    """Say whether the toolkit has the static cudart; a small one may lack it."""
    places = ("lib64", "lib", "lib/*-linux-gnu", "targets/*/lib")
    return any(any(cuda.glob(f"{place}/libcudart_static.a")) for place in places)


def cache_launcher() -> str:
    """Return the compile cache to use, or nothing."""
    disabled = os.environ.get("SAMPLE_DISABLE_SCCACHE", "0") not in ("", "0")
    if shutil.which("sccache") and not disabled:
        return "sccache"
    return "ccache" if shutil.which("ccache") else ""


def jobs() -> int:
    """Return how many compiles may run at once."""
    given = os.environ.get("MAX_JOBS")
    return int(given) if given else len(os.sched_getaffinity(0))


precompiled = os.environ.get("SAMPLE_USE_PRECOMPILED", "0") not in ("", "0")
setup(
    ext_modules=[CMakeExtension("rig_sample._C"), CMakeExtension("rig_sample._host")],
    cmdclass={"build_ext": PrecompiledBuild if precompiled else CMakeBuild},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
