// SPDX-License-Identifier: Apache-2.0
// Attention of a step that has all its keys, in integers: every head's keys and values are coded once, then stacks of
// query rows meet them.
#include "kernels/cpu/integer_attention.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "device/cpu/instructions.h"

namespace nanomind::cpu {
namespace {

constexpr int64_t kFewRows = 64;  // below, coding the keys costs more than it saves

// Bytes of one head's parts, each a multiple of 64.
struct HeadLayout {
  size_t keys, key_scales, values, value_scales;
  size_t bytes() const { return keys + key_scales + values + value_scales; }

  static HeadLayout of(int64_t max_tokens, int d) {
    const auto tokens = static_cast<size_t>(integer_tokens(max_tokens)), columns = static_cast<size_t>(d);
    const auto whole = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
    return {.keys = whole(tokens * columns * sizeof(int16_t)),
            .key_scales = whole(tokens * sizeof(float)),
            .values = whole(tokens * columns),
            .value_scales = whole(columns * sizeof(float))};
  }
};

IntegerKeys keys_of(const AttentionStep& s, int64_t tokens, int64_t head) {
  const HeadLayout layout = HeadLayout::of(tokens, s.kv.head_dim);
  std::byte* at = s.coded + static_cast<size_t>(head) * layout.bytes();
  const auto take = [&](size_t bytes) { return std::exchange(at, at + bytes); };
  IntegerKeys keys{};
  keys.keys = reinterpret_cast<int16_t*>(take(layout.keys));
  keys.key_scales = reinterpret_cast<float*>(take(layout.key_scales));
  keys.values = reinterpret_cast<int8_t*>(take(layout.values));
  keys.value_scales = reinterpret_cast<float*>(take(layout.value_scales));
  return keys;
}

}  // namespace

size_t integer_keys_bytes(int64_t heads, int64_t max_tokens, int head_dim) {
  return static_cast<size_t>(heads) * HeadLayout::of(max_tokens, head_dim).bytes();
}

bool attends_in_integers(const AttentionStep& s, const StepContext& context) {
  const auto whole = [](const SequenceRows& sequence) { return sequence.past == 0; };
  return s.coded != nullptr && context.rows(Rows::tokens) >= kFewRows &&
         std::ranges::all_of(context.step.sequences, whole);
}

void attend_in_integers(const AttentionStep& s, StepContext& context) {
  const IntegerAttention& kernels = context.kernels.integer_attention;
  const int64_t tokens = context.rows(Rows::tokens);
  const int d = s.kv.head_dim;
  context.pool.for_each(2 * s.kv.heads, [&](int64_t i) {
    const int64_t head = i / 2, column = head * d;
    const IntegerKeys keys = keys_of(s, tokens, head);
    if (i % 2 == 0) {
      kernels.code_keys(s.k.data + column, s.k.stride, tokens, d, keys);
    } else {
      kernels.code_values(s.v.data + column, s.v.stride, tokens, d, keys);
    }
  });

  const int64_t stacks = (tokens + kIntegerQueries - 1) / kIntegerQueries;
  context.pool.for_each(stacks * s.heads, [&](int64_t i) {
    const int64_t head = i / stacks, row = i % stacks * kIntegerQueries, column = head * d;
    int32_t first[kIntegerQueries], end[kIntegerQueries];
    const auto rows = static_cast<int>(std::min<int64_t>(kIntegerQueries, tokens - row));
    for (int j = 0; j < rows; ++j) {
      const RowGroup seen = s.mask == Mask::group ? context.group(row + j) : context.sequence_rows(row + j);
      first[j] = static_cast<int32_t>(seen.begin);
      end[j] = static_cast<int32_t>(seen.end);
    }
    kernels.attend({.kv = keys_of(s, tokens, head / (s.heads / s.kv.heads)),
                    .d = d,
                    .q = s.q.row(row) + column,
                    .q_stride = s.q.stride,
                    .rows = rows,
                    .first_key = first,
                    .end_key = end,
                    .scale = s.scale,
                    .out = s.out.row(row) + column,
                    .out_stride = s.out.stride});
  });
}

}  // namespace nanomind::cpu
