// SPDX-License-Identifier: Apache-2.0
// In which form products read a value: as activation units where they have few rows, packed by GemmKernels where many.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "device/cpu/instructions.h"
#include "ops/program.h"

namespace nanomind::cpu {

std::optional<IntWeight> int_weight(DType dtype);
FloatWeight float_weight(DType dtype);

struct Form {
  bool units = false;                  // any integer product reads the value
  bool few_as_floats, many_as_floats;  // whether anything reads its floats, of few rows, of many
  const GemmKernels* many = nullptr;
};

// All products of one value; each is an op::MatMul.
using Products = std::span<const Op* const>;

class FormChooser {
 public:
  FormChooser(const Program& program, const CompileOptions& options, const KernelTable& kernels);

  // What the products of a value read besides its floats.
  Form choose(ValueId id, Products products) const;

  // The function of `gemm` for weights of a type, or null. Float weights are kept as such for their accuracy: products
  // of 32-bit ones always stay in floats, those of 16-bit ones with PromptPrecision::high.
  Gemm multiply_many(const GemmKernels& gemm, DType dtype) const;

  // Whether attention may be computed in integers: of towers that are wide enough, where rows see all keys of a step.
  bool in_integers(const op::Attention& attention) const;

  int64_t max_rows(ValueId id) const {
    return program_.values[static_cast<size_t>(id)].rows == Rows::tokens ? options_.max_tokens : options_.max_outputs;
  }
  // Units of a row, padded for any type of weights.
  int64_t units(ValueId id) const;
  size_t bytes(ValueId id, const Form& form) const;
  // For panels of weights, of all threads.
  size_t scratch_bytes(const std::map<ValueId, Form>& forms, int threads) const;

 private:
  const ValueInfo& value(ValueId id) const { return program_.values[static_cast<size_t>(id)]; }
  DType dtype_of(const Op& product) const;
  // The operation that makes a value, if it is a T; else null.
  template <typename T>
  const T* maker(ValueId id) const {
    const auto op = makers_.find(id);
    return op == makers_.end() ? nullptr : std::get_if<T>(op->second);
  }
  bool serves(const GemmKernels& gemm, Products products) const;
  // Whether gemm_fast may have its weights.
  bool bears_bytes(const Op& product) const;
  bool may_be_fast(ValueId id) const;
  int64_t least_width(ValueId id) const;  // from which it may be
  const GemmKernels& fast_kernels(ValueId id) const;
  bool reads_pictures() const;
  bool attends() const;
  int64_t width() const;  // of the residual stream

  std::map<ValueId, const Op*> makers_;
  std::set<ValueId> read_as_floats_;  // by what is no product
  const Program& program_;
  const CompileOptions& options_;
  const KernelTable& kernels_;
};

}  // namespace nanomind::cpu
