# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Importing a module from outside the checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytest_subprocess import FakeProcess

from tools.rig.builds import smoke

PYTHON = Path("/v/bin/python")


def said(**words: str) -> str:
    """Return what the new Python prints, noise first."""
    return f"INFO loading\n\nrig-import: {json.dumps(words)}\n"


def register(fp: FakeProcess, out: str, code: int = 0, err: str = "") -> None:
    """Let the import of ``p`` answer."""
    fp.register(
        [str(PYTHON), "-I", "-c", smoke._IMPORT, "p"],
        stdout=out,
        stderr=err,
        returncode=code,
    )


def test_a_good_module(fp: FakeProcess) -> None:
    """The file that was imported is told."""
    register(fp, said(file="/p/__init__.py"))
    made = smoke.try_import(PYTHON, "p", {})
    assert (made.verdict, made.file) == ("ok", "/p/__init__.py")


def test_a_folder_without_code(fp: FakeProcess) -> None:
    """A folder that merely has the name imports, and proves nothing."""
    register(fp, said(file=""))
    made = smoke.try_import(PYTHON, "p", {})
    assert (made.verdict, made.detail) == ("fail", "is a folder without code")


def test_only_the_driver_is_missing(fp: FakeProcess) -> None:
    """The loader's own words for a missing driver are no failure of the build."""
    text = "libcuda.so.1: cannot open shared object file: No such file or directory"
    register(fp, said(error="ImportError", text=text))
    made = smoke.try_import(PYTHON, "p", {})
    assert (made.verdict, made.detail) == ("not checkable here", "needs libcuda.so.1")


@pytest.mark.parametrize(
    ("error", "text", "detail"),
    [
        ("ModuleNotFoundError", "No module named 'p'", "No module named 'p'"),
        ("ImportError", "libx.so: cannot open shared object file", "libx.so: cannot"),
        ("OSError", "libcuda.so.1: cannot open shared object file", "OSError: libcuda"),
        ("SystemExit", "", "SystemExit: "),
        ("ValueError", "one\ntwo", "ValueError: one"),
    ],
)
def test_a_bad_module(fp: FakeProcess, error: str, text: str, detail: str) -> None:
    """Any other exception fails, with its first line."""
    register(fp, said(error=error, text=text))
    made = smoke.try_import(PYTHON, "p", {})
    assert made.verdict == "fail"
    assert detail in made.detail
    assert "two" not in made.detail


def test_a_crash(fp: FakeProcess) -> None:
    """A Python that dies in the import fails with its status and last words."""
    register(fp, "", code=-11, err="one\nFatal Python error: Segmentation fault\n")
    made = smoke.try_import(PYTHON, "p", {})
    assert made.verdict == "fail"
    assert made.detail == (
        "Python ended with status -11 Fatal Python error: Segmentation fault"
    )


def test_a_silent_end(fp: FakeProcess) -> None:
    """A module that ends Python without a word fails too."""
    register(fp, "")
    assert smoke.try_import(PYTHON, "p", {}).detail == "Python ended with status 0"
