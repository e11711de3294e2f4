// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/key_rotation.h"

#include <algorithm>
#include <cmath>

#include "device/cpu/nodes.h"

namespace nanomind::cpu {
namespace {

// What is known of a value: a rope's index, or one of these.
constexpr int32_t kNoRope = -1;
constexpr int32_t kMixed = -2;  // rotated, and then changed in a way that does not commute with rotating

class KeyRopes {
 public:
  explicit KeyRopes(const Program& program)
      : program_(program), state_(program.values.size(), kNoRope), layers_(program.kv_layers.size(), kNoRope) {}

  Result<std::vector<int32_t>> find() {
    for (const Op& op : program_.ops) TRY(follow(op));
    return std::move(layers_);
  }

 private:
  int32_t& state(ValueId id) { return state_[static_cast<size_t>(id)]; }

  Result<void> follow(const Op& op) {
    if (const auto* embed = std::get_if<op::Embed>(&op); embed != nullptr && embed->by == Lookup::position) {
      return fail(ErrorCode::unsupported, "The model adds learned positions to its tokens, which cannot be changed.");
    }
    if (const auto* attention = std::get_if<op::Attention>(&op)) return keep(*attention);
    if (const auto* rope = std::get_if<op::Rope>(&op)) {
      state(rope->x) = state(rope->x) == kNoRope ? rope->rope : kMixed;
      return {};
    }
    // A plain factor commutes with rotating; whatever else is done with a rotated value does not.
    if (const auto* scale = std::get_if<op::Scale>(&op); scale != nullptr && scale->cap <= 0) return {};
    const Uses used = uses(op);
    if (std::ranges::any_of(used.reads, [&](ValueId id) { return state(id) != kNoRope; })) state(used.writes) = kMixed;
    if (const auto* split = std::get_if<op::SplitHeads>(&op)) state(split->second) = state(split->first);
    return {};
  }

  Result<void> keep(const op::Attention& attention) {
    if (attention.k == kNoValue) return {};  // reads what an earlier layer keeps
    const int32_t rope = state(attention.k);
    if (rope == kMixed)
      return fail(ErrorCode::unsupported, "The model changes its keys after rotating them to their positions.");
    if (state(attention.v) != kNoRope) return fail(ErrorCode::unsupported, "The model's values carry positions, too.");
    if (rope != kNoRope && program_.ropes[static_cast<size_t>(rope)].growth != 0)
      return fail(ErrorCode::unsupported, "The model's keys grow with their positions.");
    if (rope != kNoRope && !program_.ropes[static_cast<size_t>(rope)].axes.empty())
      return fail(ErrorCode::unsupported, "The model's keys stand in pictures, not in one line.");
    layers_[static_cast<size_t>(attention.layer)] = rope;
    return {};
  }

  const Program& program_;
  std::vector<int32_t> state_;   // of each value
  std::vector<int32_t> layers_;  // the result
};

}  // namespace

Result<std::vector<int32_t>> key_ropes(const Program& program) { return KeyRopes(program).find(); }

Turn::Turn(const RopeInfo& rope, int64_t by) : pairs(rope.pairs) {
  for (const float frequency : rope.inverse_frequency) {
    const double angle = static_cast<double>(by) * static_cast<double>(frequency);
    cosine.push_back(static_cast<float>(std::cos(angle)));
    sine.push_back(static_cast<float>(std::sin(angle)));
  }
}

void turn_keys(const KvStore& store, const Turn& turn, int head_dim, std::byte* keys) {
  alignas(64) float rows[kKvBlock * kMaxHeadDim];
  store.get_keys(keys, head_dim, rows);
  const int pairs = static_cast<int>(turn.cosine.size());
  const bool halves = turn.pairs == RopePairs::halves;
  // Whole runs that share a scale.
  const int changed = std::min(head_dim, (2 * pairs + kKvRun - 1) / kKvRun * kKvRun);
  for (int t = 0; t < kKvBlock; ++t) {
    float* key = rows + t * head_dim;
    for (int i = 0; i < pairs; ++i) {
      float& x = key[halves ? i : 2 * i];
      float& y = key[halves ? i + pairs : 2 * i + 1];
      const float cosine = turn.cosine[static_cast<size_t>(i)], sine = turn.sine[static_cast<size_t>(i)];
      const float a = x, b = y;
      x = a * cosine + b * sine;
      y = b * cosine - a * sine;
    }
    store.put_key(key, changed, head_dim, t, keys);
  }
}

}  // namespace nanomind::cpu
