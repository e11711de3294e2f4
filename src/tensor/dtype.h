// SPDX-License-Identifier: Apache-2.0
// Element types of tensors as GGUF numbers them, with the size of their blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nanomind {

// Values equal the ggml type numbers of the GGUF specification, so a file's number is cast after `is_known`.
enum class DType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23,
  bf16 = 30,
  mxfp4 = 39,
};

// All of them.
inline constexpr DType kDTypes[] = {DType::f32,  DType::f16,    DType::bf16,   DType::q4_0, DType::q4_1, DType::q5_0,
                                    DType::q5_1, DType::q8_0,   DType::q2_k,   DType::q3_k, DType::q4_k, DType::q5_k,
                                    DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4};

struct DTypeTraits {
  std::string_view name;   // as GGUF tools print it: "Q4_K"
  uint32_t block_columns;  // elements per block along a row
  uint32_t block_bytes;    // bytes per block in the file
};

// Null for a number that we do not support.
std::optional<DType> dtype_from_gguf(uint32_t number);
// Name of any ggml type number, also of those we cannot run, for error messages; empty when unknown.
std::string_view gguf_type_name(uint32_t number);
const DTypeTraits& traits(DType dtype);

// Bytes of a row of `columns` elements in the file; columns must be a multiple of the block.
inline size_t row_bytes(DType dtype, size_t columns) {
  const DTypeTraits& t = traits(dtype);
  return columns / t.block_columns * t.block_bytes;
}

}  // namespace nanomind
