# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What a command line compiles."""

from __future__ import annotations

import pytest

from tools.rig.base import launch_words


@pytest.mark.parametrize(
    ("line", "made", "source", "kind", "cache"),
    [
        ("g++ -O2 -o d/x.cpp.o -c /s/x.cpp", "d/x.cpp.o", "/s/x.cpp", "cxx", ""),
        ("ccache gcc -c x.c -o x.o", "x.o", "x.c", "c", "ccache"),
        ("/usr/bin/sccache nvcc -c a.cu -o a.o", "a.o", "a.cu", "cuda", "sccache"),
        ("nvcc -MD -MF x.d -x cu -c a.cu -o a.o", "a.o", "a.cu", "cuda", ""),
        ("nvcc -dc a.cu --output-file a.o", "a.o", "a.cu", "cuda", ""),
        ("nvcc --device-c a.cu --output-file=a.o", "a.o", "a.cu", "cuda", ""),
        ("cl -c odd.f90 -o odd.obj", "odd.obj", "", "cxx", ""),
        ("g++ x.cc -c -o x.o", "x.o", "x.cc", "cxx", ""),
    ],
)
def test_compiles(line: str, made: str, source: str, kind: str, cache: str) -> None:
    """Object, source, kind and cache are found, in whatever order they stand."""
    found = launch_words.read(line.split())
    assert found is not None
    told = (found.object, found.source, found.kind, found.cache)
    assert told == (made, source, kind, cache)


@pytest.mark.parametrize(
    "line",
    [
        "g++ --version",
        "g++ x.o y.o -o lib.so",
        "g++ -E -c x.cpp -o x.o",
        "nvcc -M -c x.cu -o x.o",
        "g++ -c x.cpp",
        "g++ -c x.cpp -o",
        "g++ -c x.cpp -o x.s",
        "g++ -c x.cpp -o CMakeFiles/cmTC_12ab.dir/x.cpp.o",
        "nvcc --dryrun -c x.cu -o x.o",
    ],
)
def test_no_compile(line: str) -> None:
    """Questions, links, preprocessing and CMake's probes are none."""
    assert launch_words.read(line.split()) is None


def test_cache_behind_our_script() -> None:
    """The suite's own script is the cache that it was told to start."""
    words = ["/s/rig-cache", "g++", "-c", "x.cpp", "-o", "x.o"]
    for program, name in (("/usr/bin/ccache", "ccache"), ("", "")):
        found = launch_words.read(words, "/b", program)
        assert found is not None and found.cache == name


def test_probe_by_folder() -> None:
    """CMake's probes are known by where they run, too."""
    words = ["g++", "-c", "x.cpp", "-o", "x.o"]
    assert launch_words.read(words, "/b/CMakeFiles/CMakeScratch/TryCompile-1") is None
    assert launch_words.read(words, "/b") is not None
