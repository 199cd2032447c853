# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Allow-lists: the variables, processes and options that may stand in a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import regex as re

_PREFIXES = (
    "CUDA_",
    "CMAKE_",
    "FLASHINFER_",
    "FLASH_ATTN_",
    "HF_HUB_",
    "LC_",
    "NCCL_",
    "NVCC_",
    "NVIDIA_",
    "OMP_",
    "ONECAT_",
    "PIP_",
    "PYTORCH_",
    "RAY_",
    "SCCACHE_",
    "CCACHE_",
    "TORCH_",
    "TORCHINDUCTOR_",
    "TRITON_",
    "UV_",
    "VLLM_",
    "GLOO_",
)
_NAMES = frozenset(
    """
    PATH LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH CPATH PYTHONPATH PYTHONHOME VIRTUAL_ENV
    CONDA_PREFIX CONDA_DEFAULT_ENV MAX_JOBS CC CXX CUDAHOSTCXX CFLAGS CXXFLAGS LDFLAGS
    LANG LANGUAGE TMPDIR SHELL TERM HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy
    https_proxy no_proxy all_proxy SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE HF_HOME
    HF_ENDPOINT TRANSFORMERS_OFFLINE TRANSFORMERS_CACHE CI GITHUB_ACTIONS
    XDG_CACHE_HOME XDG_CONFIG_HOME XDG_STATE_HOME WSL_DISTRO_NAME container
    SLURM_JOB_ID HF_TOKEN OPENAI_API_KEY MODELSCOPE_CACHE VERBOSE USE_CCACHE
    FETCHCONTENT_BASE_DIR
    """.strip().split()
)
_PROGRAM = re.compile(
    r"vllm|invoke|nox|nvcc|cicc|ptxas|cc1plus|ninja|cmake|ray|raylet|nvidia-smi"
)
_OUR_WORD = re.compile(
    r"vllm|vllm\.\w[\w.]*|serve|tools\.rig(?:\.\w+)*|rebuild-sm70-v100\.sh|build-sm70"
)
_VALUES = frozenset(
    """
    model served-model-name host port tensor-parallel-size pipeline-parallel-size tp pp
    data-parallel-size dtype kv-cache-dtype quantization max-model-len max-num-seqs
    max-num-batched-tokens gpu-memory-utilization swap-space cpu-offload-gb block-size
    enforce-eager disable-custom-all-reduce trust-remote-code tokenizer tokenizer-mode
    load-format download-dir revision seed attention-backend enable-prefix-caching
    enable-chunked-prefill num-scheduler-steps max-seq-len-to-capture compilation-config
    speculative-config tool-call-parser reasoning-parser chat-template task runner
    distributed-executor-backend limit-mm-per-prompt uvicorn-log-level max-loras
    enable-lora max-lora-rank rope-scaling rope-theta guided-decoding-backend profile
    source jobs wheel json python version j parallel build target m arch std gencode
    """.strip().split()
)
_PLAIN = re.compile(r"-?\d[\d.]{0,16}|true|false|auto|none|on|off", re.IGNORECASE)
HIDDEN = "..."


def is_shown_variable(name: str) -> bool:
    """Say whether a variable of this name tells something about builds or servers."""
    return name in _NAMES or name.startswith(_PREFIXES)


def is_ours(words: Sequence[str], environment: Path | None) -> bool:
    """Say whether a command line is that of a build, a server or a part of one."""
    if environment is not None and words[0].startswith(f"{environment}/"):
        return True
    program = words[0].rpartition("/")[2].rstrip(":")
    if _PROGRAM.fullmatch(program) or words[0].startswith(("VLLM::", "ray::")):
        return True
    ours = [w for w in words[1:6] if _OUR_WORD.fullmatch(w.rpartition("/")[2])]
    return program.startswith("python") and bool(ours)


def argument_words(words: Sequence[str]) -> list[str]:
    """Return a command line in which only allowed values are shown.

    Names of options are no secret; a value is shown behind an option of the allow-list,
    or when it is a number or a switch. Of other words only the first few are shown that
    say what is run.
    """
    out = [words[0]]
    option = ""
    # a program, a module behind -m, a subcommand: "python -m vllm...", "vllm serve M"
    free = 3 if _OUR_WORD.search(" ".join(words[1:4])) else 0
    for word in words[1:]:
        name, sep, value = word.partition("=")
        if word.startswith("-"):
            bare = name.lstrip("-").replace("_", "-")
            if sep and bare not in _VALUES and not _PLAIN.fullmatch(value):
                word = f"{name}={HIDDEN}"
            out.append(word if len(name) <= 64 else HIDDEN)
            option = "" if sep else bare
            continue
        if option:
            shown = option in _VALUES or bool(_PLAIN.fullmatch(word))
        else:
            shown = free > 0 or bool(_OUR_WORD.fullmatch(word))
        free -= 1
        out.append(word if shown else HIDDEN)
        option = ""
    return out
