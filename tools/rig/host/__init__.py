# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Facts about this machine: read, never changed. A probe that fails is unknown, never a
guess.
"""
