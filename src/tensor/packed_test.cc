// SPDX-License-Identifier: Apache-2.0
// Packing loses no bit for any type and shape, keeps out of the padding, and reads back as the formulas of
// tensor/block.h say (here in double, element by element, written apart from the packing code).
#include "tensor/packed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/packed_layout.h"

namespace nanomind {
namespace {

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;

AlignedBytes aligned_bytes(size_t size) {
  AlignedBytes bytes(static_cast<std::byte*>(::operator new(size, std::align_val_t{64})));
  std::memset(bytes.get(), 0xA5, size);
  return bytes;
}

std::vector<std::byte> random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

double half(uint16_t h) { return float_from_half(h); }

template <typename Block>
Block block_at(const std::byte* at) {
  Block b;
  std::memcpy(&b, at, sizeof b);
  return b;
}

// Element `i` of a block of 256 by the formula of its type.
double element_of_256(DType dtype, const std::byte* at, int i) {
  // Scale and min s of the 6 bits that Q4_K and Q5_K have in 12 bytes.
  const auto scale_of = [](const uint8_t* b, int s) {
    return s < 4 ? b[s] & 63 : (b[s + 4] & 15) | (b[s - 4] >> 6) << 4;
  };
  const auto min_of = [](const uint8_t* b, int s) { return s < 4 ? b[s + 4] & 63 : b[s + 4] >> 4 | (b[s] >> 6) << 4; };
  switch (dtype) {
    case DType::q2_k: {
      const auto b = block_at<BlockQ2_K>(at);
      const int q = b.qs[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3, s = b.scales[i / 16];
      return half(b.d) * (s & 15) * q - half(b.dmin) * (s >> 4);
    }
    case DType::q3_k: {
      const auto b = block_at<BlockQ3_K>(at);
      const int low = b.qs[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3, high = b.hmask[i % 32] >> i / 32 & 1;
      const int s = i / 16, four = s < 8 ? b.scales[s] & 15 : b.scales[s - 8] >> 4;
      const int scale = (four | (b.scales[8 + s % 4] >> 2 * (s / 4) & 3) << 4) - 32;
      return half(b.d) * scale * ((low | high << 2) - 4);
    }
    case DType::q4_k: {
      const auto b = block_at<BlockQ4_K>(at);
      const int s = i / 32;
      const int byte = b.qs[32 * (s / 2) + i % 32];
      return half(b.d) * scale_of(b.scales, s) * (s % 2 ? byte >> 4 : byte & 15) - half(b.dmin) * min_of(b.scales, s);
    }
    case DType::q5_k: {
      const auto b = block_at<BlockQ5_K>(at);
      const int s = i / 32, byte = b.qs[32 * (s / 2) + i % 32];
      const int q = (s % 2 ? byte >> 4 : byte & 15) | (b.qh[i % 32] >> s & 1) << 4;
      return half(b.d) * scale_of(b.scales, s) * q - half(b.dmin) * min_of(b.scales, s);
    }
    case DType::q6_k: {
      const auto b = block_at<BlockQ6_K>(at);
      const int h = i / 128, j = i % 128 / 32, l = i % 32;
      const int byte = b.ql[64 * h + 32 * (j & 1) + l];
      const int q = (j < 2 ? byte & 15 : byte >> 4) | (b.qh[32 * h + l] >> 2 * j & 3) << 4;
      return half(b.d) * b.scales[i / 16] * (q - 32);
    }
    case DType::iq4_xs: {
      const auto b = block_at<BlockIQ4_XS>(at);
      const int s = i / 32, byte = b.qs[16 * s + i % 16];
      const int scale = (b.scales_l[s / 2] >> 4 * (s % 2) & 15) | (b.scales_h >> 2 * s & 3) << 4;
      return half(b.d) * (scale - 32) * kIq4Values[i % 32 < 16 ? byte & 15 : byte >> 4];
    }
    default: return NAN;
  }
}

// Element `c` of a GGUF row by the formula of its type.
double element(DType dtype, const std::byte* row, int64_t c) {
  const DTypeTraits& t = traits(dtype);
  const std::byte* at = row + c / t.block_columns * t.block_bytes;
  const int i = static_cast<int>(c % t.block_columns);
  const auto nibble = [&](const uint8_t* qs) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; };
  switch (dtype) {
    case DType::f32: return block_at<float>(at);
    case DType::f16: return half(block_at<uint16_t>(at));
    case DType::bf16: return float_from_bf16(block_at<uint16_t>(at));
    case DType::q4_0: {
      const auto b = block_at<BlockQ4_0>(at);
      return half(b.d) * (nibble(b.qs) - 8);
    }
    case DType::q4_1: {
      const auto b = block_at<BlockQ4_1>(at);
      return half(b.d) * nibble(b.qs) + half(b.m);
    }
    case DType::q5_0: {
      const auto b = block_at<BlockQ5_0>(at);
      return half(b.d) * ((nibble(b.qs) | (b.qh[i / 8] >> i % 8 & 1) << 4) - 16);
    }
    case DType::q5_1: {
      const auto b = block_at<BlockQ5_1>(at);
      return half(b.d) * (nibble(b.qs) | (b.qh[i / 8] >> i % 8 & 1) << 4) + half(b.m);
    }
    case DType::q8_0: {
      const auto b = block_at<BlockQ8_0>(at);
      return half(b.d) * b.qs[i];
    }
    case DType::iq4_nl: {
      const auto b = block_at<BlockIQ4_NL>(at);
      return half(b.d) * kIq4Values[nibble(b.qs)];
    }
    case DType::mxfp4: {  // as a float, since 2^127 * 12 has none
      const auto b = block_at<BlockMXFP4>(at);
      return static_cast<float>(std::ldexp(kMxfp4Values[nibble(b.qs)], b.e - 128));
    }
    default: return element_of_256(dtype, at, i);
  }
}

// The largest magnitude of scale * q where a min is added to that, 0 elsewhere.
double largest_term(DType dtype) {
  constexpr double kLargestHalf = 65504;
  switch (dtype) {
    case DType::q4_1: return kLargestHalf * 15;
    case DType::q5_1: return kLargestHalf * 31;
    case DType::q2_k: return kLargestHalf * 15 * 3;
    case DType::q4_k: return kLargestHalf * 63 * 15;
    case DType::q5_k: return kLargestHalf * 63 * 31;
    default: return 0;
  }
}

class PackedTypes : public testing::TestWithParam<DType> {};

TEST_P(PackedTypes, RoundTripIsLosslessForEveryRowAndColumnCount) {
  const DType dtype = GetParam();
  const int64_t block = traits(dtype).block_columns;
  for (const int64_t columns : {block, 3 * block, 37 * block, 64 * block}) {
    for (const int rows : {1, 5, 15, 16}) {
      const size_t size = static_cast<size_t>(rows) * row_bytes(dtype, static_cast<size_t>(columns));
      const std::vector<std::byte> source = random_bytes(size, static_cast<uint32_t>(columns + rows));
      const AlignedBytes group = aligned_bytes(packed_group_bytes(dtype, columns));
      pack_group(dtype, source.data(), rows, columns, group.get());
      std::vector<std::byte> back(size);
      unpack_group(dtype, group.get(), rows, columns, back.data());
      EXPECT_EQ(source, back) << columns << " columns, " << rows << " rows";
    }
  }
}

TEST_P(PackedTypes, SourceNeedsNoAlignment) {
  const DType dtype = GetParam();
  const int64_t columns = 2 * traits(dtype).block_columns;
  const size_t size = 16 * row_bytes(dtype, static_cast<size_t>(columns));
  const std::vector<std::byte> source = random_bytes(size + 1, 7);
  const AlignedBytes group = aligned_bytes(packed_group_bytes(dtype, columns));
  pack_group(dtype, source.data() + 1, 16, columns, group.get());
  std::vector<std::byte> back(size + 1);
  unpack_group(dtype, group.get(), 16, columns, back.data() + 1);
  EXPECT_TRUE(std::equal(source.begin() + 1, source.end(), back.begin() + 1));
}

TEST_P(PackedTypes, MissingRowsAndColumnsAreZero) {
  const DType dtype = GetParam();
  const int64_t block = traits(dtype).block_columns, columns = 3 * block, padded = 4 * block;
  const std::vector<std::byte> source = random_bytes(3 * row_bytes(dtype, static_cast<size_t>(columns)), 11);
  const AlignedBytes group = aligned_bytes(packed_group_bytes(dtype, columns));
  pack_group(dtype, source.data(), 3, columns, group.get());
  std::vector<float> row(static_cast<size_t>(padded));
  const std::span<const std::byte> matrix(group.get(), packed_group_bytes(dtype, columns));
  for (int r = 3; r < 16; ++r) {
    packed_row_to_float(dtype, matrix, r, columns, row.data());
    for (int64_t c = 0; c < columns; ++c) ASSERT_EQ(row[static_cast<size_t>(c)], 0) << "row " << r << " column " << c;
  }
  if (packed_group_bytes(dtype, padded) != packed_group_bytes(dtype, columns)) return;  // no padding columns
  packed_row_to_float(dtype, matrix, 1, padded, row.data());
  for (int64_t c = columns; c < padded; ++c) ASSERT_EQ(row[static_cast<size_t>(c)], 0) << "column " << c;
}

// A float carries 24 bits; two roundings of the largest term bound the difference to double.
TEST_P(PackedTypes, RowToFloatFollowsTheFormula) {
  const DType dtype = GetParam();
  const int64_t columns = 5 * std::max<int64_t>(32, traits(dtype).block_columns), rows = 37;
  const size_t bytes = row_bytes(dtype, static_cast<size_t>(columns));
  const std::vector<std::byte> source = random_bytes(static_cast<size_t>(rows) * bytes, 3);
  const AlignedBytes matrix = aligned_bytes(packed_bytes(dtype, rows, columns));
  for (int64_t first = 0; first < rows; first += kGroupRows) {
    pack_group(dtype, source.data() + static_cast<size_t>(first) * bytes,
               static_cast<int>(std::min<int64_t>(kGroupRows, rows - first)), columns,
               matrix.get() + static_cast<size_t>(first / kGroupRows) * packed_group_bytes(dtype, columns));
  }
  std::vector<float> row(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    packed_row_to_float(dtype, {matrix.get(), packed_bytes(dtype, rows, columns)}, r, columns, row.data());
    for (int64_t c = 0; c < columns; ++c) {
      const double expected = element(dtype, source.data() + static_cast<size_t>(r) * bytes, c);
      const float actual = row[static_cast<size_t>(c)];
      if (!std::isfinite(expected)) {
        EXPECT_EQ(std::isnan(expected), std::isnan(actual)) << "row " << r << " column " << c;
        continue;
      }
      // Cancellation in scale * q - min shows against the largest term.
      EXPECT_NEAR(actual, expected, 2.4e-7 * std::max(std::abs(expected), largest_term(dtype)))
          << "row " << r << " column " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackedTypes, testing::ValuesIn(kDTypes),
                         [](const auto& test) { return std::string(traits(test.param).name); });

// The layout itself, by hand: byte positions as packed_layout.h writes them.
TEST(PackedLayout, NibblesOfARunAreInTheOrder02134657) {
  BlockQ4_0 block{};
  for (int j = 0; j < 16; ++j) block.qs[j] = static_cast<uint8_t>((j % 8) | (j % 8 + 8) << 4);
  const AlignedBytes group = aligned_bytes(sizeof(PackedQ4_0));
  pack_group(DType::q4_0, reinterpret_cast<const std::byte*>(&block), 1, 32, group.get());
  const auto* packed = reinterpret_cast<const PackedQ4_0*>(group.get());
  const uint8_t low_half[4] = {0x40, 0x62, 0x51, 0x73};
  const uint8_t high_half[4] = {0xC8, 0xEA, 0xD9, 0xFB};
  EXPECT_EQ(std::memcmp(packed->codes[0][0], low_half, 4), 0);
  EXPECT_EQ(std::memcmp(packed->codes[0][1], low_half, 4), 0);
  EXPECT_EQ(std::memcmp(packed->codes[0][2], high_half, 4), 0);
  EXPECT_EQ(std::memcmp(packed->codes[0][3], high_half, 4), 0);
}

TEST(PackedLayout, HighBitsOfQ5LieInOnePlane) {
  BlockQ5_0 block{};
  block.qh[1] = 1u << 2;  // column 10: run 1, column 2 of it, so byte 1 and bit 2 * 1
  block.qh[3] = 1u << 5;  // column 29: run 3, column 5 of it, so byte 2 and bit 2 * 3 + 1
  const AlignedBytes group = aligned_bytes(sizeof(PackedQ5_0));
  pack_group(DType::q5_0, reinterpret_cast<const std::byte*>(&block), 1, 32, group.get());
  const uint8_t expected[4] = {0, 1u << 2, 1u << 7, 0};
  EXPECT_EQ(std::memcmp(reinterpret_cast<const PackedQ5_0*>(group.get())->unit[0].high, expected, 4), 0);
}

TEST(PackedLayout, TopBitsOfQ4KScalesAreFourFields) {
  BlockQ4_K block{};
  block.scales[1] = 2 << 4 | 5 | 1 << 6;  // scale 1 = 37, and top of scale 5 = 1
  block.scales[5] = 3 << 4 | 9 | 2 << 6;  // min 1 = 57, and top of min 5 = 2
  block.scales[9] = 7 | 12 << 4;          // scale 5 = 16 + 7, min 5 = 32 + 12
  const AlignedBytes group = aligned_bytes(sizeof(PackedQ4_K));
  pack_group(DType::q4_k, reinterpret_cast<const std::byte*>(&block), 1, 256, group.get());
  const auto* packed = reinterpret_cast<const PackedQ4_K*>(group.get());
  EXPECT_EQ(packed->scale_low[16], 5 | 7 << 4);
  EXPECT_EQ(packed->min_low[16], 9 | 12 << 4);
  EXPECT_EQ(packed->top[16], 2 | 1 << 2 | 3 << 4 | 2 << 6);
}

}  // namespace
}  // namespace nanomind
