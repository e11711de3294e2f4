// SPDX-License-Identifier: Apache-2.0
// How the codes and scales of the types with blocks of 32 lie in a GGUF block and in a packed block, for
// tensor/packed.cc alone; those with blocks of 256: packed_types_k.h. Codes move in runs of eight, held as the bytes of
// one uint64: a type says how a run lies in a GGUF block (load, store) and in a packed block (put, get), how its scales
// do, and what a code is worth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/packed_layout.h"

namespace nanomind::packed {

inline constexpr uint64_t kBytes = 0x0101010101010101u;  // times b: b in every byte
inline constexpr int kRuns = kUnitColumns / 8;           // of a unit

template <typename T>
T load(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <typename T>
void store(void* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

template <typename T>
void merge(void* p, T bits) {
  store<T>(p, static_cast<T>(load<T>(p) | bits));
}

// Exchanges the two middle bytes: the order 0, 2, 1, 3 of packed dwords, and back.
inline uint32_t swap_middle(uint32_t x) { return (x & 0xFF0000FFu) | (x >> 8 & 0xFF00u) | (x << 8 & 0xFF0000u); }

// Fields of `bits` bits from the bytes of a run as one dword: columns 0..3 in the low fields, 4..7 in the ones above.
inline uint32_t fold(uint64_t run, int bits) { return swap_middle(static_cast<uint32_t>(run | run >> (32 - bits))); }
inline uint64_t unfold(uint32_t dword, int bits) {
  const uint64_t x = swap_middle(dword);
  return (x | x << (32 - bits)) & kBytes * ((1u << bits) - 1);
}

inline uint8_t* vector_dword(uint8_t* vector, int row) { return vector + 4 * row; }
inline const uint8_t* vector_dword(const uint8_t* vector, int row) { return vector + 4 * row; }

// Eight nibbles of a run to and from vector `run` of a unit.
inline void put_nibbles(uint8_t (*codes)[64], int run, int row, uint64_t q) {
  store(vector_dword(codes[run], row), fold(q & kBytes * 15, 4));
}
inline uint64_t get_nibbles(const uint8_t (*codes)[64], int run, int row) {
  return unfold(load<uint32_t>(vector_dword(codes[run], row)), 4);
}

// The lowest bit of each byte of a run, to and from a unit's plane of such bits.
inline void put_bits(uint8_t* plane, int run, int row, uint64_t bits) {
  merge(vector_dword(plane, row), fold(bits & kBytes, 1) << 2 * run);
}
inline uint64_t get_bits(const uint8_t* plane, int run, int row) {
  return unfold(load<uint32_t>(vector_dword(plane, row)) >> 2 * run & 0x03030303u, 1);
}

// The two lowest bits of each byte of a run, to and from a unit's two planes of such pairs.
inline void put_bit_pairs(uint8_t (*planes)[64], int run, int row, uint64_t pairs) {
  merge(vector_dword(planes[run / 2], row), fold(pairs & kBytes * 3, 2) << 4 * (run & 1));
}
inline uint64_t get_bit_pairs(const uint8_t (*planes)[64], int run, int row) {
  return unfold(load<uint32_t>(vector_dword(planes[run / 2], row)) >> 4 * (run & 1) & 0x0F0F0F0Fu, 2);
}

// The nibbles of blocks that keep column j and j + 16 in byte j.
inline uint64_t load_split_nibbles(const uint8_t* qs, int run) {
  return load<uint64_t>(qs + 8 * (run & 1)) >> (run < 2 ? 0 : 4) & kBytes * 15;
}
inline void store_split_nibbles(uint8_t* qs, int run, uint64_t q) {
  merge<uint64_t>(qs + 8 * (run & 1), (q & kBytes * 15) << (run < 2 ? 0 : 4));
}

// One bit per byte from the bits of `bits`, and back.
inline uint64_t spread_bits(uint8_t bits) {
  return ((bits * kBytes & 0x8040201008040201u) + kBytes * 127) >> 7 & kBytes;
}
inline uint8_t gather_bits(uint64_t bytes) { return static_cast<uint8_t>(bytes * 0x0102040810204080u >> 56); }

// w = scale * (q - zero) + offset for one row of half a unit.
struct Affine {
  float scale;
  int zero;
  float offset;
};

// Codes of four bits, and of five, in a source's block of 32.
template <typename BlockType, typename PackedType>
struct NibbleCodes {
  using Block = BlockType;
  using Packed = PackedType;
  static constexpr int kUnits = 1;  // of a GGUF block

  static uint64_t load_run(const uint8_t* b, int, int run) { return load_split_nibbles(b + offsetof(Block, qs), run); }
  static void store_run(uint8_t* b, int, int run, uint64_t q) { store_split_nibbles(b + offsetof(Block, qs), run, q); }
  static void put(Packed& p, int unit, int run, int row, uint64_t q) { put_nibbles(p.codes[unit], run, row, q); }
  static uint64_t get(const Packed& p, int unit, int run, int row) { return get_nibbles(p.codes[unit], run, row); }
};

template <typename BlockType, typename PackedType>
struct FiveBitCodes {
  using Block = BlockType;
  using Packed = PackedType;
  static constexpr int kUnits = 1;

  static uint64_t load_run(const uint8_t* b, int, int run) {
    return load_split_nibbles(b + offsetof(Block, qs), run) | spread_bits(b[offsetof(Block, qh) + run]) << 4;
  }
  static void store_run(uint8_t* b, int, int run, uint64_t q) {
    store_split_nibbles(b + offsetof(Block, qs), run, q);
    b[offsetof(Block, qh) + run] = gather_bits(q >> 4 & kBytes);
  }
  static void put(Packed& p, int unit, int run, int row, uint64_t q) {
    put_nibbles(p.unit[unit].codes, run, row, q);
    put_bits(p.unit[unit].high, run, row, q >> 4);
  }
  static uint64_t get(const Packed& p, int unit, int run, int row) {
    return get_nibbles(p.unit[unit].codes, run, row) | get_bits(p.unit[unit].high, run, row) << 4;
  }
};

// w = d * (q - kZero), the half d at the beginning of the block.
template <typename Codes, int kZero>
struct WithScale : Codes {
  using typename Codes::Packed;
  static void pack_scales(const uint8_t* b, Packed& p, int unit, int row) { p.d[unit][row] = load<uint16_t>(b); }
  static void unpack_scales(const Packed& p, int unit, int row, uint8_t* b) { store(b, p.d[unit][row]); }
  static Affine affine(const Packed& p, int unit, int, int row) { return {float_from_half(p.d[unit][row]), kZero, 0}; }
};

// w = d * q + m, halves.
template <typename Codes>
struct WithMin : Codes {
  using typename Codes::Block, typename Codes::Packed;
  static void pack_scales(const uint8_t* b, Packed& p, int unit, int row) {
    p.d[unit][row] = load<uint16_t>(b);
    p.m[unit][row] = load<uint16_t>(b + offsetof(Block, m));
  }
  static void unpack_scales(const Packed& p, int unit, int row, uint8_t* b) {
    store(b, p.d[unit][row]);
    store(b + offsetof(Block, m), p.m[unit][row]);
  }
  static Affine affine(const Packed& p, int unit, int, int row) {
    return {float_from_half(p.d[unit][row]), 0, float_from_half(p.m[unit][row])};
  }
};

struct Q4_0 : WithScale<NibbleCodes<BlockQ4_0, PackedQ4_0>, 8> {};
struct Q4_1 : WithMin<NibbleCodes<BlockQ4_1, PackedQ4_1>> {};
struct Q5_0 : WithScale<FiveBitCodes<BlockQ5_0, PackedQ5_0>, 16> {};
struct Q5_1 : WithMin<FiveBitCodes<BlockQ5_1, PackedQ5_1>> {};

struct ByteCodes {
  using Block = BlockQ8_0;
  using Packed = PackedQ8_0;
  static constexpr int kUnits = 1;

  static uint64_t load_run(const uint8_t* b, int, int run) {
    return load<uint64_t>(b + offsetof(Block, qs) + 8 * run) ^ kBytes * 128;
  }
  static void store_run(uint8_t* b, int, int run, uint64_t q) {
    store(b + offsetof(Block, qs) + 8 * run, q ^ kBytes * 128);
  }
  static void put(Packed& p, int unit, int run, int row, uint64_t q) {
    store(vector_dword(p.codes[unit][2 * run], row), swap_middle(static_cast<uint32_t>(q)));
    store(vector_dword(p.codes[unit][2 * run + 1], row), swap_middle(static_cast<uint32_t>(q >> 32)));
  }
  static uint64_t get(const Packed& p, int unit, int run, int row) {
    const uint64_t low = swap_middle(load<uint32_t>(vector_dword(p.codes[unit][2 * run], row)));
    const uint64_t high = swap_middle(load<uint32_t>(vector_dword(p.codes[unit][2 * run + 1], row)));
    return low | high << 32;
  }
};
struct Q8_0 : WithScale<ByteCodes, 128> {};

}  // namespace nanomind::packed
