# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The first decisive error of logs that end in something else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.rig.diagnose.first_error import (
    CONTEXT_LINES,
    LINE_LIMIT,
    Rank,
    first_error,
    rank_of,
)

_TAIL = """\
ninja: build stopped: subcommand failed.
Traceback (most recent call last):
  File "setup.py", line 9, in run
subprocess.CalledProcessError: Command '['cmake']' returned non-zero exit status 1.
error: subprocess-exited-with-error
ERROR: Failed building editable for thing
"""

_CAUSES = {
    "gcc": "a/b.cpp:12:3: error: 'x' was not declared in this scope",
    "gcc missing header": "a.cpp:1:10: fatal error: zlib.h: No such file or directory",
    "gcc driver": "g++: error: unrecognized command-line option '-march=volta'",
    "nvcc front end": 'k.cu(12): error: identifier "foo" is undefined',
    "nvcc numbered": 'k.cu(12): error #20-D: identifier "foo" is undefined',
    "nvcc catastrophic": "k.cu(1): catastrophic error: could not open source file",
    "nvcc fatal": "nvcc fatal   : Unsupported gpu architecture 'compute_70'",
    "nvcc error": "nvcc error   : 'ptxas' died due to signal 11 (Invalid memory)",
    "ptxas": "ptxas fatal   : Ptx assembly aborted due to errors",
    "ptxas file": "ptxas /tmp/x.ptx, line 9; error   : Unknown symbol 'a'",
    "killed by the shell": "/bin/sh: line 1:  975 Killed        cicc -arch compute_70",
    "killed alone": "Killed",
    "killed compiler": "c++: fatal error: Killed signal terminated program cc1plus",
    "linker symbol": "m.o:(.text+0x2): undefined reference to `f'",
    "linker library": "/usr/bin/ld: cannot find -lcudart: No such file or directory",
    "linker relocation": "/usr/bin/ld: a.o: relocation R_X86_64_32 can not be used",
    "linker disk": "collect2: fatal error: ld terminated with signal 7 [Bus error]",
    "disk": "OSError: [Errno 28] No space left on device: '/tmp/x'",
    "memory": "terminate called after throwing an instance of 'std::bad_alloc'",
    "git": "fatal: unable to access 'https://git.invalid/a.git/': Timed out",
    "git owner": "git introspection failed: fatal: detected dubious ownership in '/x'",
    "uv resolver": "  × No solution found when resolving dependencies:",
    "uv download": "error: Failed to fetch: `https://index.invalid/torch.whl`",
    "pip resolver": "ERROR: No matching distribution found for torch==9.9",
    "rust": "error[E0277]: the trait bound `A: B` is not satisfied",
    "rust at run time": "thread 'main' panicked at src/main.rs:14:9:",
    "meson": "meson.build:14:0: ERROR: Problem encountered: no",
    "aborted": "Aborted (core dumped)",
    "loader": "./x: error while loading shared libraries: a.so: cannot open",
    "ninja": "ninja: error: loading 'build.ninja': No such file or directory",
}


def lines(text: str) -> Iterator[str]:
    """Yield lines with their ends, as a file does."""
    yield from text.splitlines(keepends=True)


@pytest.mark.parametrize("cause", _CAUSES.values(), ids=_CAUSES.keys())
def test_a_cause_beats_every_consequence(cause: str) -> None:
    """The message of the tool that failed is found above what its callers say."""
    log = f"[1/9] Building a.o\nFAILED: a.o \n{cause}\nmore\n{_TAIL}"
    found = first_error(lines(log))
    assert found is not None
    assert (found.line, found.text) == (3, cause.strip())
    assert found.context[0] == "more"


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (
            f"--\nCMake Error at a/CMakeLists.txt:3 (find_program):\n  no\n{_TAIL}",
            "CMake Error at a/CMakeLists.txt:3 (find_program):",
        ),
        (
            f"Traceback (most recent call last):\n  x\nRuntimeError: no nvcc\n{_TAIL}",
            "RuntimeError: no nvcc",
        ),
        (
            f"make: *** No rule to make target 'x'.  Stop.\n{_TAIL}",
            "make: *** No rule to make target 'x'.  Stop.",
        ),
        (f"error: could not create 'x': Permission denied\n{_TAIL}", "error: could"),
    ],
)
def test_a_report_beats_consequences(log: str, text: str) -> None:
    """Where no tool spoke, CMake's block or the exception's last line is the answer."""
    found = first_error(lines(log))
    assert found is not None
    assert found.text.startswith(text)


@pytest.mark.parametrize(
    "line",
    [
        "E: Unable to locate package g++-99",
        "FAILURE: Build failed with an exception.",
        "BUILD FAILED",
        "1 failed, 3 passed in 2.1s",
        "stage 4: FAILED (rc=77): no seed",
        "scons: *** [x] Error 1",
        "cp: cannot stat 'x': No such file or directory",
        "zsh: segmentation fault  python x.py",
        "*** stack smashing detected ***: terminated",
        "##[error]Process completed with exit code 1.",
        "/usr/bin/python3: No module named pip",
        "dpkg: error processing package x (--configure):",
        "npm ERR! code ERESOLVE",
        "--- FAIL: TestLease (0.01s)",
        'Exception in thread "main" java.lang.NoSuchMethodError: x',
        "BEGIN failed--compilation aborted at tools/report.pl line 4.",
        "docker: Error response from daemon: network x not found.",
        'Error from server: admission webhook "a.b" denied the request: no',
        "failed to register layer: write /x: input/output error",
        'agent: failed to sync remote state: error="No cluster leader"',
        "A dependency job for cache.service failed. See 'journalctl -xe'.",
        "x.service: Failed with result 'exit-code'.",
        "rsync error: some files could not be transferred (code 23) at main.c",
        "mount: /mnt/x: wrong fs type, bad option, bad superblock on /dev/sdb1",
        '  Volume group "vg0" has insufficient free space (12 extents): 128 required.',
        'nginx: [emerg] host not found in upstream "api" in /etc/nginx/x.conf:3',
        "gpg: keyserver receive failed: No data",
        "cannot import 'tank': pool was previously in use from another system.",
        "Exception: num_bits must be 4 or 8, got 3",
        "/src/ring.cc:88: void Ring::push(): Assertion `n < cap' failed.",
    ],
)
def test_a_failure_of_any_tool_is_one(line: str) -> None:
    """What no entry knows is a failure all the same."""
    found = first_error(lines(f"all well\n{line}\n"))
    assert found is not None
    assert found.line == 2


def test_a_later_cause_beats_an_earlier_report() -> None:
    """An exception that was printed and survived does not hide the compiler."""
    found = first_error(lines("ImportError: optional\nstep\na.c:1:1: error: x\n"))
    assert found is not None
    assert found.line == 3


def test_of_two_causes_the_first_is_taken() -> None:
    """With many compiles at once the first message counts."""
    found = first_error(lines("a.c:1:1: error: x\n" + "b.c:1:1: error: y\n" * 20))
    assert found is not None
    assert found.line == 1


def test_consequences_alone_are_better_than_nothing() -> None:
    """A log that was cut off still gives its first bad line."""
    found = first_error(lines(_TAIL))
    assert found is not None
    assert found.text == "ninja: build stopped: subcommand failed."


@pytest.mark.parametrize(
    "line",
    [
        "-- Performing Test HAVE_X - Failed",
        "-- cuDNN: not found",
        "a.c:1:2: warning: error-prone construct",
        "fatal: not a git repository (or any of the parent directories): .git",
        "CMake Warning at x:1: an error may follow",
        "[3/9] Building CXX object error_codes.cpp.o",
        "/usr/bin/ld: warning: a.o: missing .note.GNU-stack",
        "copying errors.py -> build",
        "a.py:283: UserWarning: Failed to initialize NumPy: No module named 'numpy'",
        "process exited with exit code 0",
        "0 errors detected",
        "rmmod: ERROR: Module nvidia_drm is not currently loaded",
        "sudo: unable to resolve host gpu01: Name or service not known",
        "Failed to get device capability: SM 12.x requires CUDA >= 12.9.",
        "0 failed, 12 passed in 3.2s",
        "n1:4:9 [0] NCCL INFO NET/IB: x: Failed to init QP",
        "",
    ],
)
def test_harmless_lines_are_no_errors(line: str) -> None:
    """Probes that fail, warnings and file names do not count."""
    assert rank_of(line) is None
    assert first_error([line]) is None


def test_pips_frame_colours_and_stamps_are_taken_off() -> None:
    """A message is recognised inside pip's box, in colour and behind a time stamp."""
    for raw in (
        "  │       a.c:1:1: error: x",
        "\x1b[1ma.c:1:1: \x1b[31merror:\x1b[0m x\n",
        "2026-01-02T03:04:05.678Z a.c:1:1: error: x",
        "50% [####]\ra.c:1:1: error: x",
    ):
        found = first_error([raw])
        assert found is not None, raw
        assert found.text.endswith("a.c:1:1: error: x")


def test_a_log_is_not_read_further_than_needed() -> None:
    """After a cause and its context nothing more is taken from the log."""
    log = iter(["a.c:1:1: error: x", *(str(n) for n in range(1000))])
    found = first_error(log)
    assert found is not None
    assert found.context == tuple(str(n) for n in range(CONTEXT_LINES))
    assert next(log) == str(CONTEXT_LINES + 1)


def test_very_long_lines_are_cut() -> None:
    """A link command of a million characters is neither kept nor searched."""
    found = first_error(["a.c:1:1: error: " + "x" * 1_000_000, "y" * 1_000_000])
    assert found is not None
    assert len(found.text) <= LINE_LIMIT
    assert len(found.context[0]) <= LINE_LIMIT


def test_lines_for_showing_end_without_blanks() -> None:
    """What is printed stops at the last line that says something."""
    found = first_error(["Killed", "", "why", "", ""])
    assert found is not None
    assert found.lines() == ["Killed", "", "why"]
    assert Rank.CAUSE < Rank.REPORT < Rank.CONSEQUENCE
