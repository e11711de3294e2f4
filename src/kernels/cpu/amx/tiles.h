// SPDX-License-Identifier: Apache-2.0
// The tile instructions of AMX and the roles that products give to the eight tiles. Assembly, since the intrinsics of
// some compilers do not say which memory a tile instruction reads and writes. Intel SDM vol. 2, "TDPBF16PS" and
// "LDTILECFG".
#pragma once

#include <cstddef>
#include <cstdint>

namespace nanomind::amx {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileRowBytes = 64;
constexpr int kTileBytes = kTileRows * kTileRowBytes;
constexpr int kStepColumns = 32;           // columns of the matrix in one tile of bf16 numbers
constexpr int kBlockRows = 2 * kTileRows;  // activation rows that meet a pair of weight tiles

// Tiles 0..3 are sums: tile 2 * i + j belongs to activation tile i and weight tile j.
constexpr int kSums = 0, kActivations = 4, kWeights = 6;

// The operand of LDTILECFG. Tiles with 0 rows cannot be used.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int row_count) {
    rows[tile] = static_cast<uint8_t>(row_count);
    row_bytes[tile] = row_count == 0 ? 0 : kTileRowBytes;
  }
};

// Shapes for products of `rows` activation rows (1..kBlockRows): sums and activations have no more rows than that.
inline void configure_tiles(int rows) {
  const int counts[2] = {rows < kTileRows ? rows : kTileRows, rows < kTileRows ? 0 : rows - kTileRows};
  TileConfig config;
  for (int i = 0; i < 2; ++i) {
    config.set(kActivations + i, counts[i]);
    config.set(kWeights + i, kTileRows);
    for (int j = 0; j < 2; ++j) config.set(kSums + 2 * i + j, counts[i]);
  }
  __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

// Gives the tiles back: without content, task switches need not save them.
inline void release_tiles() { __asm__ volatile("tilerelease" ::: "memory"); }

template <int kTile>
[[gnu::always_inline]] inline void zero_tile() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

template <int kTile>
[[gnu::always_inline]] inline void load_tile(const void* rows, int64_t stride_bytes) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(rows), "r"(stride_bytes) : "memory");
}

template <int kTile>
[[gnu::always_inline]] inline void store_tile(void* rows, int64_t stride_bytes) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(rows), "r"(stride_bytes) : "memory");
}

// Sums i, j += activations i times weights j.
template <int i, int j>
[[gnu::always_inline]] inline void multiply_tiles() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums + 2 * i + j), "i"(kActivations + i),
                   "i"(kWeights + j));
}

}  // namespace
}  // namespace nanomind::amx
