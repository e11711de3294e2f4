// SPDX-License-Identifier: Apache-2.0
#include "ops/reference/dequantize.h"

#include <cstring>

#include "tensor/block.h"
#include "tensor/half.h"

namespace nanomind::reference {
namespace {

template <typename T>
T load(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

void dequantize(const BlockQ4_0& b, float* out) {
  const float d = float_from_half(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((b.qs[j] & 15) - 8);
    out[j + 16] = d * static_cast<float>((b.qs[j] >> 4) - 8);
  }
}

void dequantize(const BlockQ4_1& b, float* out) {
  const float d = float_from_half(b.d), m = float_from_half(b.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(b.qs[j] & 15) + m;
    out[j + 16] = d * static_cast<float>(b.qs[j] >> 4) + m;
  }
}

void dequantize(const BlockQ5_0& b, float* out) {
  const float d = float_from_half(b.d);
  const uint32_t high = load<uint32_t>(reinterpret_cast<const std::byte*>(b.qh));
  for (int j = 0; j < 16; ++j) {
    const int low_code = (b.qs[j] & 15) | static_cast<int>(high >> j & 1) << 4;
    const int high_code = (b.qs[j] >> 4) | static_cast<int>(high >> (j + 16) & 1) << 4;
    out[j] = d * static_cast<float>(low_code - 16);
    out[j + 16] = d * static_cast<float>(high_code - 16);
  }
}

void dequantize(const BlockQ5_1& b, float* out) {
  const float d = float_from_half(b.d), m = float_from_half(b.m);
  const uint32_t high = load<uint32_t>(reinterpret_cast<const std::byte*>(b.qh));
  for (int j = 0; j < 16; ++j) {
    const int low_code = (b.qs[j] & 15) | static_cast<int>(high >> j & 1) << 4;
    const int high_code = (b.qs[j] >> 4) | static_cast<int>(high >> (j + 16) & 1) << 4;
    out[j] = d * static_cast<float>(low_code) + m;
    out[j + 16] = d * static_cast<float>(high_code) + m;
  }
}

void dequantize(const BlockQ8_0& b, float* out) {
  const float d = float_from_half(b.d);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(b.qs[j]);
}

void dequantize(const BlockQ2_K& b, float* out) {
  const float d = float_from_half(b.d), dmin = float_from_half(b.dmin);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, j = i % 128 / 32, l = i % 32;
    const float scale = d * static_cast<float>(b.scales[i / 16] & 15);
    const float min = dmin * static_cast<float>(b.scales[i / 16] >> 4);
    out[i] = scale * static_cast<float>(b.qs[32 * half + l] >> (2 * j) & 3) - min;
  }
}

void dequantize(const BlockQ3_K& b, float* out) {
  const float d = float_from_half(b.d);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, j = i % 128 / 32, l = i % 32, s = i / 16;
    const int scale_low = s < 8 ? b.scales[s] & 15 : b.scales[s - 8] >> 4;
    const int scale_high = b.scales[8 + s % 4] >> (2 * (s / 4)) & 3;
    const int low = b.qs[32 * half + l] >> (2 * j) & 3, high = b.hmask[l] >> (i / 32) & 1;
    out[i] = d * static_cast<float>((scale_low | scale_high << 4) - 32) * static_cast<float>((low | high << 2) - 4);
  }
}

// Scale and min i of 6 bits, packed in 12 bytes.
int six_bit_scale(const uint8_t* s, int i) { return i < 4 ? s[i] & 63 : (s[i + 4] & 15) | (s[i - 4] >> 6) << 4; }
int six_bit_min(const uint8_t* s, int i) { return i < 4 ? s[i + 4] & 63 : (s[i + 4] >> 4) | (s[i] >> 6) << 4; }

void dequantize(const BlockQ4_K& b, float* out) {
  const float d = float_from_half(b.d), dmin = float_from_half(b.dmin);
  for (int i = 0; i < 8; ++i) {
    const float ds = d * static_cast<float>(six_bit_scale(b.scales, i));
    const float dm = dmin * static_cast<float>(six_bit_min(b.scales, i));
    for (int j = 0; j < 32; ++j) {
      const uint8_t byte = b.qs[32 * (i / 2) + j];
      const int code = i % 2 == 0 ? byte & 15 : byte >> 4;
      out[32 * i + j] = ds * static_cast<float>(code) - dm;
    }
  }
}

void dequantize(const BlockQ5_K& b, float* out) {
  const float d = float_from_half(b.d), dmin = float_from_half(b.dmin);
  for (int i = 0; i < 8; ++i) {
    const float ds = d * static_cast<float>(six_bit_scale(b.scales, i));
    const float dm = dmin * static_cast<float>(six_bit_min(b.scales, i));
    for (int j = 0; j < 32; ++j) {
      const uint8_t byte = b.qs[32 * (i / 2) + j];
      const int code = (i % 2 == 0 ? byte & 15 : byte >> 4) | (b.qh[j] >> i & 1) << 4;
      out[32 * i + j] = ds * static_cast<float>(code) - dm;
    }
  }
}

void dequantize(const BlockQ6_K& b, float* out) {
  const float d = float_from_half(b.d);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, j = i % 128 / 32, l = i % 32;
    const uint8_t low_byte = b.ql[64 * half + 32 * (j & 1) + l];
    const int low = j < 2 ? low_byte & 15 : low_byte >> 4;
    const int high = b.qh[32 * half + l] >> (2 * j) & 3;
    out[i] = d * static_cast<float>(b.scales[i / 16]) * static_cast<float>((low | high << 4) - 32);
  }
}

void dequantize(const BlockIQ4_NL& b, float* out) {
  const float d = float_from_half(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * kIq4Values[b.qs[j] & 15];
    out[j + 16] = d * kIq4Values[b.qs[j] >> 4];
  }
}

void dequantize(const BlockIQ4_XS& b, float* out) {
  const float d = float_from_half(b.d);
  for (int i = 0; i < 8; ++i) {
    const int low = b.scales_l[i / 2] >> (4 * (i % 2)) & 15, high = b.scales_h >> (2 * i) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (int j = 0; j < 16; ++j) {
      out[32 * i + j] = scale * kIq4Values[b.qs[16 * i + j] & 15];
      out[32 * i + j + 16] = scale * kIq4Values[b.qs[16 * i + j] >> 4];
    }
  }
}

void dequantize(const BlockMXFP4& b, float* out) {
  const float scale = float_from_e8m0_half(b.e);
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * kMxfp4Values[b.qs[j] & 15];
    out[j + 16] = scale * kMxfp4Values[b.qs[j] >> 4];
  }
}

template <typename Block, int kElements>
void dequantize_blocks(const std::byte* row, int64_t columns, float* out) {
  for (int64_t i = 0; i < columns / kElements; ++i) {
    dequantize(load<Block>(row + i * static_cast<int64_t>(sizeof(Block))), out + i * kElements);
  }
}

}  // namespace

void dequantize_row(DType dtype, const std::byte* row, int64_t columns, float* out) {
  switch (dtype) {
    case DType::f32: std::memcpy(out, row, static_cast<size_t>(columns) * sizeof(float)); return;
    case DType::f16:
      for (int64_t i = 0; i < columns; ++i) out[i] = float_from_half(load<uint16_t>(row + 2 * i));
      return;
    case DType::bf16:
      for (int64_t i = 0; i < columns; ++i) out[i] = float_from_bf16(load<uint16_t>(row + 2 * i));
      return;
    case DType::q4_0: return dequantize_blocks<BlockQ4_0, kBlock>(row, columns, out);
    case DType::q4_1: return dequantize_blocks<BlockQ4_1, kBlock>(row, columns, out);
    case DType::q5_0: return dequantize_blocks<BlockQ5_0, kBlock>(row, columns, out);
    case DType::q5_1: return dequantize_blocks<BlockQ5_1, kBlock>(row, columns, out);
    case DType::q8_0: return dequantize_blocks<BlockQ8_0, kBlock>(row, columns, out);
    case DType::q2_k: return dequantize_blocks<BlockQ2_K, kSuperBlock>(row, columns, out);
    case DType::q3_k: return dequantize_blocks<BlockQ3_K, kSuperBlock>(row, columns, out);
    case DType::q4_k: return dequantize_blocks<BlockQ4_K, kSuperBlock>(row, columns, out);
    case DType::q5_k: return dequantize_blocks<BlockQ5_K, kSuperBlock>(row, columns, out);
    case DType::q6_k: return dequantize_blocks<BlockQ6_K, kSuperBlock>(row, columns, out);
    case DType::iq4_nl: return dequantize_blocks<BlockIQ4_NL, kBlock>(row, columns, out);
    case DType::iq4_xs: return dequantize_blocks<BlockIQ4_XS, kSuperBlock>(row, columns, out);
    case DType::mxfp4: return dequantize_blocks<BlockMXFP4, kBlock>(row, columns, out);
  }
}

}  // namespace nanomind::reference
