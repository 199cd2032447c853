// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
#pragma once

namespace rig_sample_dep {

// Sum of `value` over a block of `Threads` (a power of two); thread 0 gets it.
template <int Threads, typename T>
__device__ T block_sum(T value) {
  static_assert((Threads & (Threads - 1)) == 0, "Threads must be a power of two");
  __shared__ T shared[Threads];
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int step = Threads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
    __syncthreads();
  }
  return shared[0];
}

}  // namespace rig_sample_dep
