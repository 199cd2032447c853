// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace rig_sample {

// True when `code` is an error, whose text then stands in `where`.
inline bool failed(cudaError_t code, const char* what, std::string& where) {
  if (code == cudaSuccess) return false;
  where = std::string(what) + ": " + cudaGetErrorName(code) + " (" +
          cudaGetErrorString(code) + ")";
  return true;
}

// A kernel without code for this GPU fails at launch and leaves its output untouched:
// without this look the old numbers would pass for results.
inline bool launch_failed(const char* what, std::string& where) {
  return failed(cudaGetLastError(), what, where) ||
         failed(cudaDeviceSynchronize(), what, where);
}

}  // namespace rig_sample
