# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Facts about this machine: read, never changed; a probe that fails is unknown."""
