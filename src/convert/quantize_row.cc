// SPDX-License-Identifier: Apache-2.0
#include "convert/quantize_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/result.h"
#include "convert/quantize_k.h"
#include "convert/quantize_table.h"
#include "convert/scale_search.h"
#include "tensor/block.h"
#include "tensor/half.h"

namespace nanomind {
namespace {

using Codes = std::array<uint8_t, kBlock>;

// Low nibbles of the block's first half, high nibbles of its second.
void put_nibbles(const Codes& codes, uint8_t* qs) {
  for (int j = 0; j < kBlock / 2; ++j)
    qs[j] = static_cast<uint8_t>((codes[j] & 15) | (codes[j + kBlock / 2] & 15) << 4);
}

void put_fifth_bits(const Codes& codes, uint8_t* qh) {
  uint32_t bits = 0;
  for (int i = 0; i < kBlock; ++i) bits |= uint32_t{codes[i] >> 4U & 1U} << i;
  std::memcpy(qh, &bits, sizeof bits);
}

Numbers by_size(const float* x) { return {{x, kBlock}, importance_by_size({x, kBlock})}; }

// Signed codes of one scale, from 0 on.
uint16_t fit_codes(const float* x, CodeRange range, int tries, Codes& codes) {
  std::array<int8_t, kBlock> signed_codes;
  const SymmetricFit fit = fit_symmetric(by_size(x), range, tries, signed_codes);
  for (int i = 0; i < kBlock; ++i) codes[i] = static_cast<uint8_t>(signed_codes[i] - range.low);
  return half_from_float(fit.d);
}

void quantize(const float* x, BlockQ4_0& b) {
  Codes codes;
  b.d = fit_codes(x, {-8, 7}, 10, codes);
  put_nibbles(codes, b.qs);
}

void quantize(const float* x, BlockQ5_0& b) {
  Codes codes;
  b.d = fit_codes(x, {-16, 15}, 10, codes);
  put_nibbles(codes, b.qs);
  put_fifth_bits(codes, b.qh);
}

void quantize(const float* x, BlockQ8_0& b) {
  b.d = half_from_float(fit_symmetric(by_size(x), {-127, 127}, 3, b.qs).d);
}

void quantize(const float* x, BlockQ4_1& b) {
  Codes codes;
  const OffsetFit fit = fit_offset(by_size(x), 15, Offset::any, true, codes);
  b.d = half_from_float(fit.d);
  b.m = half_from_float(fit.m);
  put_nibbles(codes, b.qs);
}

void quantize(const float* x, BlockQ5_1& b) {
  Codes codes;
  const OffsetFit fit = fit_offset(by_size(x), 31, Offset::any, true, codes);
  b.d = half_from_float(fit.d);
  b.m = half_from_float(fit.m);
  put_nibbles(codes, b.qs);
  put_fifth_bits(codes, b.qh);
}

template <typename Block, int kElements>
void quantize_blocks(const float* row, int64_t columns, std::byte* out) {
  for (int64_t i = 0; i < columns / kElements; ++i) {
    Block block;
    quantize(row + i * kElements, block);
    std::memcpy(out + i * static_cast<int64_t>(sizeof block), &block, sizeof block);
  }
}

template <uint16_t (*kConvert)(float)>
void convert_each(const float* row, int64_t columns, std::byte* out) {
  for (int64_t i = 0; i < columns; ++i) {
    const uint16_t value = kConvert(row[i]);
    std::memcpy(out + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
  }
}

}  // namespace

void quantize_row(DType dtype, const float* row, int64_t columns, std::byte* out) {
  switch (dtype) {
    case DType::f32: std::memcpy(out, row, static_cast<size_t>(columns) * sizeof(float)); return;
    case DType::f16: return convert_each<half_from_float>(row, columns, out);
    case DType::bf16: return convert_each<bf16_from_float>(row, columns, out);
    case DType::q4_0: return quantize_blocks<BlockQ4_0, kBlock>(row, columns, out);
    case DType::q4_1: return quantize_blocks<BlockQ4_1, kBlock>(row, columns, out);
    case DType::q5_0: return quantize_blocks<BlockQ5_0, kBlock>(row, columns, out);
    case DType::q5_1: return quantize_blocks<BlockQ5_1, kBlock>(row, columns, out);
    case DType::q8_0: return quantize_blocks<BlockQ8_0, kBlock>(row, columns, out);
    case DType::q2_k: return quantize_blocks<BlockQ2_K, kSuperBlock>(row, columns, out);
    case DType::q3_k: return quantize_blocks<BlockQ3_K, kSuperBlock>(row, columns, out);
    case DType::q4_k: return quantize_blocks<BlockQ4_K, kSuperBlock>(row, columns, out);
    case DType::q5_k: return quantize_blocks<BlockQ5_K, kSuperBlock>(row, columns, out);
    case DType::q6_k: return quantize_blocks<BlockQ6_K, kSuperBlock>(row, columns, out);
    case DType::iq4_nl: return quantize_blocks<BlockIQ4_NL, kBlock>(row, columns, out);
    case DType::iq4_xs: return quantize_blocks<BlockIQ4_XS, kSuperBlock>(row, columns, out);
    case DType::mxfp4: return quantize_blocks<BlockMXFP4, kBlock>(row, columns, out);
  }
}

}  // namespace nanomind
