// SPDX-License-Identifier: Apache-2.0
#include "ops/reference/interpreter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/reference/math.h"

namespace nanomind::reference {

Interpreter::Interpreter(const Program& program, std::vector<std::vector<float>> weights)
    : program_(program), weights_(std::move(weights)), values_(program.values.size()), kv_(program.kv_layers.size()) {
  for (const StateInfo& state : program.states) states_.emplace_back(static_cast<size_t>(state.floats));
}

int64_t Interpreter::rows(ValueId id) const {
  return static_cast<int64_t>(program_.values[static_cast<size_t>(id)].rows == Rows::tokens ? tokens_.size()
                                                                                            : outputs_.size());
}

std::vector<float>& Interpreter::value(ValueId id) {
  std::vector<float>& v = values_[static_cast<size_t>(id)];
  v.resize(static_cast<size_t>(rows(id) * columns(id)));
  return v;
}

std::vector<float> Interpreter::run(std::span<const int32_t> tokens, std::span<const int32_t> outputs,
                                    const Extras& extras) {
  tokens_ = tokens;
  extras_ = extras;
  outputs_ = outputs;
  for (const Op& op : program_.ops) std::visit([this](const auto& o) { apply(o); }, op);
  past_ += static_cast<int64_t>(tokens.size());
  return value(program_.output);
}

void Interpreter::apply(const op::Embed& o) {
  const int64_t n = columns(o.out);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    int64_t row = 0;
    if (o.by == Lookup::token && tokens_[i] < 0) {
      std::copy_n(given(i).begin(), n, value(o.out).begin() + static_cast<int64_t>(i) * n);
      continue;
    }
    if (o.by == Lookup::token) row = tokens_[i];
    if (o.by == Lookup::position) row = extras_.places.empty() ? past_ + static_cast<int64_t>(i) : extras_.places[i];
    for (int64_t c = 0; c < n; ++c) {
      value(o.out)[static_cast<int64_t>(i) * n + c] = weights_[static_cast<size_t>(o.table)][row * n + c] * o.scale;
    }
  }
}

std::span<const float> Interpreter::given(size_t i) const {
  if (tokens_[i] >= 0) return {};
  const auto is_given = [](int32_t token) { return token < 0; };
  const auto all = static_cast<size_t>(std::ranges::count_if(tokens_, is_given));
  const auto before = static_cast<size_t>(std::ranges::count_if(tokens_.first(i), is_given));
  const size_t width = extras_.given.size() / all;
  return extras_.given.subspan(before * width, width);
}

void Interpreter::apply(const op::Input& o) {
  const auto n = static_cast<size_t>(columns(o.out));
  std::vector<float>& out = value(o.out);
  std::ranges::fill(out, 0.0F);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i] < 0)
      std::ranges::copy(given(i).subspan(static_cast<size_t>(o.first), n), out.begin() + static_cast<int64_t>(i * n));
  }
}

void Interpreter::apply(const op::RmsNorm& o) {
  const std::span<const float> x = value(o.x);
  const std::span<float> out = value(o.out);
  const auto group = static_cast<size_t>(o.group);
  const std::vector<float> ones(group, 1.0F);
  const std::span<const float> weight = o.weight == kNoWeight ? std::span(ones) : this->weight(o.weight);
  for (size_t c = 0; c < x.size(); c += group) rms_norm(x.subspan(c, group), weight, o.eps, out.subspan(c, group));
}

void Interpreter::apply(const op::MatMul& o) {
  std::vector<float>& out = value(o.out);
  const int64_t n = columns(o.out);
  matmul(value(o.x), weights_[static_cast<size_t>(o.weight)], rows(o.out), n, columns(o.x), out);
  if (o.bias == kNoWeight) return;
  for (size_t i = 0; i < out.size(); ++i) out[i] += weights_[static_cast<size_t>(o.bias)][i % static_cast<size_t>(n)];
}

void Interpreter::apply(const op::Rope& o) {
  const RopeInfo& info = program_.ropes[static_cast<size_t>(o.rope)];
  const RopePairing pairing = info.pairs == RopePairs::halves ? RopePairing::halves : RopePairing::adjacent;
  const std::span<float> x = value(o.x);
  for (size_t i = 0; i < tokens_.size() * static_cast<size_t>(o.heads); ++i) {
    const size_t row = i / static_cast<size_t>(o.heads);
    const int64_t position = past_ + static_cast<int64_t>(row);
    std::vector<double> angles(info.inverse_frequency.begin(), info.inverse_frequency.end());
    for (size_t j = 0; j < angles.size(); ++j) {
      const bool elsewhere = !info.axes.empty() && !extras_.where.empty();
      angles[j] *= static_cast<double>(elsewhere ? extras_.where[row][info.axes[j]] : position);
    }
    rope(x.subspan(i * static_cast<size_t>(o.head_dim), static_cast<size_t>(o.head_dim)), angles, pairing,
         info.magnitude_at(position));
  }
}

void Interpreter::apply(const op::Attention& o) {
  const KvLayerInfo& info = program_.kv_layers[static_cast<size_t>(o.layer)];
  KvLayer& layer = kv_[static_cast<size_t>(o.layer)];
  if (o.k != kNoValue) {
    // Layers may share what is kept, one after the other.
    const auto kept = static_cast<size_t>(past_ * info.kv_heads * info.head_dim);
    layer.keys.resize(kept);
    layer.values.resize(kept);
    layer.keys.insert(layer.keys.end(), value(o.k).begin(), value(o.k).end());
    layer.values.insert(layer.values.end(), value(o.v).begin(), value(o.v).end());
  }
  const int64_t d = info.head_dim, width = info.kv_heads * d, group = o.heads / info.kv_heads;
  const std::span<const float> q = value(o.q);
  const std::span<float> out = value(o.out);
  for (int64_t t = 0; t < static_cast<int64_t>(tokens_.size()); ++t) {
    const auto [first, end] = seen(o, t);
    for (int64_t h = 0; h < o.heads; ++h) {
      std::vector<float> keys, values;
      for (int64_t p = 0; p < end; ++p) {
        const auto at = p * width + h / group * d;
        keys.insert(keys.end(), layer.keys.begin() + at, layer.keys.begin() + at + d);
        values.insert(values.end(), layer.values.begin() + at, layer.values.begin() + at + d);
      }
      const auto at = static_cast<size_t>((t * o.heads + h) * d);
      attention(q.subspan(at, static_cast<size_t>(d)), keys, values, first, o.scale, o.cap,
                out.subspan(at, static_cast<size_t>(d)));
    }
  }
}

Interpreter::Range Interpreter::seen(const op::Attention& o, int64_t t) const {
  const auto tokens = static_cast<int64_t>(tokens_.size());
  Range group = o.mask == Mask::group ? Range{0, tokens} : Range{t, t + 1};
  int64_t row = 0;
  for (const int32_t length : extras_.groups) {
    if (t >= row && t < row + length) group = {row, row + length};
    row += length;
  }
  Range range{0, past_ + t + 1};
  if (o.window > 0) range.first = std::max<int64_t>(0, range.end - o.window);
  switch (o.mask) {
    case Mask::causal: break;
    case Mask::none: range.end = past_ + tokens; break;
    case Mask::group: range = {past_ + group.first, past_ + group.end}; break;
    case Mask::causal_group: range.end = std::max(range.end, past_ + group.end); break;
  }
  return range;
}

void Interpreter::apply(const op::GatedActivation& o) {
  const std::vector<float>& gate = value(o.gate);
  const std::vector<float>& up = value(o.up);
  std::vector<float>& out = value(o.out);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(activate(o.activation, gate[i]) * up[i]);
}

void Interpreter::apply(const op::Add& o) {
  const std::vector<float>& a = value(o.a);
  const std::vector<float>& b = value(o.b);
  std::vector<float>& out = value(o.out);
  for (size_t i = 0; i < out.size(); ++i) out[i] = a[i] + o.scale * b[i];
}

void Interpreter::apply(const op::Scale& o) {
  for (float& x : value(o.x)) x = static_cast<float>(capped(static_cast<double>(x) * o.factor, o.cap));
}

void Interpreter::apply(const op::Experts& o) {
  const auto width = static_cast<size_t>(columns(o.x)), experts = static_cast<size_t>(columns(o.logits));
  const size_t hidden = weight(o.gate).size() / experts / width;
  const std::span<const float> x = value(o.x), logits = value(o.logits);
  const std::span<float> out = value(o.out);
  const std::span<const float> bias =
      o.selection_bias == kNoWeight ? std::span<const float>() : weight(o.selection_bias);
  std::vector<float> gate(hidden), up(hidden), down(width);
  const auto times = [&](WeightId id, size_t expert, std::span<const float> in, std::vector<float>& result) {
    const size_t size = in.size() * result.size();
    matmul(in, weight(id).subspan(expert * size, size), 1, static_cast<int64_t>(result.size()),
           static_cast<int64_t>(in.size()), result);
  };
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const std::span<float> row = out.subspan(t * width, width);
    std::ranges::fill(row, 0.0F);
    for (const auto& [expert, share] : route(logits.subspan(t * experts, experts), bias, o.routing)) {
      times(o.gate, expert, x.subspan(t * width, width), gate);
      times(o.up, expert, x.subspan(t * width, width), up);
      for (size_t i = 0; i < hidden; ++i) gate[i] = static_cast<float>(activate(o.activation, gate[i]) * up[i]);
      times(o.down, expert, gate, down);
      for (size_t i = 0; i < width; ++i) row[i] += static_cast<float>(share * down[i]);
    }
  }
}

void Interpreter::apply(const op::SigmoidGate& o) {
  const std::vector<float>& y = value(o.y);
  std::vector<float>& out = value(o.out);
  const auto n = static_cast<size_t>(columns(o.out));
  std::vector<float> gate(out.size() / n);
  matmul(value(o.x), weight(o.weight), static_cast<int64_t>(gate.size()), 1, columns(o.x), gate);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(y[i] * sigmoid(gate[i / n]));
}

void Interpreter::apply(const op::LayerNorm& o) {
  const std::vector<float>& x = value(o.x);
  std::vector<float>& out = value(o.out);
  const auto n = static_cast<size_t>(columns(o.x));
  for (size_t row = 0; row < x.size(); row += n) {
    const auto [mean, variance] = moments(std::span(x).subspan(row, n));
    for (size_t c = 0; c < n; ++c) {
      const double weight = o.weight == kNoWeight ? 1.0 : this->weight(o.weight)[c];
      const double bias = o.bias == kNoWeight ? 0.0 : this->weight(o.bias)[c];
      out[row + c] = static_cast<float>((x[row + c] - mean) / std::sqrt(variance + o.eps) * weight + bias);
    }
  }
}

void Interpreter::apply(const op::Activate& o) {
  const std::vector<float>& x = value(o.x);
  std::vector<float>& out = value(o.out);
  for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<float>(activate(o.activation, x[i]));
}

void Interpreter::apply(const op::SelectRows& o) {
  const std::vector<float>& x = value(o.x);
  std::vector<float>& out = value(o.out);
  const int64_t n = columns(o.x);
  for (size_t i = 0; i < outputs_.size(); ++i)
    std::copy_n(x.begin() + outputs_[i] * n, n, out.begin() + static_cast<int64_t>(i) * n);
}

}  // namespace nanomind::reference
