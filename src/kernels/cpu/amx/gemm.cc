// SPDX-License-Identifier: Apache-2.0
// Products of many rows in bf16: a pair of row groups (32 results) is unpacked to tiles and meets up to 32 activation
// rows at a time.
//
// A panel of four pairs times a block of columns stays in the second-level cache while all activations pass by, each 32
// rows of which meet the whole panel. Sums stay in tiles for the whole block of columns. Every pair is unpacked during
// the walk before the one that needs it first: one walk's vector instructions fill the other's wait for tiles.
#include "kernels/cpu/amx/formats_k.h"
#include "kernels/cpu/amx/formats_table.h"
#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/install.h"

namespace nanomind::amx {
namespace {

constexpr int kPairs = 4;  // of a panel
constexpr int kGroupsAtOnce = 2 * kPairs;
constexpr int64_t kMaxBlockSteps = 64;          // a panel's block of columns is 512 KB of tiles
constexpr int64_t kStepBytes = 2 * kTileBytes;  // a step of activations or of a pair of weights: two tiles
constexpr int64_t kAhead = 4096;                // bytes of packed weights that are asked for before they are read

// Steps of a row of packed activations, in whole blocks of the formats that pad.
constexpr int64_t row_steps(int64_t columns) {
  return (columns + kPaddedColumns - 1) / kPaddedColumns * kPaddedColumns / kStepColumns;
}

// Steps that a walk takes, except the last along the columns; a multiple of the largest block of weights.
constexpr int64_t block_steps(int64_t columns) {
  constexpr int64_t kMultiple = PackedQ4_K::kColumns / kStepColumns;
  const int64_t steps = row_steps(columns), blocks = (steps + kMaxBlockSteps - 1) / kMaxBlockSteps;
  return (steps + blocks * kMultiple - 1) / (blocks * kMultiple) * kMultiple;
}

// Order of packed activations: blocks of 32 rows, in it steps of 32 columns, in it two tiles of 16 rows.
size_t packed_bytes(int64_t rows, int64_t columns) {
  return static_cast<size_t>((rows + kBlockRows - 1) / kBlockRows * row_steps(columns) * kStepBytes);
}

size_t scratch_bytes(int64_t columns) { return static_cast<size_t>(kPairs * block_steps(columns) * kStepBytes); }

void pack(const float* x, int64_t begin, int64_t n, int64_t columns, int64_t row, std::byte* packed) {
  const int64_t steps = row_steps(columns), in_block = row % kBlockRows;
  std::byte* to = packed + row / kBlockRows * steps * kStepBytes + in_block / kTileRows * kTileBytes +
                  in_block % kTileRows * kTileRowBytes;
  const int64_t end = begin + n == columns ? steps * kStepColumns : begin + n;
  for (int64_t c = begin; c < end; c += kStepColumns) {
    const int64_t left = begin + n - c;
    const __m512 first = _mm512_maskz_loadu_ps(avx512::first_lanes(left), x + (c - begin));
    const __m512 second = _mm512_maskz_loadu_ps(avx512::first_lanes(left - 16), x + (c - begin) + 16);
    _mm512_store_si512(to + c / kStepColumns * kStepBytes,
                       reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
  }
}

// A pair of row groups to unpack, along one block of columns; no steps: nothing to do.
struct Source {
  const std::byte* weights = nullptr;  // of the first group, where the block of columns begins
  size_t group_bytes = 0;
  int groups = 0;
  int64_t steps = 0;
  std::byte* tiles = nullptr;
};

enum class Sums { new_ones, add_to_out };

// A block of activation rows times an unpacked pair, along one block of columns; no steps: nothing to do.
struct Product {
  const std::byte* x = nullptr;
  const std::byte* weights = nullptr;
  int64_t steps = 0;
  int row_tiles = 0, group_tiles = 0;
  Sums sums = Sums::new_ones;
  float* out = nullptr;
  int64_t out_stride = 0;
};

template <int i, int j>
[[gnu::always_inline]] inline void begin_sum(const Product& p) {
  if (i >= p.row_tiles || j >= p.group_tiles) return;
  if (p.sums == Sums::new_ones) {
    zero_tile<kSums + 2 * i + j>();
  } else {
    load_tile<kSums + 2 * i + j>(p.out + i * kTileRows * p.out_stride + j * kGroupRows, p.out_stride * 4);
  }
}

template <int i, int j>
[[gnu::always_inline]] inline void end_sum(const Product& p) {
  if (i >= p.row_tiles || j >= p.group_tiles) return;
  store_tile<kSums + 2 * i + j>(p.out + i * kTileRows * p.out_stride + j * kGroupRows, p.out_stride * 4);
}

[[gnu::always_inline]] inline void multiply_step(const Product& p, int64_t step) {
  const std::byte* x = p.x + step * kStepBytes;
  const std::byte* weights = p.weights + step * kStepBytes;
  load_tile<kActivations>(x, kTileRowBytes);
  load_tile<kWeights>(weights, kTileRowBytes);
  multiply_tiles<0, 0>();
  if (p.group_tiles == 2) {
    load_tile<kWeights + 1>(weights + kTileBytes, kTileRowBytes);
    multiply_tiles<0, 1>();
  }
  if (p.row_tiles == 2) {
    load_tile<kActivations + 1>(x + kTileBytes, kTileRowBytes);
    multiply_tiles<1, 0>();
    if (p.group_tiles == 2) multiply_tiles<1, 1>();
  }
}

template <typename F>
[[gnu::always_inline]] inline void each_sum(const F& f) {
  each<2>([&] [[gnu::always_inline]] (auto i) { each<2>([&] [[gnu::always_inline]] (auto j) { f(i, j); }); });
}

// Asks for the lines of one unit. A pair of groups is followed by what the next pair has in the same block of columns.
template <typename Block>
[[gnu::always_inline]] inline void prefetch(const std::byte* block, int unit) {
  constexpr int kBytes = static_cast<int>(sizeof(Block)) / (Block::kColumns / kStepColumns);
  each<(kBytes + 63) / 64>([&] [[gnu::always_inline]] (auto i) { __builtin_prefetch(block + unit * kBytes + 64 * i); });
}

// Unpacks one pair while it multiplies another.
template <typename Format>
[[gnu::noinline]] void walk(const Source& source, const Product& product) {
  using Block = typename Format::Block;
  constexpr int kUnits = Block::kColumns / kStepColumns;
  const int64_t end = source.steps / kUnits * static_cast<int64_t>(sizeof(Block));
  const int64_t to_next_pair = 2 * static_cast<int64_t>(source.group_bytes) - end;
  each_sum([&] [[gnu::always_inline]] (auto i, auto j) { begin_sum<i, j>(product); });
  int64_t step = 0;
  for (int64_t at = 0; at < end; at += sizeof(Block)) {
    const std::byte* blocks[2] = {source.weights + at, source.weights + source.group_bytes + at};
    const int64_t ahead = at + kAhead < end ? kAhead : kAhead + to_next_pair;
    typename Format::Prepared prepared[2];
    for (int i = 0; i < source.groups; ++i) Format::prepare(*reinterpret_cast<const Block*>(blocks[i]), prepared[i]);
    for (int unit = 0; unit < kUnits; ++unit, ++step) {
      std::byte* tiles = source.tiles + step * kStepBytes;
      for (int i = 0; i < source.groups; ++i) {
        prefetch<Block>(blocks[i] + ahead, unit);
        Format::unpack(*reinterpret_cast<const Block*>(blocks[i]), prepared[i], unit, tiles + i * kTileBytes);
      }
      if (step < product.steps) multiply_step(product, step);
    }
  }
  for (; step < product.steps; ++step) multiply_step(product, step);
  each_sum([&] [[gnu::always_inline]] (auto i, auto j) { end_sum<i, j>(product); });
}

// Pairs in the order of their first use: all of a panel along a block of columns, then its next block of columns, then
// the next panel. They take turns in kPairs slots of the scratch memory.
struct Pair {
  int panel = 0, group = 0;
  int64_t step = 0;
  int slot = 0;

  bool last_of_panel(const GemmArgs& a) const { return group + 2 >= panel + kGroupsAtOnce || group + 2 >= a.groups; }
  int groups(const GemmArgs& a) const { return group + 2 <= a.groups ? 2 : 1; }
};

template <typename Format>
class Walker {
 public:
  explicit Walker(const GemmArgs& args)
      : a_(args),
        steps_((args.columns + Format::Block::kColumns - 1) / Format::Block::kColumns * kUnits),
        block_steps_(block_steps(args.columns)) {}

  void run() {
    Pair pair;
    walk<Format>(source(pair), {});
    while (pair.panel < a_.groups) {
      const Pair first = pair;
      for (int64_t row = 0; row < a_.rows; row += kBlockRows) {
        configure(row);
        pair = first;
        for (bool more = true; more;) {
          const Pair next = after(pair);
          // A pair's first use is in the panel's first rows, and the next walk is that use.
          const bool next_is_new = pair.last_of_panel(a_) ? row + kBlockRows >= a_.rows : row == 0;
          walk<Format>(next_is_new ? source(next) : Source{}, product(pair, row));
          more = !pair.last_of_panel(a_);
          pair = next;
        }
      }
    }
    release_tiles();
  }

 private:
  static constexpr int64_t kUnits = Format::Block::kColumns / kStepColumns;

  void configure(int64_t row) {
    const int rows = static_cast<int>(a_.rows - row < kBlockRows ? a_.rows - row : kBlockRows);
    if (rows != configured_) configure_tiles(rows);
    configured_ = rows;
  }

  Pair after(Pair p) const {
    p.slot = (p.slot + 1) % kPairs;
    if (!p.last_of_panel(a_)) {
      p.group += 2;
      return p;
    }
    p.step += block_steps_;
    if (p.step >= steps_) {
      p.step = 0;
      p.panel += kGroupsAtOnce;
    }
    p.group = p.panel;
    return p;
  }

  int64_t steps(const Pair& p) const { return steps_ - p.step < block_steps_ ? steps_ - p.step : block_steps_; }
  std::byte* tiles(const Pair& p) const { return a_.scratch + p.slot * block_steps_ * kStepBytes; }

  Source source(const Pair& p) const {
    if (p.panel >= a_.groups) return {};
    return {.weights = a_.weights + static_cast<size_t>(p.group) * a_.group_bytes +
                       static_cast<size_t>(p.step / kUnits) * sizeof(typename Format::Block),
            .group_bytes = a_.group_bytes,
            .groups = p.groups(a_),
            .steps = steps(p),
            .tiles = tiles(p)};
  }

  Product product(const Pair& p, int64_t row) const {
    return {.x = a_.x + (row / kBlockRows * row_steps(a_.columns) + p.step) * kStepBytes,
            .weights = tiles(p),
            .steps = steps(p),
            .row_tiles = a_.rows - row > kTileRows ? 2 : 1,
            .group_tiles = p.groups(a_),
            .sums = p.step == 0 ? Sums::new_ones : Sums::add_to_out,
            .out = a_.out + row * a_.out_stride + p.group * kGroupRows,
            .out_stride = a_.out_stride};
  }

  const GemmArgs& a_;
  const int64_t steps_, block_steps_;
  int configured_ = 0;
};

template <typename Format>
void multiply(const GemmArgs& a) {
  Walker<Format>(a).run();
}

}  // namespace

void install_gemm(KernelTable& table) {
  table.gemm_fast = {.min_width = 0,
                     .groups_at_once = kGroupsAtOnce,
                     .packed_bytes = packed_bytes,
                     .scratch_bytes = scratch_bytes,
                     .pack = pack,
                     .multiply = {multiply<Q4_0>, multiply<Q4_1>, multiply<Q5_0>, multiply<Q5_1>, multiply<Q8_0>,
                                  multiply<Q2_K>, multiply<Q3_K>, multiply<Q4_K>, multiply<Q5_K>, multiply<Q6_K>,
                                  multiply<IQ4_NL>, multiply<IQ4_XS>, multiply<MXFP4>},
                     .multiply_float = {multiply<F32>, multiply<F16>, multiply<Bf16>}};
  table.gemm_fast_gelu = {};  // floats need none
}

}  // namespace nanomind::amx
