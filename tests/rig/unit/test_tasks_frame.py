# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What every task does with its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from invoke.exceptions import Exit

from tools.rig.base.console import Console
from tools.rig.base.errors import InUseError
from tools.rig.tasks import frame


def test_exit_code_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script above nox reads the code of the step from a file."""
    file = tmp_path / "code"
    monkeypatch.setenv("RIG_EXIT_FILE", str(file))
    seen = []

    def body(console: Console) -> None:
        seen.append(file.read_text())
        raise InUseError("somebody builds", hint="wait")

    with pytest.raises(Exit) as caught:
        frame.do(body)
    assert caught.value.code == 4
    assert (seen, file.read_text()) == (["running\n"], "4\n")


def test_file_that_was_cleaned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that went well does not fail for want of a place to say so."""
    monkeypatch.setenv("RIG_EXIT_FILE", str(tmp_path / "gone" / "code"))
    frame.do(lambda console: None)
