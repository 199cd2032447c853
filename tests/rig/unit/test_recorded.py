# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the record of a run says of its end."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tools.rig.base.console import Console
from tools.rig.base.errors import InUseError, RigError, StepFailed
from tools.rig.base.state import StateRoot, read_json
from tools.rig.guard.gate import InUse
from tools.rig.guard.scan import ScanResult
from tools.rig.steps.recorded import Run


@pytest.mark.parametrize(
    ("error", "result", "code"),
    [
        (InUse(Path("/v"), ScanResult()), "kept", 4),
        # another run is bringing the toolkit: nothing was built
        (InUseError("another run has been working"), "failed", 4),
        (StepFailed("it broke"), "failed", 1),
    ],
)
def test_bad_ends(tmp_path: Path, error: RigError, result: str, code: int) -> None:
    """Only a switch that was refused leaves a build that is kept."""
    run = Run(Console(io.StringIO()), StateRoot(tmp_path / "root"))
    with pytest.raises(RigError), run:
        raise error
    data = read_json(run.record.file) or {}
    assert (data["result"], data["exit_code"]) == (result, code)
