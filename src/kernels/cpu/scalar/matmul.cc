// SPDX-License-Identifier: Apache-2.0
// Portable products of packed weights with activations: the base of every table, and the plain text of what the others
// do.
#include "kernels/cpu/install.h"
#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/packed_layout.h"

namespace nanomind::scalar {
namespace {

// 16 rows x 32 columns of any integer format: w = scale[half] * (code - offset) + min[half]. Vector p of `codes` holds
// for each row the four codes that meet bytes 4p..4p+3 of an activation unit.
struct Unit {
  uint8_t codes[8][64];
  float scale[2][16];
  float min[2][16];
};

void expand_nibbles(const uint8_t (&packed)[4][64], Unit& u) {
  for (int g = 0; g < 4; ++g) {
    for (int i = 0; i < 64; ++i) {
      u.codes[2 * g][i] = packed[g][i] & 15;
      u.codes[2 * g + 1][i] = packed[g][i] >> 4;
    }
  }
}

// Sets bit kBit of the codes of vector p to bit p of a plane.
template <int kBit>
void expand_bits(const uint8_t (&high)[64], Unit& u) {
  for (int p = 0; p < 8; ++p) {
    for (int i = 0; i < 64; ++i) u.codes[p][i] |= (high[i] >> p & 1) << kBit;
  }
}

void expand_mins(const uint16_t (&m)[16], Unit& u) {
  for (int r = 0; r < 16; ++r) u.min[0][r] = u.min[1][r] = float_from_half(m[r]);
}

void expand_scales(const uint16_t (&d)[16], Unit& u) {
  for (int r = 0; r < 16; ++r) u.scale[0][r] = u.scale[1][r] = float_from_half(d[r]);
}

struct Q4_0 {
  using Block = PackedQ4_0;
  static constexpr int kOffset = 8;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_nibbles(b.codes[unit], u);
    expand_scales(b.d[unit], u);
  }
};

struct Q4_1 {
  using Block = PackedQ4_1;
  static constexpr int kOffset = 0;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_nibbles(b.codes[unit], u);
    expand_scales(b.d[unit], u);
    expand_mins(b.m[unit], u);
  }
};

struct Q5_0 {
  using Block = PackedQ5_0;
  static constexpr int kOffset = 16;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_nibbles(b.unit[unit].codes, u);
    expand_scales(b.d[unit], u);
    expand_bits<4>(b.unit[unit].high, u);
  }
};

struct Q5_1 {
  using Block = PackedQ5_1;
  static constexpr int kOffset = 0;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_nibbles(b.unit[unit].codes, u);
    expand_bits<4>(b.unit[unit].high, u);
    expand_scales(b.d[unit], u);
    expand_mins(b.m[unit], u);
  }
};

struct Q8_0 {
  using Block = PackedQ8_0;
  static constexpr int kOffset = 128;
  static void expand(const Block& b, int unit, Unit& u) {
    __builtin_memcpy(u.codes, b.codes[unit], sizeof u.codes);
    expand_scales(b.d[unit], u);
  }
};

// Codes of two bits from the planes of a unit.
void expand_bit_pairs(const uint8_t (&planes)[2][64], Unit& u) {
  for (int p = 0; p < 8; ++p) {
    for (int i = 0; i < 64; ++i) u.codes[p][i] = planes[p / 4][i] >> 2 * (p % 4) & 3;
  }
}

struct Q2_K {
  using Block = PackedQ2_K;
  static constexpr int kOffset = 0;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_bit_pairs(b.codes[unit], u);
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < 16; ++r) {
        const int both = b.scales[2 * unit + half][r];
        u.scale[half][r] = float_from_half(b.d[r]) * static_cast<float>(both & 15);
        u.min[half][r] = -float_from_half(b.dmin[r]) * static_cast<float>(both >> 4);
      }
    }
  }
};

struct Q3_K {
  using Block = PackedQ3_K;
  static constexpr int kOffset = 4;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_bit_pairs(b.unit[unit].low, u);
    expand_bits<2>(b.unit[unit].high, u);
    for (int half = 0; half < 2; ++half) {
      const int s = 2 * unit + half;
      for (int r = 0; r < 16; ++r) {
        const int low = b.scales[s % 8][r] >> 4 * (s / 8) & 15, top = b.scales[8 + s % 4][r] >> 2 * (s / 4) & 3;
        u.scale[half][r] = float_from_half(b.d[r]) * static_cast<float>((low | top << 4) - 32);
      }
    }
  }
};

// Scales and mins of 6 bits for each unit.
template <typename Block>
void expand_six_bits(const Block& b, int unit, Unit& u) {
  const int line = 16 * (unit % 4), field = unit / 4;
  for (int r = 0; r < 16; ++r) {
    const int top = b.top[line + r] >> 2 * field;
    const int scale = (b.scale_low[line + r] >> 4 * field & 15) | (top & 3) << 4;
    const int min = (b.min_low[line + r] >> 4 * field & 15) | (top & 0x30);
    u.scale[0][r] = u.scale[1][r] = float_from_half(b.d[r]) * static_cast<float>(scale);
    u.min[0][r] = u.min[1][r] = -float_from_half(b.dmin[r]) * static_cast<float>(min);
  }
}

struct Q4_K {
  using Block = PackedQ4_K;
  static constexpr int kOffset = 0;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_nibbles(b.codes[unit], u);
    expand_six_bits(b, unit, u);
  }
};

struct Q5_K {
  using Block = PackedQ5_K;
  static constexpr int kOffset = 0;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_nibbles(b.unit[unit].codes, u);
    expand_bits<4>(b.unit[unit].high, u);
    expand_six_bits(b, unit, u);
  }
};

struct Q6_K {
  using Block = PackedQ6_K;
  static constexpr int kOffset = 32;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_nibbles(b.unit[unit].codes, u);
    for (int p = 0; p < 8; ++p) {
      for (int i = 0; i < 64; ++i) u.codes[p][i] |= (b.unit[unit].high[p / 4][i] >> 2 * (p % 4) & 3) << 4;
    }
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < 16; ++r) {
        u.scale[half][r] = float_from_half(b.d[r]) * static_cast<float>(b.scales[2 * unit + half][r]);
      }
    }
  }
};

// Entries of a table, made unsigned.
void expand_entries(const uint8_t (&packed)[4][64], const int8_t (&values)[16], int offset, Unit& u) {
  expand_nibbles(packed, u);
  for (auto& vector : u.codes) {
    for (uint8_t& code : vector) code = static_cast<uint8_t>(values[code] + offset);
  }
}

struct IQ4_NL {
  using Block = PackedIQ4_NL;
  static constexpr int kOffset = 128;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_entries(b.codes[unit], kIq4Values, kOffset, u);
    expand_scales(b.d[unit], u);
  }
};

struct IQ4_XS {
  using Block = PackedIQ4_XS;
  static constexpr int kOffset = 128;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_entries(b.codes[unit], kIq4Values, kOffset, u);
    for (int r = 0; r < 16; ++r) {
      const int low = b.scale_low[unit / 2][r] >> 4 * (unit % 2) & 15;
      const int top = b.scale_top[unit / 4][r] >> 2 * (unit % 4) & 3;
      u.scale[0][r] = u.scale[1][r] = float_from_half(b.d[r]) * static_cast<float>((low | top << 4) - 32);
    }
  }
};

struct MXFP4 {
  using Block = PackedMXFP4;
  static constexpr int kOffset = 16;
  static void expand(const Block& b, int unit, Unit& u) {
    expand_entries(b.codes[unit], kMxfp4Values, kOffset, u);
    for (int r = 0; r < 16; ++r) u.scale[0][r] = u.scale[1][r] = float_from_e8m0_half(b.e[unit][r]);
  }
};

// out[r] += w[r] . x over one unit.
template <int kOffset>
void add_unit(const Unit& u, const ActivationUnit& x, float* out) {
  int32_t dot[2][16] = {};
  for (int p = 0; p < 8; ++p) {
    for (int j = 0; j < 4; ++j) {
      const int q = 256 * x.hi[4 * p + j] + x.lo[4 * p + j];
      for (int r = 0; r < 16; ++r) dot[p / 4][r] += (u.codes[p][4 * r + j] - kOffset) * q;
    }
  }
  for (int r = 0; r < 16; ++r) {
    float value = 0;
    for (int half = 0; half < 2; ++half) {
      value += u.scale[half][r] * static_cast<float>(dot[half][r]) + u.min[half][r] * static_cast<float>(x.sum[half]);
    }
    out[r] += x.scale * value;
  }
}

template <typename Format>
void matmul_int(const IntMatmulArgs& a) {
  using Block = typename Format::Block;
  constexpr int kUnits = Block::kColumns / kUnitColumns;
  for (int g = 0; g < a.groups; ++g) {
    const auto* blocks = reinterpret_cast<const Block*>(a.weights + static_cast<size_t>(g) * a.group_bytes);
    float total[kMaxTileRows][16] = {};
    for (int64_t k = 0; k < a.blocks * kUnits; ++k) {
      Unit unit{};
      Format::expand(blocks[k / kUnits], static_cast<int>(k % kUnits), unit);
      for (int i = 0; i < a.m; ++i) add_unit<Format::kOffset>(unit, a.x[i * a.x_stride + k], total[i]);
    }
    for (int i = 0; i < a.m; ++i) {
      for (int r = 0; r < 16; ++r) a.out[i * a.out_stride + 16 * g + r] = total[i][r];
    }
  }
}

float keep(float x) { return x; }

template <typename Block, auto widen>
void matmul_float(const FloatMatmulArgs& a) {
  for (int g = 0; g < a.groups; ++g) {
    const auto* blocks = reinterpret_cast<const Block*>(a.weights + static_cast<size_t>(g) * a.group_bytes);
    float total[kMaxTileRows][16] = {};
    for (int64_t c = 0; c < a.columns; ++c) {
      const auto& column = blocks[c / Block::kColumns].w[c % Block::kColumns];
      float w[16];
      for (int r = 0; r < 16; ++r) w[r] = widen(column[r]);
      for (int i = 0; i < a.m; ++i) {
        const float x = a.x[i * a.x_stride + c];
        for (int r = 0; r < 16; ++r) total[i][r] += w[r] * x;
      }
    }
    for (int i = 0; i < a.m; ++i) {
      for (int r = 0; r < 16; ++r) a.out[i * a.out_stride + 16 * g + r] = total[i][r];
    }
  }
}

}  // namespace

void install_matmul(KernelTable& table) {
  table.matmul[static_cast<int>(IntWeight::q4_0)] = matmul_int<Q4_0>;
  table.matmul[static_cast<int>(IntWeight::q4_1)] = matmul_int<Q4_1>;
  table.matmul[static_cast<int>(IntWeight::q5_0)] = matmul_int<Q5_0>;
  table.matmul[static_cast<int>(IntWeight::q5_1)] = matmul_int<Q5_1>;
  table.matmul[static_cast<int>(IntWeight::q8_0)] = matmul_int<Q8_0>;
  table.matmul[static_cast<int>(IntWeight::q2_k)] = matmul_int<Q2_K>;
  table.matmul[static_cast<int>(IntWeight::q3_k)] = matmul_int<Q3_K>;
  table.matmul[static_cast<int>(IntWeight::q4_k)] = matmul_int<Q4_K>;
  table.matmul[static_cast<int>(IntWeight::q5_k)] = matmul_int<Q5_K>;
  table.matmul[static_cast<int>(IntWeight::q6_k)] = matmul_int<Q6_K>;
  table.matmul[static_cast<int>(IntWeight::iq4_nl)] = matmul_int<IQ4_NL>;
  table.matmul[static_cast<int>(IntWeight::iq4_xs)] = matmul_int<IQ4_XS>;
  table.matmul[static_cast<int>(IntWeight::mxfp4)] = matmul_int<MXFP4>;
  table.matmul_float[static_cast<int>(FloatWeight::f32)] = matmul_float<PackedFloat, keep>;
  table.matmul_float[static_cast<int>(FloatWeight::f16)] = matmul_float<PackedHalf, float_from_half>;
  table.matmul_float[static_cast<int>(FloatWeight::bf16)] = matmul_float<PackedHalf, float_from_bf16>;
}

}  // namespace nanomind::scalar
