// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
#include <rig_sample_dep/block_sum.cuh>

#include "check.cuh"
#include "kernels.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

namespace rig_sample {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 64;

__global__ void sum_squares(int* out, int count) {
  int value = 0;
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count; i += kBlocks * kThreads)
    value += (i % 7) * (i % 7);
  const int sum = rig_sample_dep::block_sum<kThreads>(value);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

}  // namespace

const char* arch_list() { return RIG_SAMPLE_ARCH_LIST; }

const char* nvcc_version() {
  return TEXT(__CUDACC_VER_MAJOR__) "." TEXT(__CUDACC_VER_MINOR__) "." TEXT(
      __CUDACC_VER_BUILD__);
}

void prove_narrow(Proof& proof) {
  constexpr int kCount = 1 << 20;
  cudaDeviceProp prop{};
  if (failed(cudaGetDeviceProperties(&prop, 0), "cudaGetDeviceProperties", proof.error))
    return;
  proof.device = prop.name;
  proof.sm = prop.major * 10 + prop.minor;

  int* out = nullptr;
  if (failed(cudaMallocManaged(&out, kBlocks * sizeof(int)), "cudaMallocManaged",
             proof.error))
    return;
  sum_squares<<<kBlocks, kThreads>>>(out, kCount);
  if (!launch_failed("sum_squares", proof.error)) {
    for (int block = 0; block < kBlocks && proof.error.empty(); ++block) {
      int want = 0;
      for (int thread = 0; thread < kThreads; ++thread)
        for (int i = block * kThreads + thread; i < kCount; i += kBlocks * kThreads)
          want += (i % 7) * (i % 7);
      ++proof.checked;
      if (out[block] != want) proof.error = "sum_squares: a wrong sum";
    }
  }
  cudaFree(out);
}

}  // namespace rig_sample
