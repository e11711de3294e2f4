// SPDX-License-Identifier: Apache-2.0
// Byte layouts of packed weights, the form that kernels read, and of the activations that meet them in integer
// products.
//
// A packed matrix [N, C] is ceil(N/16) row groups one after the other; a group is a run of blocks along the columns,
// each block one of the structs below (the last one padded with zero scales and codes when C is not a multiple of its
// columns; missing rows likewise). Every packed block is a multiple of 64 bytes, and matrices start 64-byte aligned.
// Packing moves bits and loses none: codes and scales are the source's.
//
// Order of codes. A vector is 64 bytes: 16 dwords, dword r belongs to row r of the group. Vector g of a unit (16 rows x
// 32 columns) covers columns 8g..8g+7: the low nibbles of a dword's bytes 0..3 are columns 8g + {0, 2, 1, 3}, the high
// nibbles 8g + {4, 6, 5, 7}. So `v & 15` and `v >> 4 & 15` are operands of a 4-way byte dot product, and the two halves
// of a dword hold neighbouring columns at every nibble position (what bf16 matrix instructions want). Bits above four
// lie in planes of the same byte order. Activations are stored in the same order of columns.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nanomind {

inline constexpr int kGroupRows = 16;
inline constexpr int kUnitColumns = 32;

// Position p (0..7) within a run of 8 stored codes holds column kColumnOrder[p] of the run.
inline constexpr int kColumnOrder[8] = {0, 2, 1, 3, 4, 6, 5, 7};

// 64 columns. w = d * (q - 8).
struct PackedQ4_0 {
  static constexpr int kColumns = 64;
  uint8_t codes[2][4][64];  // [unit][vector]
  uint16_t d[2][16];        // [unit][row], half
};

// 64 columns. w = d * q + m.
struct PackedQ4_1 {
  static constexpr int kColumns = 64;
  uint8_t codes[2][4][64];
  uint16_t d[2][16];
  uint16_t m[2][16];
};

// 64 columns. w = d * (q - 16). Bit 2g of byte i of `high` is bit 4 of the low nibble of byte i of vector g, bit 2g + 1
// that of its high nibble.
struct PackedQ5_0 {
  static constexpr int kColumns = 64;
  struct Unit {
    uint8_t codes[4][64];
    uint8_t high[64];
  } unit[2];
  uint16_t d[2][16];
};

// 64 columns. w = d * q + m; codes as in PackedQ5_0.
struct PackedQ5_1 {
  static constexpr int kColumns = 64;
  struct Unit {
    uint8_t codes[4][64];
    uint8_t high[64];
  } unit[2];
  uint16_t d[2][16];
  uint16_t m[2][16];
};

// 64 columns. w = d * (q - 128), q = source + 128. Vectors 2g and 2g + 1 of a unit hold columns 8g + {0, 2, 1, 3} and
// 8g + {4, 6, 5, 7}, one byte per code.
struct PackedQ8_0 {
  static constexpr int kColumns = 64;
  uint8_t codes[2][8][64];
  uint16_t d[2][16];
};

// 256 columns in 8 units. w = d * (scales[s] & 15) * q - dmin * (scales[s] >> 4), s = column / 16. Codes of two bits
// are fields, from the lowest up, of the bytes of two planes: field f of plane p has the codes of vector 4p + f as
// PackedQ8_0 orders them.
struct PackedQ2_K {
  static constexpr int kColumns = 256;
  uint8_t codes[8][2][64];  // [unit][plane]
  uint8_t scales[16][16];   // [s][row]
  uint16_t d[16];
  uint16_t dmin[16];
};

// 256 columns in 8 units. w = d * (sc[s] - 32) * (q - 4), s = column / 16. The low two bits of codes as in PackedQ2_K;
// bit p of a byte of `high` is the third bit of vector p. sc of 6 bits: four are nibble s / 8 of scales[s % 8], two are
// field s / 4 of scales[8 + s % 4].
struct PackedQ3_K {
  static constexpr int kColumns = 256;
  struct Unit {
    uint8_t low[2][64];
    uint8_t high[64];
  } unit[8];
  uint8_t scales[12][16];  // [as in the source][row]
  uint16_t d[16];
  uint8_t pad[32];
};

// 256 columns in 8 units b. w = d * sc[b] * q - dmin * mn[b], sc and mn of 6 bits: the low nibble of scale b of row r
// is nibble b / 4 of byte (b % 4) * 16 + r of scale_low (mins: min_low); the two top bits are field b / 4 (scales) or
// 2 + b / 4 (mins) of the same byte of `top`, fields of two bits from the lowest up.
struct PackedQ4_K {
  static constexpr int kColumns = 256;
  uint8_t codes[8][4][64];
  uint8_t scale_low[64];
  uint8_t min_low[64];
  uint8_t top[64];
  uint16_t d[16];
  uint16_t dmin[16];
};

// 256 columns in 8 units. w and scales as in PackedQ4_K, codes as in PackedQ5_0.
struct PackedQ5_K {
  static constexpr int kColumns = 256;
  struct Unit {
    uint8_t codes[4][64];
    uint8_t high[64];
  } unit[8];
  uint8_t scale_low[64];
  uint8_t min_low[64];
  uint8_t top[64];
  uint16_t d[16];
  uint16_t dmin[16];
};

// 256 columns in 8 units. w = d * scales[s] * (q - 32), s = column / 16. Plane p of `high` holds the two top bits of
// vectors 2p and 2p + 1 of the unit, fields of two bits from the lowest up: 2p low nibble, 2p high, 2p + 1 low, 2p + 1
// high.
struct PackedQ6_K {
  static constexpr int kColumns = 256;
  struct Unit {
    uint8_t codes[4][64];
    uint8_t high[2][64];
  } unit[8];
  int8_t scales[16][16];  // [s][row]
  uint16_t d[16];
  uint8_t pad[32];
};

// 64 columns. w = d * value of the code (tensor/block.h).
struct PackedIQ4_NL {
  static constexpr int kColumns = 64;
  uint8_t codes[2][4][64];
  uint16_t d[2][16];
};

// 256 columns in 8 units b. w = d * (sc[b] - 32) * value of the code. sc of 6 bits: four are nibble b % 2 of
// scale_low[b / 2], two are field b % 4 of scale_top[b / 4].
struct PackedIQ4_XS {
  static constexpr int kColumns = 256;
  uint8_t codes[8][4][64];
  uint8_t scale_low[4][16];  // [..][row]
  uint8_t scale_top[2][16];
  uint16_t d[16];
};

// 128 columns. w = 2^(e - 128) * value of the code.
struct PackedMXFP4 {
  static constexpr int kColumns = 128;
  uint8_t codes[4][4][64];
  uint8_t e[4][16];  // [unit][row]
};

// 32 columns of 16-bit floats (half or bfloat16), column by column: w[column][row].
struct PackedHalf {
  static constexpr int kColumns = 32;
  uint16_t w[32][16];
};

// 32 columns of floats.
struct PackedFloat {
  static constexpr int kColumns = 32;
  float w[32][16];
};

static_assert(sizeof(PackedQ4_0) == 576 && sizeof(PackedQ4_1) == 640 && sizeof(PackedQ5_0) == 704);
static_assert(sizeof(PackedQ5_1) == 768 && sizeof(PackedQ8_0) == 1088 && sizeof(PackedQ2_K) == 1344);
static_assert(sizeof(PackedQ3_K) == 1792 && sizeof(PackedQ4_K) == 2304 && sizeof(PackedQ5_K) == 2816);
static_assert(sizeof(PackedQ6_K) == 3392);
static_assert(sizeof(PackedIQ4_NL) == 576 && sizeof(PackedIQ4_XS) == 2176 && sizeof(PackedMXFP4) == 1088);
static_assert(sizeof(PackedHalf) == 1024 && sizeof(PackedFloat) == 2048);

// 32 columns of one activation row as 16-bit fixed point in two signed byte planes: x = scale * q, q = 256 * hi + lo,
// |q| <= 127 * 256, columns in the order of kColumnOrder within each run of 8. sum[h] is the sum of q over columns
// 16h..16h+15; scaled_sum is scale * (sum[0] + sum[1]), what a weight's min is multiplied by. A row of C columns is
// ceil(C/32) units, padded with zero units up to the weight's block.
struct alignas(16) ActivationUnit {
  int8_t hi[32];
  int8_t lo[32];
  float scale;
  int32_t sum[2];
  float scaled_sum;
};
static_assert(sizeof(ActivationUnit) == 80);

// Rows padded to a multiple of this many columns fit weights of every type: C is a multiple of longer blocks.
inline constexpr int kPaddedColumns = 128;

}  // namespace nanomind
