# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Prints the YAML on standard input as JSON, with the YAML reader that vLLM uses.

Runs as a plain script with the environment's Python, isolated, and imports nothing of
ours: ``python -I config_child.py``.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def main() -> int:
    """Print keys and values in order; what JSON lacks becomes text, as in vLLM."""
    yaml: Any = importlib.import_module("yaml")
    data = yaml.safe_load(sys.stdin)
    pairs = None
    if isinstance(data, dict):
        pairs = [[key, value] for key, value in data.items()]
    print(json.dumps(pairs, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
