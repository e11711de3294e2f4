// SPDX-License-Identifier: Apache-2.0
// Attention over the blocked cache. The query rows of all heads that share a key/value head are stacked and meet one
// block of 64 keys at a time, with a running softmax (Flash-Attention, arXiv 2205.14135), so no T x T matrix exists.
// Where there are few stacks for the threads, as in decoding, their keys are cut into parts whose results are merged.
#include <algorithm>
#include <cmath>
#include <limits>

#include "device/cpu/instructions.h"
#include "device/cpu/kv_store.h"

namespace nanomind::cpu {
namespace {

constexpr int kTileRows = 24;           // stacked query rows of one task; kernels take six at a time
constexpr int64_t kFewTiles = 4;        // per thread
constexpr int64_t kAttentionParts = 8;  // per thread, at most
constexpr int64_t kMinPartBlocks = 4;   // of keys: less work than this does not pay for merging

struct Cache {
  std::byte* base;
  size_t block_bytes;
  const AttentionStep& s;

  std::byte* keys(int32_t block, int head) const { return at(block) + s.kv.keys(head); }
  std::byte* values(int32_t block, int head) const { return at(block) + s.kv.values(head); }

 private:
  std::byte* at(int32_t block) const { return base + static_cast<size_t>(block) * block_bytes; }
};

// Appends the step's rows of one key/value head.
void store(const AttentionStep& s, const StepContext& context, const Cache& cache, int head) {
  const int d = s.kv.head_dim;
  int64_t row = 0;
  for (const SequenceRows& sequence : context.step.sequences) {
    for (int64_t i = 0; i < sequence.rows; ++i, ++row) {
      const int64_t position = sequence.past + i;
      const int slot = static_cast<int>(position % kKvBlock);
      const int32_t block = sequence.blocks[static_cast<size_t>(position / kKvBlock)];
      s.keys->put_key(s.k.row(row) + static_cast<int64_t>(head) * d, d, d, slot, cache.keys(block, head));
      s.values->put_value(s.v.row(row) + static_cast<int64_t>(head) * d, d, slot, cache.values(block, head));
    }
  }
}

// Stacked row r of a key/value head is query head `head * group + r % group` of the sequence's token r / group.
struct Tile {
  const AttentionStep& s;
  const StepContext& context;
  const SequenceRows& sequence;
  int64_t first_row;   // of the sequence in the step
  int head;            // key/value head
  int64_t begin, end;  // stacked rows

  int group() const { return s.heads / s.kv.heads; }
  int rows() const { return static_cast<int>(end - begin); }
  int64_t position(int i) const { return sequence.past + (begin + i) / group(); }
  int64_t step_row(int i) const { return first_row + (begin + i) / group(); }
  int64_t column(int i) const { return (static_cast<int64_t>(head) * group() + (begin + i) % group()) * s.kv.head_dim; }
  // The end of the keys that row i sees, and the first; neither is lower than that of the row before.
  int64_t end_key(int i) const {
    switch (s.mask) {
      case Mask::causal: return position(i) + 1;
      case Mask::none: return sequence.past + sequence.rows;
      case Mask::group:
      case Mask::causal_group: return position_of(context.group(step_row(i)).end);  // never before the row's own
    }
    return 0;
  }
  int64_t first_key(int i) const {
    if (s.mask == Mask::group) return position_of(context.group(step_row(i)).begin);
    return s.window > 0 ? std::max<int64_t>(0, position(i) - s.window + 1) : 0;
  }
  // Of a row of the step.
  int64_t position_of(int64_t row) const { return sequence.past + row - first_row; }

  // Blocks of keys that any row sees.
  int64_t first_block() const { return first_key(0) / kKvBlock; }
  int64_t end_block() const { return (end_key(rows() - 1) + kKvBlock - 1) / kKvBlock; }
};

// What rows of a tile have gathered from some of their keys: out[i] / sum[i] is the result if these were all.
struct Gathered {
  float max[kTileRows], sum[kTileRows];
  float* out;  // [kTileRows, head_dim]; row i is unwritten while sum[i] is 0
};

// cap * tanh(scale * score / cap)
void cap_scores(const AttentionStep& s, float* scores, int first, int last) {
  const float factor = s.scale / s.cap;
  for (int j = first; j < last; ++j) scores[j] = s.cap * std::tanh(scores[j] * factor);
}

void gather(const StepContext& context, const Cache& cache, const Tile& tile, int64_t first_block, int64_t end_block,
            Gathered& g) {
  alignas(64) float q[kTileRows * kMaxHeadDim];
  alignas(64) float scores[kTileRows * kKvBlock];
  float correction[kTileRows];
  const int d = tile.s.kv.head_dim, m = tile.rows();
  for (int i = 0; i < m; ++i) {
    std::copy_n(tile.s.q.row(tile.step_row(i)) + tile.column(i), d, q + i * d);
    tile.s.keys->mix(q + i * d, d);
    g.max[i] = -std::numeric_limits<float>::infinity();
    g.sum[i] = 0;
  }
  for (int64_t block = first_block; block < end_block; ++block) {
    const int32_t id = tile.sequence.blocks[static_cast<size_t>(block)];
    tile.s.keys->qk(q, m, cache.keys(id, tile.head), d, scores);
    int lowest = kKvBlock, highest = 0;
    for (int i = 0; i < m; ++i) {
      const auto first = static_cast<int>(std::clamp<int64_t>(tile.first_key(i) - block * kKvBlock, 0, kKvBlock));
      const auto last = static_cast<int>(std::clamp<int64_t>(tile.end_key(i) - block * kKvBlock, 0, kKvBlock));
      if (first < last) {
        float* row = scores + i * kKvBlock;
        if (tile.s.cap > 0) cap_scores(tile.s, row, first, last);
        correction[i] =
            context.kernels.softmax_block(row, first, last, tile.s.cap > 0 ? 1.0F : tile.s.scale, &g.max[i], &g.sum[i]);
        lowest = std::min(lowest, first);
        highest = std::max(highest, last);
      } else {  // this row sees nothing of the block; before its first block `out` is not yet written
        std::fill_n(scores + i * kKvBlock, kKvBlock, 0.0F);
        correction[i] = g.sum[i] > 0 ? 1.0F : 0.0F;
      }
    }
    tile.s.values->pv(scores, m, cache.values(id, tile.head), lowest, highest, d, correction, g.out);
  }
  for (int i = 0; i < m; ++i) {
    if (g.sum[i] > 0) tile.s.values->mix(g.out + i * d, d);
  }
}

void attend(const StepContext& context, const Cache& cache, const Tile& tile) {
  alignas(64) float out[kTileRows * kMaxHeadDim];
  Gathered g;
  g.out = out;
  gather(context, cache, tile, tile.first_block(), tile.end_block(), g);
  const int d = tile.s.kv.head_dim;
  for (int i = 0; i < tile.rows(); ++i) {
    float* target = tile.s.out.row(tile.step_row(i)) + tile.column(i);
    const float scale = 1.0F / g.sum[i];
    for (int c = 0; c < d; ++c) target[c] = out[i * d + c] * scale;
  }
}

// out = sum of exp(max_p - max) * out_p / sum of exp(max_p - max) * sum_p over the parts p of a tile's keys.
void merge(const Tile& tile, const Gathered* parts, int64_t count) {
  const int d = tile.s.kv.head_dim;
  for (int i = 0; i < tile.rows(); ++i) {
    float* target = tile.s.out.row(tile.step_row(i)) + tile.column(i);
    float max = parts[0].max[i];
    for (int64_t p = 1; p < count; ++p) max = std::max(max, parts[p].max[i]);
    float total = 0;
    for (int64_t p = 0; p < count; ++p) total += std::exp(parts[p].max[i] - max) * parts[p].sum[i];
    std::fill_n(target, d, 0.0F);
    for (int64_t p = 0; p < count; ++p) {
      if (parts[p].sum[i] == 0) continue;  // saw no key, and wrote no row
      const float weight = std::exp(parts[p].max[i] - max) / total;
      for (int c = 0; c < d; ++c) target[c] += parts[p].out[i * d + c] * weight;
    }
  }
}

// The tiles of a step, the longest of each sequence first.
class Tiles {
 public:
  Tiles(const AttentionStep& s, const StepContext& context) : s_(s), context_(context) {
    for (const SequenceRows& sequence : context.step.sequences) count_ += of(sequence) * s.kv.heads;
  }
  int64_t count() const { return count_; }
  Tile operator[](int64_t index) const {
    int64_t first_row = 0;
    for (const SequenceRows& sequence : context_.step.sequences) {
      const int64_t tiles = of(sequence);
      if (index < tiles * s_.kv.heads) {
        const int64_t begin = (tiles - 1 - index / s_.kv.heads) * kTileRows;
        return {.s = s_,
                .context = context_,
                .sequence = sequence,
                .first_row = first_row,
                .head = static_cast<int>(index % s_.kv.heads),
                .begin = begin,
                .end = std::min(begin + kTileRows, sequence.rows * group())};
      }
      index -= tiles * s_.kv.heads;
      first_row += sequence.rows;
    }
    CHECK(false);
  }

 private:
  int64_t group() const { return s_.heads / s_.kv.heads; }
  int64_t of(const SequenceRows& sequence) const { return (sequence.rows * group() + kTileRows - 1) / kTileRows; }
  const AttentionStep& s_;
  const StepContext& context_;
  int64_t count_ = 0;
};

// Keys in parts: as many as keep all threads busy to the end.
void attend_in_parts(const AttentionStep& s, StepContext& context, const Cache& cache, const Tiles& tiles) {
  const int64_t threads = context.pool.threads();
  int64_t blocks = 0;
  for (int64_t t = 0; t < tiles.count(); ++t) blocks += tiles[t].end_block() - tiles[t].first_block();
  const int64_t most = kAttentionParts * threads - tiles.count();  // each tile's last part may be short
  const int64_t size = std::max(kMinPartBlocks, (blocks + most - 1) / most);
  const auto parts_of = [&](const Tile& tile) { return (tile.end_block() - tile.first_block() + size - 1) / size; };
  int64_t parts = 0;
  for (int64_t t = 0; t < tiles.count(); ++t) parts += parts_of(tiles[t]);

  auto* gathered = reinterpret_cast<Gathered*>(context.attention_parts.data());
  auto* rows = reinterpret_cast<float*>(gathered + kAttentionParts * threads);
  context.pool.for_each(parts, [&](int64_t part) {
    Gathered& g = gathered[part];
    g.out = rows + part * kTileRows * s.kv.head_dim;
    for (int64_t t = 0;; ++t) {
      const Tile tile = tiles[t];
      const int64_t count = parts_of(tile);
      if (part < count) {
        const int64_t first = tile.first_block() + part * size;
        gather(context, cache, tile, first, std::min(first + size, tile.end_block()), g);
        return;
      }
      part -= count;
    }
  });
  int64_t first = 0;
  for (int64_t t = 0; t < tiles.count(); ++t) {
    const Tile tile = tiles[t];
    merge(tile, gathered + first, parts_of(tile));
    first += parts_of(tile);
  }
}

}  // namespace

void run(const AttentionStep& s, StepContext& context) {
  if (attends_in_integers(s, context)) return attend_in_integers(s, context);
  const Cache cache{context.kv, context.kv_block_bytes, s};
  const int64_t tokens = context.rows(Rows::tokens);
  if (s.k.data == nullptr) {
    // An earlier instruction of the step has stored them.
  } else if (tokens < kTileRows) {
    for (int head = 0; head < s.kv.heads; ++head) store(s, context, cache, head);
  } else {
    context.pool.for_each(s.kv.heads, [&](int64_t head) { store(s, context, cache, static_cast<int>(head)); });
  }

  const Tiles tiles(s, context);
  const bool few = tiles.count() < kFewTiles * context.pool.threads() && context.pool.threads() > 1;
  if (few) return attend_in_parts(s, context, cache, tiles);
  context.pool.for_each(tiles.count(), [&](int64_t t) { attend(context, cache, tiles[t]); });
}

void find_groups(const Step& step, Mask mask, std::span<RowGroup> groups) {
  int64_t row = 0;
  const auto add = [&](int64_t length) {
    for (int64_t i = 0; i < length; ++i) groups[static_cast<size_t>(row + i)] = {.begin = row, .end = row + length};
    row += length;
  };
  if (!step.groups.empty()) {
    for (const int32_t length : step.groups) add(length);
  } else if (mask == Mask::group) {
    for (const SequenceRows& sequence : step.sequences) add(sequence.rows);
  } else {
    while (row < static_cast<int64_t>(step.tokens.size())) add(1);
  }
}

size_t attention_part_bytes(int head_dim, int threads) {
  const size_t parts = static_cast<size_t>(kAttentionParts) * static_cast<size_t>(threads);
  return parts * (sizeof(Gathered) + static_cast<size_t>(kTileRows * head_dim) * sizeof(float));
}

}  // namespace nanomind::cpu
