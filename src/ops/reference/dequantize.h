// SPDX-License-Identifier: Apache-2.0
// GGUF blocks to floats, written plainly from the definitions in tensor/block.h: the truth that fast paths are tested
// against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace nanomind::reference {

// One row of `columns` elements (a multiple of the type's block) at `row`; out has `columns` floats.
void dequantize_row(DType dtype, const std::byte* row, int64_t columns, float* out);

}  // namespace nanomind::reference
