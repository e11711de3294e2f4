// SPDX-License-Identifier: Apache-2.0
// Block layouts of GGUF's quantised types, byte for byte as they lie in a file (source: the GGUF/ggml type
// definitions). A block holds consecutive elements of one row; all scales are IEEE half floats in little-endian order.
#pragma once

#include <cstdint>

namespace nanomind {

inline constexpr int kBlock = 32;        // elements of the simple types' blocks
inline constexpr int kSuperBlock = 256;  // elements of the K types' blocks

// w = d * (q - 8); byte j holds element j in its low and j + 16 in its high nibble.
struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];
};

// w = d * q + m; nibbles as in Q4_0.
struct BlockQ4_1 {
  uint16_t d, m;
  uint8_t qs[16];
};

// w = d * (q - 16); nibbles as in Q4_0, bit i of qh is bit 4 of element i.
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};

// w = d * q + m; codes as in Q5_0.
struct BlockQ5_1 {
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};

// w = d * q.
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};

// Sixteen sub-blocks of 16: w = d * (scales[s] & 15) * q - dmin * (scales[s] >> 4). For each half h of 128 elements and
// l in 0..31: element 128h + 32j + l has its two bits at position 2j of qs[32h + l].
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d, dmin;
};

// Sixteen sub-blocks of 16: w = d * (sc[s] - 32) * (q - 4). The low bits of q as in Q2_K; bit b of hmask[l] is bit 2 of
// element 32b + l. sc of 6 bits: four are nibble s / 8 of scales[s % 8], two are field s / 4 of scales[8 + s % 4].
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};

// Eight sub-blocks of 32: w = d * sc[s] * q - dmin * mn[s], sc and mn of 6 bits packed in `scales`
// (s < 4: sc = scales[s] & 63, mn = scales[s + 4] & 63; s >= 4: sc = (scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4,
// mn = (scales[s + 4] >> 4) | (scales[s] >> 6) << 4). Bytes 32i..32i+31 of qs hold sub-block 2i low and 2i + 1 high.
struct BlockQ4_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};

// w, scales and low nibbles as in Q4_K; bit s of qh[l] is bit 4 of element 32s + l.
struct BlockQ5_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};

// Sixteen sub-blocks of 16: w = d * scales[s] * (q - 32). For each half h of 128 elements and l in 0..31:
// element 128h + 32j + l has low nibble from ql[64h + 32(j & 1) + l] (low for j < 2, high else) and its two top bits
// at position 2j of qh[32h + l].
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};

// What codes of the types below stand for. Those of MXFP4 are twice the numbers of E2M1.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// w = d * value of the code; nibbles as in Q4_0.
struct BlockIQ4_NL {
  uint16_t d;
  uint8_t qs[16];
};

// Eight sub-blocks s of 32: w = d * (sc[s] - 32) * value of the code. sc of 6 bits: four are nibble s % 2 of
// scales_l[s / 2], two are field s of scales_h. Bytes 16s..16s+15 of qs hold a sub-block as in Q4_0.
struct BlockIQ4_XS {
  uint16_t d, scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

// w = 2^(e - 128) * value of the code; nibbles as in Q4_0.
struct BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136 && sizeof(BlockMXFP4) == 17);

}  // namespace nanomind
