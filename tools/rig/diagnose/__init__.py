# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Logs in, causes out; below all that fails, since builds and servers ask it why."""
