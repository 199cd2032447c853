# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Who uses this environment: a lock that a build holds, and a scan of processes."""
