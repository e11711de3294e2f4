// SPDX-License-Identifier: Apache-2.0
// What packed_types.h is, for the types with blocks of 256.
#pragma once

#include "tensor/packed_types.h"

namespace nanomind::packed {

// The low two bits of Q2_K and Q3_K codes of a run.
inline uint64_t load_bit_pairs(const uint8_t* qs, int unit, int run) {
  return load<uint64_t>(qs + 32 * (unit / 4) + 8 * run) >> 2 * (unit % 4) & kBytes * 3;
}
inline void store_bit_pairs(uint8_t* qs, int unit, int run, uint64_t q) {
  merge<uint64_t>(qs + 32 * (unit / 4) + 8 * run, (q & kBytes * 3) << 2 * (unit % 4));
}

struct Q2_K {
  using Block = BlockQ2_K;
  using Packed = PackedQ2_K;
  static constexpr int kUnits = 8;

  static uint64_t load_run(const uint8_t* b, int unit, int run) {
    return load_bit_pairs(b + offsetof(Block, qs), unit, run);
  }
  static void store_run(uint8_t* b, int unit, int run, uint64_t q) {
    store_bit_pairs(b + offsetof(Block, qs), unit, run, q);
  }
  static void put(Packed& p, int unit, int run, int row, uint64_t q) { put_bit_pairs(p.codes[unit], run, row, q); }
  static uint64_t get(const Packed& p, int unit, int run, int row) { return get_bit_pairs(p.codes[unit], run, row); }
  static void pack_scales(const uint8_t* b, Packed& p, int, int row) {
    for (int s = 0; s < 16; ++s) p.scales[s][row] = b[offsetof(Block, scales) + s];
    p.d[row] = load<uint16_t>(b + offsetof(Block, d));
    p.dmin[row] = load<uint16_t>(b + offsetof(Block, dmin));
  }
  static void unpack_scales(const Packed& p, int, int row, uint8_t* b) {
    for (int s = 0; s < 16; ++s) b[offsetof(Block, scales) + s] = p.scales[s][row];
    store(b + offsetof(Block, d), p.d[row]);
    store(b + offsetof(Block, dmin), p.dmin[row]);
  }
  static Affine affine(const Packed& p, int unit, int half, int row) {
    const int both = p.scales[2 * unit + half][row];
    return {float_from_half(p.d[row]) * static_cast<float>(both & 15), 0,
            -(float_from_half(p.dmin[row]) * static_cast<float>(both >> 4))};
  }
};

struct Q3_K {
  using Block = BlockQ3_K;
  using Packed = PackedQ3_K;
  static constexpr int kUnits = 8;

  static uint64_t load_run(const uint8_t* b, int unit, int run) {
    const auto high = load<uint64_t>(b + offsetof(Block, hmask) + 8 * run) >> unit & kBytes;
    return load_bit_pairs(b + offsetof(Block, qs), unit, run) | high << 2;
  }
  static void store_run(uint8_t* b, int unit, int run, uint64_t q) {
    store_bit_pairs(b + offsetof(Block, qs), unit, run, q);
    merge<uint64_t>(b + offsetof(Block, hmask) + 8 * run, (q >> 2 & kBytes) << unit);
  }
  static void put(Packed& p, int unit, int run, int row, uint64_t q) {
    put_bit_pairs(p.unit[unit].low, run, row, q);
    put_bits(p.unit[unit].high, run, row, q >> 2);
  }
  static uint64_t get(const Packed& p, int unit, int run, int row) {
    return get_bit_pairs(p.unit[unit].low, run, row) | get_bits(p.unit[unit].high, run, row) << 2;
  }
  static void pack_scales(const uint8_t* b, Packed& p, int, int row) {
    for (int i = 0; i < 12; ++i) p.scales[i][row] = b[offsetof(Block, scales) + i];
    p.d[row] = load<uint16_t>(b + offsetof(Block, d));
  }
  static void unpack_scales(const Packed& p, int, int row, uint8_t* b) {
    for (int i = 0; i < 12; ++i) b[offsetof(Block, scales) + i] = p.scales[i][row];
    store(b + offsetof(Block, d), p.d[row]);
  }
  static Affine affine(const Packed& p, int unit, int half, int row) {
    const int s = 2 * unit + half;
    const int low = p.scales[s % 8][row] >> 4 * (s / 8) & 15, top = p.scales[8 + s % 4][row] >> 2 * (s / 4) & 3;
    return {float_from_half(p.d[row]) * static_cast<float>((low | top << 4) - 32), 4, 0};
  }
};

// Scales and mins of 6 bits for each unit.
template <typename GgufBlock, typename PackedBlock>
struct SixBitScales {
  using Block = GgufBlock;
  using Packed = PackedBlock;
  static constexpr int kUnits = 8;
  static constexpr uint32_t kBytes32 = 0x01010101u;

  static void pack_scales(const uint8_t* b, Packed& p, int, int row) {
    const uint8_t* scales = b + offsetof(Block, scales);
    const auto s03 = load<uint32_t>(scales), m03 = load<uint32_t>(scales + 4), low47 = load<uint32_t>(scales + 8);
    // The four bytes go to rows of four different 16-byte lines.
    const uint32_t scale_low = (s03 & kBytes32 * 15) | (low47 & kBytes32 * 15) << 4;
    const uint32_t min_low = (m03 & kBytes32 * 15) | (low47 & kBytes32 * 0xF0);
    const uint32_t top = (s03 >> 4 & kBytes32 * 3) | (s03 >> 4 & kBytes32 * 12) | (m03 & kBytes32 * 0xF0);
    for (int i = 0; i < 4; ++i) {
      p.scale_low[16 * i + row] = static_cast<uint8_t>(scale_low >> 8 * i);
      p.min_low[16 * i + row] = static_cast<uint8_t>(min_low >> 8 * i);
      p.top[16 * i + row] = static_cast<uint8_t>(top >> 8 * i);
    }
    p.d[row] = load<uint16_t>(b);
    p.dmin[row] = load<uint16_t>(b + offsetof(Block, dmin));
  }
  static void unpack_scales(const Packed& p, int, int row, uint8_t* b) {
    uint8_t* scales = b + offsetof(Block, scales);
    for (int i = 0; i < 4; ++i) {
      const int scale_low = p.scale_low[16 * i + row], min_low = p.min_low[16 * i + row], top = p.top[16 * i + row];
      scales[i] = static_cast<uint8_t>((scale_low & 15) | (top & 15) << 4);
      scales[i + 4] = static_cast<uint8_t>((min_low & 15) | (top & 0xF0));
      scales[i + 8] = static_cast<uint8_t>(scale_low >> 4 | (min_low & 0xF0));
    }
    store(b, p.d[row]);
    store(b + offsetof(Block, dmin), p.dmin[row]);
  }
  static Affine affine(const Packed& p, int unit, int, int row) {
    const int i = 16 * (unit % 4) + row, field = unit / 4;
    const int scale = (p.scale_low[i] >> 4 * field & 15) | (p.top[i] >> 2 * field & 3) << 4;
    const int min = (p.min_low[i] >> 4 * field & 15) | (p.top[i] >> (4 + 2 * field) & 3) << 4;
    return {float_from_half(p.d[row]) * static_cast<float>(scale), 0,
            -(float_from_half(p.dmin[row]) * static_cast<float>(min))};
  }
};

struct Q4_K : SixBitScales<BlockQ4_K, PackedQ4_K> {
  static uint64_t load_run(const uint8_t* b, int unit, int run) {
    const uint8_t* qs = b + offsetof(Block, qs) + 32 * (unit / 2) + 8 * run;
    return load<uint64_t>(qs) >> 4 * (unit & 1) & kBytes * 15;
  }
  static void store_run(uint8_t* b, int unit, int run, uint64_t q) {
    merge<uint64_t>(b + offsetof(Block, qs) + 32 * (unit / 2) + 8 * run, q << 4 * (unit & 1));
  }
  static void put(Packed& p, int unit, int run, int row, uint64_t q) { put_nibbles(p.codes[unit], run, row, q); }
  static uint64_t get(const Packed& p, int unit, int run, int row) { return get_nibbles(p.codes[unit], run, row); }
};

struct Q5_K : SixBitScales<BlockQ5_K, PackedQ5_K> {
  static uint64_t load_run(const uint8_t* b, int unit, int run) {
    const auto low = load<uint64_t>(b + offsetof(Block, qs) + 32 * (unit / 2) + 8 * run);
    const auto high = load<uint64_t>(b + offsetof(Block, qh) + 8 * run);
    return (low >> 4 * (unit & 1) & kBytes * 15) | (high >> unit & kBytes) << 4;
  }
  static void store_run(uint8_t* b, int unit, int run, uint64_t q) {
    merge<uint64_t>(b + offsetof(Block, qs) + 32 * (unit / 2) + 8 * run, (q & kBytes * 15) << 4 * (unit & 1));
    merge<uint64_t>(b + offsetof(Block, qh) + 8 * run, (q >> 4 & kBytes) << unit);
  }
  static void put(Packed& p, int unit, int run, int row, uint64_t q) {
    put_nibbles(p.unit[unit].codes, run, row, q);
    put_bits(p.unit[unit].high, run, row, q >> 4);
  }
  static uint64_t get(const Packed& p, int unit, int run, int row) {
    return get_nibbles(p.unit[unit].codes, run, row) | get_bits(p.unit[unit].high, run, row) << 4;
  }
};

struct Q6_K {
  using Block = BlockQ6_K;
  using Packed = PackedQ6_K;
  static constexpr int kUnits = 8;

  static uint64_t load_run(const uint8_t* b, int unit, int run) {
    const int half = unit / 4, quarter = unit % 4;
    const auto low = load<uint64_t>(b + offsetof(Block, ql) + 64 * half + 32 * (quarter & 1) + 8 * run);
    const auto high = load<uint64_t>(b + offsetof(Block, qh) + 32 * half + 8 * run);
    return (low >> 4 * (quarter / 2) & kBytes * 15) | (high >> 2 * quarter & kBytes * 3) << 4;
  }
  static void store_run(uint8_t* b, int unit, int run, uint64_t q) {
    const int half = unit / 4, quarter = unit % 4;
    merge<uint64_t>(b + offsetof(Block, ql) + 64 * half + 32 * (quarter & 1) + 8 * run, (q & kBytes * 15)
                                                                                            << 4 * (quarter / 2));
    merge<uint64_t>(b + offsetof(Block, qh) + 32 * half + 8 * run, (q >> 4 & kBytes * 3) << 2 * quarter);
  }
  static void put(Packed& p, int unit, int run, int row, uint64_t q) {
    put_nibbles(p.unit[unit].codes, run, row, q);
    put_bit_pairs(p.unit[unit].high, run, row, q >> 4);
  }
  static uint64_t get(const Packed& p, int unit, int run, int row) {
    return get_nibbles(p.unit[unit].codes, run, row) | get_bit_pairs(p.unit[unit].high, run, row) << 4;
  }
  static void pack_scales(const uint8_t* b, Packed& p, int, int row) {
    const uint8_t* scales = b + offsetof(Block, scales);
    for (int s = 0; s < 16; ++s) p.scales[s][row] = static_cast<int8_t>(scales[s]);
    p.d[row] = load<uint16_t>(b + offsetof(Block, d));
  }
  static void unpack_scales(const Packed& p, int, int row, uint8_t* b) {
    uint8_t* scales = b + offsetof(Block, scales);
    for (int s = 0; s < 16; ++s) scales[s] = static_cast<uint8_t>(p.scales[s][row]);
    store(b + offsetof(Block, d), p.d[row]);
  }
  static Affine affine(const Packed& p, int unit, int half, int row) {
    return {float_from_half(p.d[row]) * static_cast<float>(p.scales[2 * unit + half][row]), 32, 0};
  }
};

}  // namespace nanomind::packed
