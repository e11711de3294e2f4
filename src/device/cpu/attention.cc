// SPDX-License-Identifier: Apache-2.0
// Attention over the blocked cache. The query rows of all heads that share a key/value head are stacked and meet one
// block of 64 keys at a time, with a running softmax (Flash-Attention, arXiv 2205.14135), so no T x T matrix exists.
#include <algorithm>
#include <cmath>
#include <limits>

#include "device/cpu/instructions.h"

namespace nanomind::cpu {
namespace {

static_assert(kKvBlock == kKvBlockTokens);

constexpr int kTileRows = 16;  // stacked query rows of one task

struct Cache {
  std::byte* base;
  size_t block_bytes;
  const AttentionStep& s;

  uint16_t* keys(int32_t block, int head) const { return at(block, s.k_offset, head); }
  uint16_t* values(int32_t block, int head) const { return at(block, s.v_offset, head); }

 private:
  uint16_t* at(int32_t block, size_t offset, int head) const {
    auto* start = reinterpret_cast<uint16_t*>(base + static_cast<size_t>(block) * block_bytes + offset);
    return start + static_cast<int64_t>(head) * s.head_dim * kKvBlock;
  }
};

// Appends the step's rows of one key/value head: keys transposed within their block, values as they are.
void store(const AttentionStep& s, const StepContext& context, const Cache& cache, int head) {
  int64_t row = 0;
  uint16_t key[kMaxHeadDim];
  for (const SequenceRows& sequence : context.step.sequences) {
    for (int64_t i = 0; i < sequence.rows; ++i, ++row) {
      const int64_t position = sequence.past + i, slot = position % kKvBlock;
      const int32_t block = sequence.blocks[static_cast<size_t>(position / kKvBlock)];
      context.kernels.to_half(s.k.row(row) + static_cast<int64_t>(head) * s.head_dim, s.head_dim, key);
      uint16_t* keys = cache.keys(block, head) + slot;
      for (int c = 0; c < s.head_dim; ++c) keys[c * kKvBlock] = key[c];
      context.kernels.to_half(s.v.row(row) + static_cast<int64_t>(head) * s.head_dim, s.head_dim,
                              cache.values(block, head) + slot * s.head_dim);
    }
  }
}

// Stacked row r of a key/value head is query head `head * group + r % group` of the sequence's token r / group.
struct Tile {
  const SequenceRows& sequence;
  int64_t first_row;   // of the sequence in the step
  int head;            // key/value head
  int64_t begin, end;  // stacked rows
};

void attend(const AttentionStep& s, const StepContext& context, const Cache& cache, const Tile& tile) {
  alignas(64) float q[kTileRows * kMaxHeadDim];
  alignas(64) float out[kTileRows * kMaxHeadDim];
  alignas(64) float scores[kTileRows * kKvBlock];
  float max[kTileRows], sum[kTileRows], correction[kTileRows];

  const int group = s.heads / s.kv_heads, d = s.head_dim;
  const int m = static_cast<int>(tile.end - tile.begin);
  const auto position = [&](int i) { return tile.sequence.past + (tile.begin + i) / group; };
  const auto column = [&](int i) { return (static_cast<int64_t>(tile.head) * group + (tile.begin + i) % group) * d; };
  const auto step_row = [&](int i) { return tile.first_row + (tile.begin + i) / group; };
  const auto first_key = [&](int i) { return s.window > 0 ? std::max<int64_t>(0, position(i) - s.window + 1) : 0; };

  for (int i = 0; i < m; ++i) {
    std::copy_n(s.q.row(step_row(i)) + column(i), d, q + i * d);
    max[i] = -std::numeric_limits<float>::infinity();
    sum[i] = 0;
  }
  const int64_t keys_begin = first_key(0), keys_end = position(m - 1) + 1;
  for (int64_t block = keys_begin / kKvBlock; block * kKvBlock < keys_end; ++block) {
    const int32_t id = tile.sequence.blocks[static_cast<size_t>(block)];
    context.kernels.qk(q, d, m, cache.keys(id, tile.head), d, scores);
    int lowest = kKvBlock, highest = 0;
    for (int i = 0; i < m; ++i) {
      const auto first = static_cast<int>(std::clamp<int64_t>(first_key(i) - block * kKvBlock, 0, kKvBlock));
      const auto last = static_cast<int>(std::clamp<int64_t>(position(i) + 1 - block * kKvBlock, 0, kKvBlock));
      if (first < last) {
        correction[i] = context.kernels.softmax_block(scores + i * kKvBlock, first, last, s.scale, &max[i], &sum[i]);
        lowest = std::min(lowest, first);
        highest = std::max(highest, last);
      } else {  // this row sees nothing of the block; before its first block `out` is not yet written
        std::fill_n(scores + i * kKvBlock, kKvBlock, 0.0F);
        correction[i] = sum[i] > 0 ? 1.0F : 0.0F;
      }
    }
    context.kernels.pv(scores, m, cache.values(id, tile.head), lowest, highest, d, correction, out, d);
  }
  for (int i = 0; i < m; ++i) {
    float* target = s.out.row(step_row(i)) + column(i);
    const float scale = 1.0F / sum[i];
    for (int c = 0; c < d; ++c) target[c] = out[i * d + c] * scale;
  }
}

}  // namespace

void run(const AttentionStep& s, StepContext& context) {
  const Cache cache{context.kv, context.kv_block_bytes, s};
  const int64_t tokens = context.rows(Rows::tokens);
  if (tokens < kTileRows) {
    for (int head = 0; head < s.kv_heads; ++head) store(s, context, cache, head);
  } else {
    context.pool.for_each(s.kv_heads, [&](int64_t head) { store(s, context, cache, static_cast<int>(head)); });
  }

  const int group = s.heads / s.kv_heads;
  const auto tiles_of = [&](const SequenceRows& sequence) {
    return (sequence.rows * group + kTileRows - 1) / kTileRows;
  };
  int64_t tiles = 0;
  for (const SequenceRows& sequence : context.step.sequences) tiles += tiles_of(sequence) * s.kv_heads;
  context.pool.for_each(tiles, [&](int64_t task) {
    int64_t first_row = 0;
    for (const SequenceRows& sequence : context.step.sequences) {
      const int64_t count = tiles_of(sequence);
      if (task < count * s.kv_heads) {
        const int64_t begin = (count - 1 - task / s.kv_heads) * kTileRows;  // the longest tiles first
        attend(s, context, cache,
               {.sequence = sequence,
                .first_row = first_row,
                .head = static_cast<int>(task % s.kv_heads),
                .begin = begin,
                .end = std::min(begin + kTileRows, sequence.rows * group)});
        return;
      }
      task -= count * s.kv_heads;
      first_row += sequence.rows;
    }
  });
}

}  // namespace nanomind::cpu
