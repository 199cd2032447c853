# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The header shim with a fake nvcc."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from tools.rig.base.console import Console
from tools.rig.base.errors import CannotError, StepFailed
from tools.rig.builds import inventory
from tools.rig.host import glibc_probe
from tools.rig.host.compilers import HostCompiler
from tools.rig.host.cuda import Toolkit
from tools.rig.host.glibc_probe import Clash
from tools.rig.steps.shim import VARIABLE, ShimResult, shim

_NVCC = "/cuda/bin/nvcc"
_TOOLKIT = Toolkit(Path("/cuda"), Path(_NVCC), "12.4.131", (70,), "CUDA_HOME")
_GXX = HostCompiler(Path("/usr/bin/g++-13"), "gcc", "13.3")
_COMPILE = [_NVCC, "-ccbin", "/usr/bin/g++-13", "-c", "math_probe.cu", "-o"]
_COMPILE += ["math_probe.o"]
_ASK_DIRS = [_NVCC, "-ccbin", "/usr/bin/g++-13", "-E", "-Xcompiler", "-v"]
_ASK_DIRS += ["empty_probe.cu", "-o", "empty_probe.ii"]
_HEADER = "/* h */\nM (cospi,, (x));\nM (sinpi,, (x));\nM (rsqrt,, (x));\n"


def clash(name: str, header: Path, line: int) -> str:
    """Return one clash in nvcc's words."""
    return (
        f"{header}({line}): error: exception specification is incompatible with that "
        f'of previous function "{name}" (declared at line 5554 of '
        "/cuda/bin/../include/crt/math_functions.h)\n"
        f"   extern double {name} (double __x) noexcept (true);\n"
        "                 ^\n\n"
    )


def failed(*clashes: str, rest: str = "") -> str:
    """Return the whole output of a compile that met clashes."""
    count = f'{len(clashes)} errors detected in the compilation of "math_probe.cu".\n'
    return rest + "".join(clashes) + count


class Machine:
    """A system header, a state folder, and the step with a fake nvcc."""

    def __init__(self, tmp_path: Path, fp: FakeProcess) -> None:
        self.fp = fp
        self.dirs = tmp_path / "usr" / "include"
        self.header = self.dirs / "arch" / "bits" / "mathcalls.h"
        self.header.parent.mkdir(parents=True)
        self.header.write_text(_HEADER)
        self.folder = tmp_path / "shims"
        self.said = io.StringIO()

    def answer(self, text: str = "", code: int | None = None) -> None:
        """Let the next compile say this."""
        code = (2 if text else 0) if code is None else code
        self.fp.register(_COMPILE, stderr=text, returncode=code)

    def list_dirs(self) -> None:
        """Let the compiler tell its search list."""
        text = (
            '#include "..." search starts here:\n'
            "#include <...> search starts here:\n"
            f" /cuda/bin/../include\n {self.dirs}/arch\n {self.dirs}\n"
            "End of search list.\n"
        )
        self.fp.register(_ASK_DIRS, stderr=text)

    def run(self, env: dict[str, str] | None = None) -> ShimResult:
        """Run the step."""
        given = {"PATH": "/usr/bin"} if env is None else env
        return shim(Console(self.said), _TOOLKIT, _GXX, given, self.folder)


@pytest.fixture
def machine(tmp_path: Path, fp: FakeProcess) -> Machine:
    """Return a machine whose nvcc says what a test tells it to."""
    return Machine(tmp_path, fp)


def test_where_it_compiles_there_is_no_shim(machine: Machine) -> None:
    """One compile, nothing written, and the user is told."""
    machine.answer()
    result = machine.run()
    assert (result.needed, result.include, result.env) == (False, None, {})
    assert "no shim is needed" in machine.said.getvalue()
    assert not machine.folder.exists()
    assert list(machine.fp.calls) == [_COMPILE]


def test_clashing_declarations_are_off_and_proved(machine: Machine) -> None:
    """The named lines go, the rest stays, and a second compile confirms it."""
    machine.answer(failed(clash("cospi", machine.header, 2)))
    machine.list_dirs()
    machine.answer()
    result = machine.run({"PATH": "/usr/bin", VARIABLE: "-DX"})
    assert result.names == ("cospi",)
    assert result.include is not None
    assert result.env == {VARIABLE: f"-I{result.include} -DX"}
    made = (result.include / "bits" / "mathcalls.h").read_text()
    assert "cospi,," not in made and "M (sinpi,, (x));" in made
    record = json.loads((result.include.parent / "shim.json").read_text())
    assert record["names"] == ["cospi"]
    assert record["toolkit"] == "12.4.131"
    assert list(machine.fp.calls) == [_COMPILE, _ASK_DIRS, _COMPILE]


def test_a_proved_shim_is_kept_without_another_compile(machine: Machine) -> None:
    """The same header, toolkit and compiler need the first probe only."""
    text = failed(clash("cospi", machine.header, 2))
    machine.answer(text)
    machine.list_dirs()
    machine.answer()
    first = machine.run()
    machine.answer(text)
    machine.list_dirs()
    assert machine.run() == first
    assert "kept" in machine.said.getvalue()
    assert machine.fp.call_count(_COMPILE) == 3


def test_a_broken_shim_is_made_again(machine: Machine) -> None:
    """A shim whose header was damaged is not trusted."""
    text = failed(clash("cospi", machine.header, 2))
    machine.answer(text)
    machine.list_dirs()
    machine.answer()
    first = machine.run()
    assert first.include is not None
    (first.include / "bits" / "mathcalls.h").write_text("")
    machine.answer(text)
    machine.list_dirs()
    machine.answer()
    assert machine.run() == first
    assert "M (sinpi" in (first.include / "bits" / "mathcalls.h").read_text()


def test_names_that_come_up_later_are_taken_in(machine: Machine) -> None:
    """A second round turns off what the first errors had hidden."""
    machine.answer(failed(clash("cospi", machine.header, 2)))
    machine.list_dirs()
    machine.answer(failed(clash("rsqrt", machine.header, 4)))
    machine.answer()
    result = machine.run()
    assert result.names == ("cospi", "rsqrt")
    assert result.include is not None
    made = (result.include / "bits" / "mathcalls.h").read_text()
    assert "cospi,," not in made and "rsqrt,," not in made and "sinpi,," in made


def test_a_clash_that_stays_ends_the_step(machine: Machine) -> None:
    """When the shim has no effect the step says so instead of going round for ever."""
    text = failed(clash("cospi", machine.header, 2))
    machine.answer(text)
    machine.list_dirs()
    machine.answer(text)
    with pytest.raises(StepFailed, match="still rejects"):
        machine.run()


def test_endless_news_end_the_step(machine: Machine) -> None:
    """The rounds are bounded."""
    machine.header.write_text("M (x,, (x));\n" * 50)
    machine.list_dirs()
    for number in range(1, 20):
        machine.answer(failed(clash(f"f{number}", machine.header, number)))
    with pytest.raises(StepFailed, match="still rejects"):
        machine.run()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Killed\n", 137),
        ("nvcc error   : 'cudafe++' died due to signal 9 (Kill signal)\n", 1),
    ],
)
def test_a_killed_compile_is_no_misfit(machine: Machine, said: str, code: int) -> None:
    """A part of nvcc that was killed says nothing of toolkit and compiler."""
    machine.answer(said, code)
    with pytest.raises(StepFailed, match="was killed") as caught:
        machine.run()
    assert "do not fit" not in caught.value.usual
    assert list(caught.value.details) == [said.strip()]
    assert not machine.folder.exists()


def test_killed_amid_clashes(machine: Machine) -> None:
    """What was said before the kill is not taken for all there is."""
    machine.answer(clash("cospi", machine.header, 2) + "Killed\n", 137)
    with pytest.raises(StepFailed, match="was killed"):
        machine.run()


def test_any_other_error_is_shown(machine: Machine) -> None:
    """The first decisive line of nvcc's output is in the message."""
    machine.answer(
        "In file included from x:\nhost_config.h:143:2: error: #error -- no\n"
    )
    with pytest.raises(StepFailed, match="cannot compile") as caught:
        machine.run()
    assert caught.value.details[0] == "host_config.h:143:2: error: #error -- no"
    assert not machine.folder.exists()


def test_a_damaged_toolkit_of_ours_is_named(machine: Machine, tmp_path: Path) -> None:
    """A toolkit or compiler that we brought and that lost a part can be taken away."""
    folder = tmp_path / "gcc-13"
    part = folder / "usr" / "bin" / "g++-13"
    part.parent.mkdir(parents=True)
    part.write_text("x")
    inventory.seal(folder)
    part.write_text("")
    argv = [*_COMPILE[:2], str(part), *_COMPILE[3:]]
    machine.fp.register(argv, stderr="cc1plus: not found\n", returncode=1)
    theirs = HostCompiler(part, "gcc", "13.3")
    with pytest.raises(CannotError, match="g..-13 has 0 of 1 bytes") as caught:
        shim(Console(machine.said), _TOOLKIT, theirs, {}, machine.folder)
    assert caught.value.hint == f"rm -r {folder}"


def test_output_without_a_known_error_is_shown_as_it_is(machine: Machine) -> None:
    """Words that nobody knows are passed on."""
    machine.answer("strange things\n", code=9)
    with pytest.raises(StepFailed) as caught:
        machine.run()
    assert caught.value.details == ("strange things",)


def test_an_error_behind_the_clashes_is_shown(machine: Machine) -> None:
    """With the clashes gone, what else is wrong ends the step."""
    other = "nvcc error   : 'ptxas' died due to signal 11 (Segmentation fault)\n"
    machine.answer(failed(clash("cospi", machine.header, 2), rest=other))
    machine.list_dirs()
    machine.answer(other)
    with pytest.raises(StepFailed) as caught:
        machine.run()
    assert caught.value.details[0] == other.strip()


def test_an_nvcc_that_does_not_exist_is_named(tmp_path: Path, machine: Machine) -> None:
    """A missing nvcc means that this machine cannot, with the step that brings one."""
    gone = tmp_path / "cuda" / "bin" / "nvcc"
    machine.fp.pass_command([gone, machine.fp.any()])
    toolkit = Toolkit(tmp_path / "cuda", gone, "12.4.131", (70,), "CUDA_HOME")
    with pytest.raises(CannotError, match="cannot start"):
        shim(Console(machine.said), toolkit, None, {}, machine.folder)


def test_an_nvcc_that_hangs_is_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time runs out with a message about the disk."""
    late = glibc_probe.Probe(False, timed_out=True)
    monkeypatch.setattr(glibc_probe, "probe", lambda *a, **k: late)
    with pytest.raises(StepFailed, match="did not finish"):
        machine.run()


def test_a_header_outside_the_search_list_is_named(machine: Machine) -> None:
    """A header that no folder of the list holds cannot be shadowed."""
    machine.answer(failed(clash("cospi", machine.header, 2)))
    machine.fp.register(_ASK_DIRS, stderr="nothing\n")
    with pytest.raises(StepFailed, match="lies in no folder"):
        machine.run()


def test_a_header_that_cannot_be_read_is_named(machine: Machine) -> None:
    """The place comes from the compiler; a file that is gone gives a message."""
    machine.answer(failed(clash("cospi", machine.header.with_name("gone.h"), 2)))
    machine.list_dirs()
    with pytest.raises(StepFailed, match="cannot read"):
        machine.run()


def test_an_earlier_shim_of_ours_is_looked_through(machine: Machine) -> None:
    """The probe sees the system without it, and a stale one is taken out."""
    ours = f"-I{machine.folder}/glibc-0123/include"
    machine.answer()
    result = machine.run({"PATH": "/usr/bin", VARIABLE: f"{ours} -DX"})
    assert result.env == {VARIABLE: "-DX"}


def test_the_systems_side_of_a_clash_is_taken_whichever_comes_first() -> None:
    """When CUDA's header is the one in error, the other declaration is the system's."""
    text = (
        "/usr/include/crt/math_functions.h(777): error #20-D: exception specification "
        'is incompatible with that of previous function "rsqrt" (declared at line 206 '
        "of /usr/include/bits/mathcalls.h)\n"
    )
    found, rest = glibc_probe.parse(text)
    assert found == (Clash("rsqrt", Path("/usr/include/bits/mathcalls.h"), 206),)
    assert rest == ()


def test_a_clash_within_one_file_is_read() -> None:
    """cudafe++ leaves the file out where both declarations stand in one."""
    text = (
        "/a b/m.h(7): error: exception specification is incompatible with that of "
        'previous function "f" (declared at line 3)\n'
    )
    assert glibc_probe.parse(text)[0] == (Clash("f", Path("/a b/m.h"), 7),)


def test_the_deepest_folder_names_a_header(tmp_path: Path) -> None:
    """Of two folders that hold a header the deeper one gives the name to include."""
    deep = tmp_path / "include" / "arch"
    (deep / "bits").mkdir(parents=True)
    dirs = (tmp_path / "include", deep, tmp_path / "nowhere")
    assert glibc_probe.relative_name(deep / "bits" / "m.h", dirs) == "bits/m.h"
    assert glibc_probe.relative_name(tmp_path / "m.h", dirs) is None


def test_the_search_list_is_read_once_each() -> None:
    """Nvcc preprocesses twice, and each pass prints the list."""
    text = "#include <...> search starts here:\n /a\n /b c\nEnd of search list.\n /x\n"
    assert glibc_probe.parse_include_dirs(text * 2) == (Path("/a"), Path("/b c"))
