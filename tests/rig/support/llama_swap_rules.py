# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What llama-swap takes of what is written for it: names, types, bounds.

From its ``config-schema.json`` of August 2026. It takes more than this; what is not
here is not written either, and a test should say so.
"""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string", "minLength": 1}

_MODEL: dict[str, Any] = {
    "type": "object",
    "required": ["cmd"],
    "additionalProperties": False,
    "properties": {
        "cmd": _TEXT,
        "proxy": _TEXT,
        "checkEndpoint": {"type": "string", "pattern": "^/"},
        "concurrencyLimit": {"type": "integer", "minimum": 0},
        "env": {
            "type": "array",
            "items": {"type": "string", "pattern": "^[A-Z_][A-Z0-9_]*="},
        },
        "useModelName": _TEXT,
        "ttl": {"type": "integer", "minimum": -1},
    },
}

_GROUP: dict[str, Any] = {
    "type": "object",
    "required": ["members"],
    "additionalProperties": False,
    "properties": {
        "swap": {"type": "boolean"},
        "exclusive": {"type": "boolean"},
        "members": {"type": "array", "items": _TEXT},
    },
}

RULES: dict[str, Any] = {
    "type": "object",
    "required": ["models"],
    "additionalProperties": False,
    "properties": {
        "healthCheckTimeout": {"type": "integer", "minimum": 15},
        "unloadTimeout": {"type": "integer", "minimum": 0},
        "startPort": {"type": "integer"},
        "logLevel": {"enum": ["debug", "info", "warn", "error"]},
        "apiKeys": {"type": "array", "items": _TEXT},
        "models": {"type": "object", "additionalProperties": _MODEL},
        "groups": {"type": "object", "additionalProperties": _GROUP},
    },
}
