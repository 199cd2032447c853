# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The size of the KV cache that real vLLM logs is the one that was planned."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import regex as re

from tests.rig.support import vllm_cpu
from tests.rig.support.logged_sizes import LOGGED
from tests.rig.support.made_model import LLAMA, write
from tools.rig.base.tree import session_members
from tools.rig.serve import capacity, folder
from tools.rig.serve.capacity import Options

pytestmark = pytest.mark.real

GIB = 1 << 30
LENGTH = 1024
SIZE = re.compile(r"KV cache size: ([\d,]+) tokens")

START = """
import json, sys
if __name__ == "__main__":
    from vllm import LLM
    LLM(**json.loads(sys.argv[1]))
"""

COMMON = {
    "bos_token_id": 0,
    "eos_token_id": 1,
    "hidden_act": "silu",
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
}
FULL = {
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"],
        "query_pre_attn_scalar": 64,
        "tie_word_embeddings": True,
    },
    "deepseek3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "q_lora_rank": 128,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "n_shared_experts": 1,
        "moe_intermediate_size": 128,
        "first_k_dense_replace": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
    },
    "qwen3next": {
        "architectures": ["Qwen3NextForCausalLM"],
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 128,
        "linear_conv_kernel_dim": 4,
    },
}
"""What the models need beside what decides the size of the cache."""


def logged(name: str) -> dict[str, Any]:
    """Return the deciding part of a configuration."""
    return next(one.config for one in LOGGED if one.name.startswith(name))


def real_size(model: Path, place: Path, **options: Any) -> int:
    """Start vLLM on a model without weights and return the size that it logs."""
    python = vllm_cpu.environment() / "bin" / "python"
    words = {
        "model": str(model),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "max_model_len": LENGTH,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 2048,
        "enforce_eager": True,
        **options,
    }
    script = place / "start.py"
    script.write_text(START)
    log = place / "log"
    env = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    env.pop("PYTHONPATH", None)
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [python, "-P", script, json.dumps(words)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=env,
            cwd="/",
            start_new_session=True,
        )
        try:
            child.wait(timeout=400)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            child.wait(timeout=30)
            assert not _left(child.pid)
    found = SIZE.search(log.read_text(errors="replace"))
    assert found is not None, log.read_text(errors="replace")[-3000:]
    return int(found[1].replace(",", ""))


def _left(session: int) -> list[int]:
    """Return what of a session is there after a while."""
    deadline = time.monotonic() + 20
    while (there := session_members(session)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return list(there)


@pytest.mark.parametrize(
    ("name", "block"), [("gemma3", 128), ("deepseek3", 16), ("qwen3next", 128)]
)
def test_size_of_the_cache(tmp_path: Path, name: str, block: int) -> None:
    """Windows, latent attention and states: within 5 % of what vLLM logs."""
    config = {**COMMON, **LLAMA, **logged(name), **FULL[name]}
    config = {key: value for key, value in config.items() if value is not None}
    model = write(tmp_path / "model", config)
    options = Options(
        memory=16 * GIB,
        kv_bytes=GIB,
        block=block,
        batched=2048,
        max_len=LENGTH,
        ssm="float32",
        prefixes=True,
    )
    planned = capacity.plan(folder.read(model), options).kv_tokens
    real = real_size(model, tmp_path)
    assert planned == pytest.approx(real, rel=0.05)
