// SPDX-License-Identifier: Apache-2.0
// A tensor of the file to be written: which rows of which source tensors it is made of, and what is done to them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/safetensors.h"
#include "tensor/shape.h"

namespace nanomind {

// Rows [first, first + rows) of a source. A vector of n counts as n rows of one column; a tensor of more than two
// dimensions as the matrices that it stacks, one below the other.
struct SourceRows {
  const SafetensorsTensor* source = nullptr;
  int64_t first = 0, rows = 0;
};

enum class Precision {
  chosen,  // the type that was chosen for the file
  plain,   // F16 where that was chosen, otherwise F32
  exact,   // F32
};

struct OutputTensor {
  std::string name;
  Shape shape;  // outermost first
  Precision precision = Precision::chosen;
  std::vector<SourceRows> sources;         // one below the other
  std::function<int64_t(int64_t)> row;     // which row of the sources becomes row i; empty: row i
  std::function<int64_t(int64_t)> column;  // likewise within a row
  std::function<float(float)> change;      // of every element; empty: none
  std::vector<float> constant;             // the elements, where there are no sources

  bool is_vector() const { return shape.rank == 1; }
  int64_t rows() const { return is_vector() ? shape[0] : shape.rows(); }
  int64_t columns() const { return is_vector() ? 1 : shape.columns(); }

  // Rows [first, first + count) as floats; out has count * columns(). Thread-safe.
  void read(int64_t first, int64_t count, std::span<float> out) const;
};

// The rows of the whole tensor.
SourceRows all_rows(const SafetensorsTensor& source);

// Fails unless floats can be made of the type.
Result<void> check_convertible(const SafetensorsTensor& source);

}  // namespace nanomind
