// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/compilation.h"

#include <fmt/format.h>

#include <optional>

#include "device/cpu/forms.h"
#include "tensor/packed.h"

namespace nanomind::cpu {

Result<void> Compilation::check_weights() const {
  if (options.weights.size() != program.weights.size()) {
    return fail(ErrorCode::invalid_argument, "The number of weights given does not match the program.");
  }
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const WeightInfo& info = program.weights[i];
    const size_t expected = info.shape.rank == 1 ? static_cast<size_t>(info.shape.elements()) * sizeof(float)
                                                 : packed_bytes(info.dtype, info.shape.rows(), info.shape.columns());
    if (options.weights[i].size() != expected) {
      return fail(ErrorCode::corrupt,
                  fmt::format("Weight {} has {} bytes, expected {}.", info.name, options.weights[i].size(), expected));
    }
  }
  return {};
}

WeightMatrix Compilation::matrix(WeightId id) const {
  const WeightInfo& info = weight(id);
  const Shape& shape = info.shape;
  const int64_t rows = shape.rank == 2 ? shape.rows() : shape[1];  // of one expert
  const int64_t columns = shape.columns(), block = packed_traits(info.dtype).block_columns;
  const std::optional<IntWeight> type = int_weight(info.dtype);
  return {.weights = bytes(id),
          .group_bytes = packed_group_bytes(info.dtype, columns),
          .groups = (rows + kGroupRows - 1) / kGroupRows,
          .columns = columns,
          .blocks = (columns + block - 1) / block,
          .multiply = type ? kernels.matmul[static_cast<int>(*type)] : nullptr,
          .multiply_float = type ? nullptr : kernels.matmul_float[static_cast<int>(float_weight(info.dtype))]};
}

const float* Compilation::vector(WeightId id) const {
  return id == kNoWeight ? nullptr : reinterpret_cast<const float*>(bytes(id).data());
}

}  // namespace nanomind::cpu
