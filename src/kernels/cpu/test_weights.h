// SPDX-License-Identifier: Apache-2.0
// Weights for the tests of products: as GGUF rows, packed, and as the numbers that they stand for (dequantised by
// ops/reference).
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/cpu/test_support.h"
#include "ops/reference/dequantize.h"
#include "tensor/half.h"
#include "tensor/packed.h"
#include "tensor/packed_layout.h"

namespace nanomind {

// In the order of IntWeight.
struct IntType {
  DType dtype;
  IntWeight weight;
  size_t halves;  // at which byte of a block its half floats begin
  int half_count;
};
inline constexpr IntType kIntTypes[] = {
    {DType::q4_0, IntWeight::q4_0, 0, 1},     {DType::q4_1, IntWeight::q4_1, 0, 2},
    {DType::q5_0, IntWeight::q5_0, 0, 1},     {DType::q5_1, IntWeight::q5_1, 0, 2},
    {DType::q8_0, IntWeight::q8_0, 0, 1},     {DType::q2_k, IntWeight::q2_k, 80, 2},
    {DType::q3_k, IntWeight::q3_k, 108, 1},   {DType::q4_k, IntWeight::q4_k, 0, 2},
    {DType::q5_k, IntWeight::q5_k, 0, 2},     {DType::q6_k, IntWeight::q6_k, 208, 1},
    {DType::iq4_nl, IntWeight::iq4_nl, 0, 1}, {DType::iq4_xs, IntWeight::iq4_xs, 0, 1},
    {DType::mxfp4, IntWeight::mxfp4, 0, 0},
};

struct FloatType {
  DType dtype;
  FloatWeight weight;
};
inline constexpr FloatType kFloatTypes[] = {
    {DType::f32, FloatWeight::f32}, {DType::f16, FloatWeight::f16}, {DType::bf16, FloatWeight::bf16}};

// A weight matrix as GGUF rows, as floats and packed.
struct Weights {
  DType dtype;
  int64_t rows, columns;
  std::vector<std::byte> source;
  std::vector<float> values;
  AlignedBytes packed;

  Weights(DType type, int64_t row_count, int64_t column_count, std::vector<std::byte> bytes)
      : dtype(type), rows(row_count), columns(column_count), source(std::move(bytes)) {
    const size_t stride = row_bytes(dtype, static_cast<size_t>(columns));
    values.resize(static_cast<size_t>(rows * columns));
    packed = aligned_bytes(packed_bytes(dtype, rows, columns));
    for (int64_t r = 0; r < rows; ++r) {
      reference::dequantize_row(dtype, source.data() + static_cast<size_t>(r) * stride, columns,
                                &values[static_cast<size_t>(r * columns)]);
    }
    for (int64_t r = 0; r < rows; r += kGroupRows) {
      pack_group(dtype, source.data() + static_cast<size_t>(r) * stride,
                 static_cast<int>(std::min<int64_t>(kGroupRows, rows - r)), columns,
                 packed.get() + static_cast<size_t>(r / kGroupRows) * packed_group_bytes(dtype, columns));
    }
  }
  int groups() const { return static_cast<int>((rows + kGroupRows - 1) / kGroupRows); }
};

enum class Codes { random, extreme };

// Codes are random, or each byte all ones or all zeros; scales lie in [-1, 1].
inline Weights int_weights(const IntType& type, int64_t rows, int64_t columns, Codes codes, std::mt19937& random) {
  const DTypeTraits& t = traits(type.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(rows) * row_bytes(type.dtype, static_cast<size_t>(columns)));
  for (std::byte& b : bytes) b = static_cast<std::byte>(codes == Codes::random ? random() : random() % 4 ? 0xFF : 0);
  std::uniform_real_distribution<float> scale(-1, 1);
  for (size_t block = 0; block < bytes.size(); block += t.block_bytes) {
    for (int i = 0; i < type.half_count; ++i) {
      const uint16_t h = half_from_float(scale(random));
      std::memcpy(&bytes[block + type.halves + 2 * static_cast<size_t>(i)], &h, sizeof h);
    }
    if (type.dtype == DType::mxfp4) bytes[block] = static_cast<std::byte>(118 + random() % 8);  // 2^(this - 128)
  }
  return {type.dtype, rows, columns, std::move(bytes)};
}

inline Weights float_weights(const FloatType& type, int64_t rows, int64_t columns, const std::vector<float>& source) {
  std::vector<std::byte> bytes(static_cast<size_t>(rows) * row_bytes(type.dtype, static_cast<size_t>(columns)));
  for (size_t i = 0; i < source.size(); ++i) {
    const uint16_t narrow = type.dtype == DType::f16 ? half_from_float(source[i]) : bf16_from_float(source[i]);
    if (type.dtype == DType::f32)
      std::memcpy(&bytes[4 * i], &source[i], 4);
    else
      std::memcpy(&bytes[2 * i], &narrow, 2);
  }
  return {type.dtype, rows, columns, std::move(bytes)};
}

}  // namespace nanomind
