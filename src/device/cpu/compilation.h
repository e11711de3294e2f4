// SPDX-License-Identifier: Apache-2.0
// What is compiled and for what, as every stage of the compiler reads it, and its weights as instructions take them.
#pragma once

#include <cstddef>
#include <span>

#include "device/cpu/weight_matrix.h"
#include "device/device.h"
#include "kernels/cpu/table.h"
#include "ops/program.h"

namespace nanomind::cpu {

// Owns nothing: program, options and kernels outlive it.
struct Compilation {
  const Program& program;
  const CompileOptions& options;
  const KernelTable& kernels;
  int threads;  // that run the result

  // `invalid_argument` or `corrupt` where the options' weights are not those of the program; all below need that they
  // are.
  Result<void> check_weights() const;

  const WeightInfo& weight(WeightId id) const { return program.weights[static_cast<size_t>(id)]; }
  std::span<const std::byte> bytes(WeightId id) const { return options.weights[static_cast<size_t>(id)]; }
  // Views of the options' weights. A vector is null for kNoWeight.
  WeightMatrix matrix(WeightId id) const;
  const float* vector(WeightId id) const;
};

}  // namespace nanomind::cpu
