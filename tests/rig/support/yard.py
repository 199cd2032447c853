# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A checkout with two sources, compiled as a build would compile them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.rig.base.state import StateRoot
from tools.rig.builds import compile_cache, work_folder
from tools.rig.builds.compile_cache import CompileCache
from tools.rig.builds.work_folder import Names

NAMES = Names("linux-x86_64", "cpython-312")

SOURCES = {
    "csrc/own.h": "#define OWN 3\n",
    "csrc/k.cu": '#include <lent.h>\n#include "own.h"\n'
    "__global__ void k(int* x) { x[threadIdx.x] = OWN + LENT; }\n",
    "csrc/h.cpp": '#include <lent.h>\n#include "own.h"\n'
    "#ifndef EXTRA\n#define EXTRA 0\n#endif\n"
    "int h() { return OWN + LENT + EXTRA; }\n",
}


class Yard:
    """One checkout, its environment and its work folder."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = StateRoot(root)
        self.checkout = root.parent / f"code of {name}" / name
        self.env = root / "venvs" / name
        for below, text in SOURCES.items():
            file = self.checkout / below
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (self.env / "include").mkdir(parents=True)
        (self.env / "include" / "lent.h").write_text("#define LENT 4\n")
        self.work = work_folder.plan(
            self.root,
            name,
            work_folder.variant("p", "12.4", "gcc12"),
            self.checkout,
            NAMES,
            {"env": self.env},
            ("sub",),
        )
        assert work_folder.lay_out(self.work, self.root) == []
        shims = self.root.make(self.root.shims)
        self.script = compile_cache.launcher(shims)
        self.temp = self.work.home / "build" / NAMES.temp

    def variables(
        self, chosen: CompileCache, more: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the environment of a compile."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.root.path), **(more or {})}
        given = compile_cache.defaults(chosen, self.root.cache, self.checkout)
        env = {**given, **env}
        return {**env, **compile_cache.environment(chosen, env, self.work)}

    def compile(
        self, compiler: str, source: str, env: Mapping[str, str], *flags: str
    ) -> subprocess.CompletedProcess[str]:
        """Compile a source with absolute paths, as CMake and torch do."""
        made = self.temp / f"{Path(source).stem}.o"
        for old in (made, made.with_suffix(".d")):
            old.unlink(missing_ok=True)
        long = ["--generate-dependencies-with-compile", "--dependency-output"]
        wanted = long if compiler.endswith("nvcc") else ["-MD", "-MF"]
        return subprocess.run(
            [
                *(str(self.script), compiler),
                *wanted,
                str(made.with_suffix(".d")),
                f"-I{self.checkout}/csrc",
                *("-isystem", f"{self.env}/include", "-g", "-O2", *flags),
                *("-c", f"{self.checkout}/{source}", "-o", str(made)),
            ],
            cwd=self.temp,
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def object(self, source: str) -> bytes:
        """Return the object of a source."""
        return (self.temp / f"{Path(source).stem}.o").read_bytes()

    def needs(self, source: str) -> set[Path]:
        """Return the files that the dependency file names, links resolved."""
        text = (self.temp / f"{Path(source).stem}.d").read_text()
        names = text.replace("\\\n", " ").partition(":")[2].split()
        return {(self.temp / name).resolve() for name in names}
