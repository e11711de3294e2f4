// SPDX-License-Identifier: Apache-2.0
// What packed_types.h is, for the types whose codes are entries of a table.
#pragma once

#include "tensor/packed_types.h"

namespace nanomind::packed {

// Nibbles in the order of Q4_0, 16 bytes of each block for each unit.
template <typename GgufBlock, typename PackedBlock>
struct TableCodes {
  using Block = GgufBlock;
  using Packed = PackedBlock;

  static uint64_t load_run(const uint8_t* b, int unit, int run) {
    return load_split_nibbles(b + offsetof(Block, qs) + 16 * unit, run);
  }
  static void store_run(uint8_t* b, int unit, int run, uint64_t q) {
    store_split_nibbles(b + offsetof(Block, qs) + 16 * unit, run, q);
  }
  static void put(Packed& p, int unit, int run, int row, uint64_t q) { put_nibbles(p.codes[unit], run, row, q); }
  static uint64_t get(const Packed& p, int unit, int run, int row) { return get_nibbles(p.codes[unit], run, row); }
};

struct IQ4_NL : TableCodes<BlockIQ4_NL, PackedIQ4_NL> {
  static constexpr int kUnits = 1;
  static constexpr const int8_t (&kValues)[16] = kIq4Values;

  static void pack_scales(const uint8_t* b, Packed& p, int unit, int row) { p.d[unit][row] = load<uint16_t>(b); }
  static void unpack_scales(const Packed& p, int unit, int row, uint8_t* b) { store(b, p.d[unit][row]); }
  static Affine affine(const Packed& p, int unit, int, int row) { return {float_from_half(p.d[unit][row]), 0, 0}; }
};

struct IQ4_XS : TableCodes<BlockIQ4_XS, PackedIQ4_XS> {
  static constexpr int kUnits = 8;
  static constexpr const int8_t (&kValues)[16] = kIq4Values;

  static void pack_scales(const uint8_t* b, Packed& p, int, int row) {
    for (int i = 0; i < 4; ++i) p.scale_low[i][row] = b[offsetof(Block, scales_l) + i];
    for (int i = 0; i < 2; ++i) p.scale_top[i][row] = b[offsetof(Block, scales_h) + i];
    p.d[row] = load<uint16_t>(b);
  }
  static void unpack_scales(const Packed& p, int, int row, uint8_t* b) {
    for (int i = 0; i < 4; ++i) b[offsetof(Block, scales_l) + i] = p.scale_low[i][row];
    for (int i = 0; i < 2; ++i) b[offsetof(Block, scales_h) + i] = p.scale_top[i][row];
    store(b, p.d[row]);
  }
  static Affine affine(const Packed& p, int unit, int, int row) {
    const int low = p.scale_low[unit / 2][row] >> 4 * (unit % 2) & 15;
    const int top = p.scale_top[unit / 4][row] >> 2 * (unit % 4) & 3;
    return {float_from_half(p.d[row]) * static_cast<float>((low | top << 4) - 32), 0, 0};
  }
};

struct MXFP4 : TableCodes<BlockMXFP4, PackedMXFP4> {
  static constexpr int kUnits = 1;
  static constexpr const int8_t (&kValues)[16] = kMxfp4Values;

  static void pack_scales(const uint8_t* b, Packed& p, int unit, int row) { p.e[unit][row] = *b; }
  static void unpack_scales(const Packed& p, int unit, int row, uint8_t* b) { *b = p.e[unit][row]; }
  static Affine affine(const Packed& p, int unit, int, int row) { return {float_from_e8m0_half(p.e[unit][row]), 0, 0}; }
};

}  // namespace nanomind::packed
