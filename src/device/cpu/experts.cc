// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: every row chooses some experts; rows are gathered by expert, so that the weights of an expert are
// read once per step and those of experts that no row chose are not read at all.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu/instructions.h"

namespace nanomind::cpu {
namespace {

// Bytes of a row as products with `w` read it: units, or floats.
size_t row_bytes(const WeightMatrix& w) {
  return static_cast<size_t>(w.integer() ? padded_units(w.columns) * static_cast<int64_t>(sizeof(ActivationUnit))
                                         : w.columns * static_cast<int64_t>(sizeof(float)));
}

void put_row(const StepContext& context, const WeightMatrix& w, const float* x, std::byte* rows, int64_t slot) {
  std::byte* out = rows + static_cast<size_t>(slot) * row_bytes(w);
  if (!w.integer()) {
    std::memcpy(out, x, row_bytes(w));
    return;
  }
  auto* units = reinterpret_cast<ActivationUnit*>(out);
  context.kernels.quantize(x, w.columns, units);
  clear_padding(units, w.columns, padded_units(w.columns));
}

// Scores of one row of router logits.
class Scores {
 public:
  Scores(const ExpertsStep& s, const float* logits) : s_(s), logits_(logits) {
    if (s.routing.score == RouterScore::sigmoid) return;
    max_ = *std::max_element(logits, logits + s.logits.columns);
    for (int64_t e = 0; e < s.logits.columns; ++e) sum_ += std::exp(logits[e] - max_);
  }
  float operator[](int64_t e) const {
    if (s_.routing.score == RouterScore::sigmoid) return 1.0F / (1.0F + std::exp(-logits_[e]));
    return std::exp(logits_[e] - max_) / sum_;
  }
  // Orders experts; scores rise with logits, so without a bias the logits do.
  float key(int64_t e) const { return s_.selection_bias == nullptr ? logits_[e] : (*this)[e] + s_.selection_bias[e]; }

 private:
  const ExpertsStep& s_;
  const float* logits_;
  float max_ = 0, sum_ = 0;
};

// Chooses the experts of a row, the highest key first, and of equal ones the first.
void choose(const ExpertsStep& s, int64_t row) {
  const Scores scores(s, s.logits.row(row));
  const int64_t experts = s.logits.columns, first = row * s.routing.used;
  float last_key = std::numeric_limits<float>::infinity(), sum = 0;
  int64_t last = -1;
  for (int32_t i = 0; i < s.routing.used; ++i) {
    int64_t best = -1;
    float best_key = 0;
    for (int64_t e = 0; e < experts; ++e) {
      const float key = scores.key(e);
      const bool is_left = key < last_key || (key == last_key && e > last);
      if (is_left && (best < 0 || key > best_key)) best = e, best_key = key;
    }
    if (best < 0) best = i, best_key = -std::numeric_limits<float>::infinity();  // logits that are no numbers
    last = best, last_key = best_key;
    s.slots.expert[first + i] = static_cast<int32_t>(best);
    s.slots.share[first + i] = scores[best];
    sum += scores[best];
  }
  const float scale = s.routing.scale / (s.routing.normalise ? sum : 1.0F);
  for (int32_t i = 0; i < s.routing.used; ++i) s.slots.share[first + i] *= scale;
}

// Gives every choice a slot, in the order of experts; returns the number of experts that were chosen.
int64_t sort_by_expert(const ExpertsStep& s, int64_t rows) {
  const auto& slots = s.slots;
  const int64_t experts = s.logits.columns, choices = rows * s.routing.used;
  std::fill_n(slots.begin, experts + 1, 0);
  for (int64_t i = 0; i < choices; ++i) ++slots.begin[slots.expert[i] + 1];
  int64_t active = 0;
  for (int32_t e = 0; e < experts; ++e) {
    if (slots.begin[e + 1] > 0) slots.active[active++] = e;
    slots.begin[e + 1] += slots.begin[e];
  }
  std::copy_n(slots.begin, experts, slots.next);
  for (int64_t i = 0; i < choices; ++i) {
    slots.slot[i] = slots.next[slots.expert[i]]++;
    slots.row[slots.slot[i]] = static_cast<int32_t>(i / s.routing.used);
  }
  return active;
}

// One matrix of an expert meets the rows of its slots.
struct ExpertProduct {
  const WeightMatrix& w;
  const std::byte* rows;
  const Matrix& out;
};

void multiply(const ExpertsStep& s, const ExpertProduct& p, int32_t expert, int64_t first_group, int64_t groups) {
  const int64_t begin = s.slots.begin[expert];
  const std::byte* rows = p.rows + static_cast<size_t>(begin) * row_bytes(p.w);
  const InputRows x{.units = reinterpret_cast<const ActivationUnit*>(rows),
                    .floats = reinterpret_cast<const float*>(rows),
                    .stride = p.w.integer() ? padded_units(p.w.columns) : p.w.columns,
                    .count = s.slots.begin[expert + 1] - begin};
  multiply_few(p.w, expert * p.w.groups + first_group, groups, x, p.out.row(begin) + first_group * kGroupRows,
               p.out.stride);
}

// The products of all chosen experts in one parallel loop.
void multiply_all(const ExpertsStep& s, StepContext& context, std::span<const ExpertProduct> products, int64_t active) {
  int64_t groups = 0;
  size_t widest = 0;
  for (const ExpertProduct& p : products) {
    groups += p.w.groups * active;
    widest = std::max(widest, p.w.group_bytes);
  }
  const int64_t size = groups_of_task(widest, groups, context.pool.threads());
  const auto chunks_of = [&](const ExpertProduct& p) { return (p.w.groups + size - 1) / size; };
  int64_t chunks = 0;
  for (const ExpertProduct& p : products) chunks += chunks_of(p);
  context.pool.for_each(chunks * active, [&](int64_t task) {
    const int32_t expert = s.slots.active[task / chunks];
    int64_t chunk = task % chunks;
    for (const ExpertProduct& p : products) {
      if (chunk < chunks_of(p)) {
        const int64_t first = chunk * size;
        return multiply(s, p, expert, first, std::min(size, p.w.groups - first));
      }
      chunk -= chunks_of(p);
    }
  });
}

// Hands out parts of a run of bytes; with no bytes it only counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <typename T>
  T* take(int64_t count) {
    auto* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return part;
  }
  Matrix matrix(int64_t rows, int64_t columns) {
    return {.data = take<float>(rows * columns), .stride = columns, .columns = columns, .rows = Rows::tokens};
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace

size_t place_slots(ExpertsStep& s, int64_t experts, int64_t max_tokens, std::byte* base) {
  Carver carver(base);
  const int64_t slots = max_tokens * s.routing.used;
  s.slots.expert = carver.take<int32_t>(slots);
  s.slots.share = carver.take<float>(slots);
  s.slots.slot = carver.take<int32_t>(slots);
  s.slots.row = carver.take<int32_t>(slots);
  s.slots.begin = carver.take<int32_t>(experts + 1);
  s.slots.next = carver.take<int32_t>(experts);
  s.slots.active = carver.take<int32_t>(experts);
  s.slots.gate_input = carver.take<std::byte>(slots * static_cast<int64_t>(row_bytes(s.gate)));
  s.slots.up_input = s.gate.integer() == s.up.integer()
                         ? s.slots.gate_input
                         : carver.take<std::byte>(slots * static_cast<int64_t>(row_bytes(s.up)));
  s.slots.down_input = carver.take<std::byte>(slots * static_cast<int64_t>(row_bytes(s.down)));
  s.slots.gate = carver.matrix(slots, s.gate.groups * kGroupRows);
  s.slots.up = carver.matrix(slots, s.up.groups * kGroupRows);
  s.slots.down = carver.matrix(slots, s.down.groups * kGroupRows);
  return carver.used();
}

void run(const ExpertsStep& s, StepContext& context) {
  const int64_t rows = context.rows(Rows::tokens), used = s.routing.used;
  const auto& slots = s.slots;
  context.pool.for_each(rows, [&](int64_t row) { choose(s, row); });
  const int64_t active = sort_by_expert(s, rows);

  context.pool.for_each(rows * used, [&](int64_t slot) {
    const float* x = s.x.row(slots.row[slot]);
    put_row(context, s.gate, x, slots.gate_input, slot);
    if (slots.up_input != slots.gate_input) put_row(context, s.up, x, slots.up_input, slot);
  });
  const ExpertProduct inner[] = {{s.gate, slots.gate_input, slots.gate}, {s.up, slots.up_input, slots.up}};
  multiply_all(s, context, inner, active);

  const auto activate = gated_activation(context.kernels, s.activation);
  context.pool.for_each(rows * used, [&](int64_t slot) {
    float* hidden = slots.gate.row(slot);
    activate(hidden, slots.up.row(slot), s.down.columns, hidden);
    put_row(context, s.down, hidden, slots.down_input, slot);
  });
  const ExpertProduct outer[] = {{s.down, slots.down_input, slots.down}};
  multiply_all(s, context, outer, active);

  context.pool.for_each(rows, [&](int64_t row) {
    float* out = s.out.row(row);
    std::fill_n(out, s.out.columns, 0.0F);
    for (int64_t i = row * used; i < (row + 1) * used; ++i) {
      const float* result = slots.down.row(slots.slot[i]);
      const float share = slots.share[i];
      for (int64_t c = 0; c < s.out.columns; ++c) out[c] += share * result[c];
    }
  });
}

}  // namespace nanomind::cpu
