// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
#pragma once

#include <string>

namespace rig_sample {

struct Proof {
  std::string device;
  int sm = 0;
  int checked = 0;
  std::string error;  // empty: every value was right
};

// What narrow.cu was compiled for and with.
const char* arch_list();
const char* nvcc_version();

// Each runs its kernel, adds what it compared to `proof`, and leaves a reason in `error`.
void prove_narrow(Proof& proof);
void prove_wide(Proof& proof);

}  // namespace rig_sample
