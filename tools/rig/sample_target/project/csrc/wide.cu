// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
// Includes much and instantiates much: a source that keeps the compiler busy for seconds.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <rig_sample_dep/block_sum.cuh>

#include "check.cuh"
#include "kernels.h"

namespace rig_sample {

namespace {

template <int Degree>
struct Polynomial {
  template <typename T>
  static __host__ __device__ T at(T x) {
    return Polynomial<Degree - 1>::at(x) * x + T(Degree % 5);
  }
};

template <>
struct Polynomial<0> {
  template <typename T>
  static __host__ __device__ T at(T) {
    return T(1);
  }
};

template <typename T, int Degree, int Threads>
__global__ void evaluate(T* out) {
  const T value = Polynomial<Degree>::at(T(threadIdx.x % 3));
  out[threadIdx.x] = value;
  const T sum = rig_sample_dep::block_sum<Threads>(value);
  if (threadIdx.x == 0) out[Threads] = sum;
}

template <typename T, int Degree, int Threads>
void prove_one(Proof& proof) {
  if (!proof.error.empty()) return;
  const std::string name = "evaluate<" + std::to_string(Degree) + ">";
  T* out = nullptr;
  if (failed(cudaMallocManaged(&out, (Threads + 1) * sizeof(T)), name.c_str(),
             proof.error))
    return;
  evaluate<T, Degree, Threads><<<1, Threads>>>(out);
  if (!launch_failed(name.c_str(), proof.error)) {
    T sum = 0;
    for (int i = 0; i < Threads; ++i) {
      const T want = Polynomial<Degree>::at(T(i % 3));
      sum += want;
      ++proof.checked;
      if (out[i] != want) proof.error = name + ": a wrong value";
    }
    if (out[Threads] != sum) proof.error = name + ": a wrong sum";
  }
  cudaFree(out);
}

template <typename T, int Threads, int... Degrees>
void prove_all(Proof& proof, std::integer_sequence<int, Degrees...>) {
  (prove_one<T, Degrees, Threads>(proof), ...);
}

}  // namespace

void prove_wide(Proof& proof) {
  // unsigned arithmetic wraps alike on both sides, so results are compared exactly
  prove_all<unsigned, 64>(proof, std::make_integer_sequence<int, 12>{});
  prove_all<unsigned, 128>(proof, std::make_integer_sequence<int, 12>{});
  prove_all<unsigned long long, 128>(proof, std::make_integer_sequence<int, 12>{});
  static const std::regex plain("[a-z_]+<[0-9]+>: .*|.*");
  if (!std::regex_match(proof.error, plain)) std::cerr << "rig_sample: odd message\n";
}

}  // namespace rig_sample
