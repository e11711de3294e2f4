// SPDX-License-Identifier: Apache-2.0
// Packing GGUF rows into the layouts of packed_layout.h and back, bit for bit. Portable code; all functions are pure
// and thread-safe, so callers spread row groups over threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace nanomind {

// Bumped whenever packed bytes change their meaning; part of a side file's identity.
inline constexpr uint32_t kPackedVersion = 1;

struct PackedTraits {
  uint32_t block_columns;
  uint32_t block_bytes;  // for 16 rows
};
const PackedTraits& packed_traits(DType dtype);

// Bytes of one group of 16 rows, and of the whole matrix [rows, columns].
size_t packed_group_bytes(DType dtype, int64_t columns);
size_t packed_bytes(DType dtype, int64_t rows, int64_t columns);

// Packs `rows` (1..16) consecutive GGUF rows at `source` (row_bytes(dtype, columns) apart) into `group`, which has
// packed_group_bytes and is 64-byte aligned. Columns are a multiple of the dtype's block.
void pack_group(DType dtype, const std::byte* source, int rows, int64_t columns, std::byte* group);

// The inverse: writes the GGUF bytes of the group's first `rows` rows.
void unpack_group(DType dtype, const std::byte* group, int rows, int64_t columns, std::byte* target);

// Row `row` of a packed matrix as floats (token embeddings); out has `columns` elements.
void packed_row_to_float(DType dtype, std::span<const std::byte> matrix, int64_t row, int64_t columns, float* out);

}  // namespace nanomind
