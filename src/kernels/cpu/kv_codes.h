// SPDX-License-Identifier: Apache-2.0
// Keys and values of one head in a block of 64 tokens, in codes of 8 or 4 bits: their bytes, and the functions that
// make and read them. Runs of 32 numbers along the head share a scale; the last run may have 8, 16 or 24.
//
//   8 bits: number = scale * code, codes -127..127 as int8_t
//   4 bits: number = scale * (code - 8), codes 0..15 as nibbles
//
// Keys are stored transposed, so that 64 tokens are lanes:
//   codes [d][64], as nibbles [d][32]: byte t of a row has token t low and token t + 32 high; scales [runs][64] halves
// values as they are:
//   codes [64][d], as nibbles [64][d / 2]: byte j of a row has column j low and d / 2 + j high; scales [64][runs]
#pragma once

#include <cstdint>

namespace nanomind {

inline constexpr int kKvRun = 32;

// Head widths d are multiples of 8, at most 512. Nothing aliases.
struct KvCodes {
  // One token's row of d numbers to one code per byte and a scale per run. 8 bits: scale = max|x| / 127, codes rounded
  // to nearest even. 4 bits: of two scales the one of less squared error. Non-finite input gives unspecified codes.
  void (*quantize)(const float* x, int d, uint8_t* codes, uint16_t* scales);

  // The keys of a block as floats: out[d][64].
  void (*keys)(const uint8_t* codes, const uint16_t* scales, int d, float* out);

  // Values of tokens [first, last) of a block as floats, out[64][d]; other rows are left alone.
  void (*values)(const uint8_t* codes, const uint16_t* scales, int first, int last, int d, float* out);
};

}  // namespace nanomind
