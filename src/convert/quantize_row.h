// SPDX-License-Identifier: Apache-2.0
// Floats to the types of GGUF. Of all blocks that were tried for the given numbers, the one with the least sum of
// squared errors is written, so the result depends on nothing but the row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace nanomind {

// One row of `columns` finite elements, a multiple of the type's block; out has row_bytes(dtype, columns). Thread-safe.
void quantize_row(DType dtype, const float* row, int64_t columns, std::byte* out);

}  // namespace nanomind
