# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""One file a step: it reads facts, plans, acts on its plan and returns a result."""
