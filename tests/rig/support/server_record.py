# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The record of a server that runs on a fake machine."""

from __future__ import annotations

from pathlib import Path

from tools.rig.serve import record as records
from tools.rig.serve.plan import ServePlan
from tools.rig.serve.record import ServerRecord

PLAN = ServePlan(
    name="qwen",
    model=Path("/models/qwen"),
    served_name="qwen",
    python=Path("/envs/one/bin/python"),
    argv=("/envs/one/bin/vllm", "serve", "/models/qwen", "--api-key", "sesame"),
    env={"HF_TOKEN": "hf_x", "VLLM_LOGGING_LEVEL": "DEBUG"},
    unset=(),
    cwd=Path("/"),
    host="127.0.0.1",
    port=8000,
    api_key_file=Path("/etc/key"),
    tensor=2,
    pipeline=1,
    cards=(0, 1),
    log=Path("/state/servers/qwen.log"),
    drain_s=30,
    notes=("no NVLink between the cards",),
)


def a_record(**changes: object) -> ServerRecord:
    """Return the record of a running server on a fake machine."""
    record = records.of_plan(PLAN, "token-1", 1000.0)
    values = {
        "pid": 200,
        "start_ticks": 100,
        "session": 150,
        "session_ticks": 100,
        "boot_id": "boot-1",
        "uid": 1000,
    }
    for name, value in {**values, **changes}.items():
        setattr(record, name, value)
    return record
