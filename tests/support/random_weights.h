// SPDX-License-Identifier: Apache-2.0
// Random rows of any type with values of about unit size, as GGUF bytes, with their packed and their float form.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "ops/reference/dequantize.h"
#include "tensor/block.h"
#include "tensor/dtype.h"
#include "tensor/half.h"
#include "tensor/packed.h"

namespace nanomind::testing {

class RandomWeights {
 public:
  explicit RandomWeights(uint32_t seed) : random_(seed) {}

  // [rows, columns] in the file's form.
  std::vector<std::byte> gguf(DType dtype, int64_t rows, int64_t columns, float size) {
    std::vector<std::byte> bytes(static_cast<size_t>(rows) * row_bytes(dtype, static_cast<size_t>(columns)));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random_());
    const size_t block = traits(dtype).block_bytes;
    for (size_t at = 0; at < bytes.size(); at += block) set_scales(dtype, bytes.data() + at, size);
    return bytes;
  }

  std::vector<float> floats(int64_t n, float size) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& v : values) v = uniform(size);
    return values;
  }

 private:
  float uniform(float size) { return std::uniform_real_distribution<float>(-size, size)(random_); }
  void put(std::byte* at, uint16_t value) { std::memcpy(at, &value, 2); }

  // Codes are random bytes already; scales are chosen so that |w| is at most about `size`.
  void set_scales(DType dtype, std::byte* block, float size) {
    const float f = uniform(size);
    switch (dtype) {
      case DType::f32: std::memcpy(block, &f, 4); break;
      case DType::f16: put(block, half_from_float(f)); break;
      case DType::bf16: put(block, bf16_from_float(f)); break;
      case DType::q4_0: put(block, half_from_float(f / 8)); break;
      case DType::q5_0: put(block, half_from_float(f / 16)); break;
      case DType::q8_0: put(block, half_from_float(f / 128)); break;
      case DType::q4_1:
        put(block, half_from_float(f / 8));
        put(block + 2, half_from_float(-f));
        break;
      case DType::q5_1:
        put(block, half_from_float(f / 16));
        put(block + 2, half_from_float(-f));
        break;
      case DType::q2_k:
        put(block + offsetof(BlockQ2_K, d), half_from_float(f / (2 * 15)));
        put(block + offsetof(BlockQ2_K, dmin), half_from_float(f / 15));
        break;
      case DType::q3_k: put(block + offsetof(BlockQ3_K, d), half_from_float(f / (4 * 32))); break;
      case DType::q4_k:
        put(block, half_from_float(f / (8 * 63)));
        put(block + 2, half_from_float(f / 63));
        break;
      case DType::q5_k:
        put(block, half_from_float(f / (16 * 63)));
        put(block + 2, half_from_float(f / 63));
        break;
      case DType::q6_k: put(block + offsetof(BlockQ6_K, d), half_from_float(f / (32 * 128))); break;
      case DType::iq4_nl: put(block, half_from_float(f / 128)); break;
      case DType::iq4_xs: put(block, half_from_float(f / (128 * 32))); break;
      case DType::mxfp4: {
        int exponent = 0;  // |f| is at least half of 2^exponent
        std::frexp(f, &exponent);
        *block = static_cast<std::byte>(std::clamp(128 + exponent - 4, 0, 255));
        break;
      }
    }
  }

  std::mt19937 random_;
};

// Bytes with the alignment that packed weights have.
struct alignas(64) Line {
  std::byte bytes[64];
};
inline std::vector<Line> aligned(size_t bytes) { return std::vector<Line>((bytes + 63) / 64); }

inline std::vector<Line> pack(DType dtype, const std::vector<std::byte>& gguf, int64_t rows, int64_t columns) {
  std::vector<Line> packed = aligned(packed_bytes(dtype, rows, columns));
  std::byte* out = packed.data()->bytes;
  const size_t group = packed_group_bytes(dtype, columns), row = row_bytes(dtype, static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; r += 16) {
    const int n = static_cast<int>(rows - r < 16 ? rows - r : 16);
    pack_group(dtype, gguf.data() + static_cast<size_t>(r) * row, n, columns,
               out + static_cast<size_t>(r / 16) * group);
  }
  return packed;
}

inline std::vector<float> dequantize(DType dtype, const std::vector<std::byte>& gguf, int64_t rows, int64_t columns) {
  std::vector<float> out(static_cast<size_t>(rows * columns));
  const size_t row = row_bytes(dtype, static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r)
    reference::dequantize_row(dtype, gguf.data() + static_cast<size_t>(r) * row, columns, out.data() + r * columns);
  return out;
}

}  // namespace nanomind::testing
