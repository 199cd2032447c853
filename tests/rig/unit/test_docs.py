# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The tables of the README say what the code does.

The table of settings is made from the code: ``RIG_WRITE_DOCS=1`` with this file writes
it, and without that variable a stale one fails.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import tasks
from tools.rig.base.config import SETTINGS
from tools.rig.base.errors import ExitCode
from tools.rig.builds import profile
from tools.rig.tasks import building, preparing

ROOT = Path(__file__).parents[3]
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "README.zh-CN.md")
    if page.exists() and page.read_text(encoding="utf-8").startswith("# rig\n")
]
START, END = "<!-- settings -->\n", "<!-- /settings -->\n"

# the pages stay behind when the suite is adopted
pytestmark = pytest.mark.skipif(not PAGES, reason="the README here is the host's")

FLAGS = {"profile", "source", "jobs"}
"""Settings that are flags of the tasks as well."""


def settings_table() -> str:
    """Return the README's table of settings."""
    lines = [
        "| setting | variable | flag | default | what it is for |",
        "| --- | --- | --- | --- | --- |",
    ]
    for setting in SETTINGS:
        flag = f"`--{setting.name}`" if setting.name in FLAGS else ""
        default = f"`{setting.default}`" if setting.default else ""
        text = setting.help.replace("|", "\\|")
        cells = (f"`{setting.name}`", f"`{setting.variable}`", flag, default, text)
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def rows(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of every table row below a heading, down to the next one."""
    text = page.read_text(encoding="utf-8")
    part = text[text.index(f"\n## {heading}\n") + 1 :]
    part = part.partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    cells = [[c.strip() for c in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0].strip("-: ")]


def test_settings() -> None:
    """The table of settings is the one that the code makes."""
    page = PAGES[0]
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(START)
    table, mark, tail = rest.partition(END)
    assert mark, f"{page.name} has no markers for the table of settings"
    if os.environ.get("RIG_WRITE_DOCS") == "1":
        page.write_text(head + START + settings_table() + END + tail, encoding="utf-8")
        return
    assert table == settings_table(), "write it: RIG_WRITE_DOCS=1 pytest test_docs.py"


def test_flags() -> None:
    """What the table calls a flag is one, of every task that builds."""
    for task in (preparing.plan, building.build_sm70):
        names = {argument.name for argument in task.get_arguments()}
        assert names >= FLAGS


def test_tasks() -> None:
    """The table of tasks names every task, and no other."""
    named = {
        row[0].strip("`").split()[1]
        for row in rows(PAGES[0], "Tasks")
        if row[0].startswith("`invoke ")
    }
    assert named == set(tasks.namespace.task_names)


def test_sessions() -> None:
    """The table of sessions names only sessions that exist."""
    tree = ast.parse((ROOT / "noxfile.py").read_bytes())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    named = {
        row[0].strip("`").split()[2]
        for row in rows(PAGES[0], "Tasks")
        if row[0].startswith("`tools/nox -s")
    }
    assert named and named <= defined


def test_exit_codes() -> None:
    """The table of exit codes is the list in the code."""
    named = [row[0] for row in rows(PAGES[0], "Exit codes") if row[0].isdigit()]
    assert [int(code) for code in named] == [int(code) for code in ExitCode]


def test_named_files_exist() -> None:
    """Every file or folder of the project that a page names in a link is there."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        targets = [part.partition(")")[0] for part in text.split("](")[1:]]
        local = [t.partition("#")[0] for t in targets if "://" not in t]
        assert [t for t in local if t and not (page.parent / t).exists()] == []


def test_default_profile() -> None:
    """The profile that the README calls the default is the first of its project."""
    found = profile.of_project("1cat-vllm")
    assert found is not None and found.name == "v100-cu128"
    assert (found.torch, found.torch_variant) == ("2.10.0", "cu128")
    text = PAGES[0].read_text(encoding="utf-8")
    assert f"torch {found.torch} in its {found.torch_variant} variant" in " ".join(
        text.split()
    )
