// SPDX-License-Identifier: Apache-2.0
#include "ops/recorder.h"

#include <cmath>

#include "base/result.h"
#include "tensor/packed_layout.h"

namespace nanomind {

double RopeInfo::magnitude_at(int64_t position) const {
  if (growth == 0) return magnitude;
  return magnitude * (1.0 + growth * std::log(1.0 + static_cast<double>(position / growth_period)));
}

Value Recorder::value(Rows rows, int64_t columns) {
  program_.values.push_back({rows, columns});
  return {static_cast<ValueId>(program_.values.size() - 1)};
}

const ValueInfo& Recorder::info(Value v) const { return program_.values.at(static_cast<size_t>(v.id)); }
const WeightInfo& Recorder::info(Weight w) const { return program_.weights.at(static_cast<size_t>(w.id)); }

Weight Recorder::weight(WeightInfo info) {
  program_.weights.push_back(std::move(info));
  return {static_cast<WeightId>(program_.weights.size() - 1)};
}

Weight Recorder::transpose(Weight stored) {
  WeightInfo& info = program_.weights.at(static_cast<size_t>(stored.id));
  info.shape = {info.shape.columns(), info.shape.rows()};
  info.dtype = DType::f32;
  info.transposed = true;
  return stored;
}

int Recorder::kv_layer(KvLayerInfo info) {
  program_.kv_layers.push_back(info);
  return static_cast<int>(program_.kv_layers.size() - 1);
}

int Recorder::rope_table(RopeInfo info) {
  program_.ropes.push_back(std::move(info));
  return static_cast<int>(program_.ropes.size() - 1);
}

Value Recorder::embed(Weight table, float scale, Lookup by) {
  const Value out = value(Rows::tokens, info(table).shape.columns());
  program_.ops.push_back(op::Embed{out.id, table.id, scale, by});
  return out;
}

Value Recorder::input(int64_t columns, int64_t first) {
  const Value out = value(Rows::tokens, columns);
  program_.ops.push_back(op::Input{out.id, first});
  return out;
}

Value Recorder::rms_norm(Value x, Weight weight, float eps) {
  CHECK(info(weight).shape.elements() == info(x).columns);
  return rms_norm_heads(x, weight, eps);
}

Value Recorder::rms_norm_heads(Value x, Weight weight, float eps) {
  return rms_norm_runs(x, weight, info(weight).shape.elements(), eps);
}

Value Recorder::rms_norm_heads(Value x, int64_t group, float eps) { return rms_norm_runs(x, {}, group, eps); }

Value Recorder::rms_norm_runs(Value x, Weight weight, int64_t group, float eps) {
  CHECK(group > 0 && info(x).columns % group == 0);
  const Value out = value(info(x).rows, info(x).columns);
  program_.ops.push_back(op::RmsNorm{out.id, x.id, weight.id, group, eps});
  return out;
}

Value Recorder::layer_norm(Value x, Weight weight, Weight bias, float eps) {
  CHECK(!weight.present() || info(weight).shape.elements() == info(x).columns);
  CHECK(!bias.present() || info(bias).shape.elements() == info(x).columns);
  const Value out = value(info(x).rows, info(x).columns);
  program_.ops.push_back(op::LayerNorm{out.id, x.id, weight.id, bias.id, eps});
  return out;
}

Value Recorder::activate(Value x, Activation activation) {
  const Value out = value(info(x).rows, info(x).columns);
  program_.ops.push_back(op::Activate{out.id, x.id, activation});
  return out;
}

Value Recorder::matmul(Value x, Weight weight, Weight bias) {
  const Shape& shape = info(weight).shape;
  CHECK(shape.rank == 2 && shape.columns() == info(x).columns);
  CHECK(!bias.present() || info(bias).shape.elements() == shape.rows());
  const Value out = value(info(x).rows, shape.rows());
  program_.ops.push_back(op::MatMul{out.id, x.id, weight.id, bias.id});
  return out;
}

Value Recorder::rope(Value x, int table, int head_dim) {
  CHECK(info(x).rows == Rows::tokens && head_dim > 0 && info(x).columns % head_dim == 0);
  CHECK(2 * static_cast<int>(program_.ropes.at(static_cast<size_t>(table)).inverse_frequency.size()) <= head_dim);
  program_.ops.push_back(op::Rope{x.id, table, static_cast<int32_t>(info(x).columns / head_dim), head_dim});
  return x;
}

Value Recorder::attention(const AttentionArgs& args) {
  const KvLayerInfo& kv = program_.kv_layers.at(static_cast<size_t>(args.layer));
  CHECK(args.k.present() == args.v.present());
  for (const Value appended : {args.k, args.v}) {
    CHECK(!appended.present() || info(appended).columns == kv.kv_heads * kv.head_dim);
  }
  CHECK(info(args.q).columns == args.heads * kv.head_dim && args.heads % kv.kv_heads == 0);
  const Value out = value(Rows::tokens, info(args.q).columns);
  program_.ops.push_back(op::Attention{.out = out.id,
                                       .q = args.q.id,
                                       .k = args.k.id,
                                       .v = args.v.id,
                                       .layer = args.layer,
                                       .heads = args.heads,
                                       .window = args.window,
                                       .scale = args.scale,
                                       .cap = args.cap,
                                       .mask = args.mask});
  return out;
}

Value Recorder::gated(Value gate, Value up, Activation activation) {
  CHECK(info(gate).columns == info(up).columns && info(gate).rows == info(up).rows);
  const Value out = value(info(gate).rows, info(gate).columns);
  program_.ops.push_back(op::GatedActivation{out.id, gate.id, up.id, activation});
  return out;
}

Value Recorder::add(Value a, Value b, float scale_of_b) {
  CHECK(info(a).columns == info(b).columns && info(a).rows == info(b).rows);
  const Value out = value(info(a).rows, info(a).columns);
  program_.ops.push_back(op::Add{out.id, a.id, b.id, scale_of_b});
  return out;
}

Value Recorder::scale(Value x, float factor, float cap) {
  if (factor != 1.0F || cap > 0) program_.ops.push_back(op::Scale{x.id, factor, cap});
  return x;
}

Value Recorder::experts(const ExpertsArgs& args) {
  const int64_t width = info(args.x).columns, experts = info(args.logits).columns;
  const Shape& up = info(args.up).shape;
  CHECK(info(args.x).rows == Rows::tokens && info(args.logits).rows == Rows::tokens);
  CHECK(up.rank == 3 && up[0] == experts && up[1] % kGroupRows == 0 && up[2] == width);
  CHECK(width % kGroupRows == 0 && info(args.gate).shape == up);
  CHECK((info(args.down).shape == Shape{experts, width, up[1]}));
  CHECK(args.routing.used > 0 && args.routing.used <= experts);
  CHECK(!args.selection_bias.present() || info(args.selection_bias).shape.elements() == experts);
  const Value out = value(Rows::tokens, width);
  program_.ops.push_back(op::Experts{.out = out.id,
                                     .x = args.x.id,
                                     .logits = args.logits.id,
                                     .gate = args.gate.id,
                                     .up = args.up.id,
                                     .down = args.down.id,
                                     .selection_bias = args.selection_bias.id,
                                     .routing = args.routing,
                                     .activation = args.activation});
  return out;
}

Value Recorder::sigmoid_gate(Value y, Value x, Weight weight) {
  CHECK(info(y).rows == info(x).rows && info(weight).shape.elements() == info(x).columns);
  const Value out = value(info(y).rows, info(y).columns);
  program_.ops.push_back(op::SigmoidGate{out.id, y.id, x.id, weight.id});
  return out;
}

int32_t Recorder::state(int64_t floats) {
  program_.states.push_back({floats});
  return static_cast<int32_t>(program_.states.size() - 1);
}

Recorder::Halves Recorder::split_heads(Value x, int64_t width) {
  const int64_t columns = info(x).columns;
  CHECK(width > 0 && columns % (2 * width) == 0);
  const Halves out{value(info(x).rows, columns / 2), value(info(x).rows, columns / 2)};
  program_.ops.push_back(op::SplitHeads{out.first.id, out.second.id, x.id, width});
  return out;
}

Value Recorder::short_conv(Value x, Weight weight, int taps, Activation activation) {
  const int64_t columns = info(x).columns;
  CHECK(info(x).rows == Rows::tokens && taps >= 1 && info(weight).shape.elements() == columns * taps);
  const Value out = value(Rows::tokens, columns);
  program_.ops.push_back(op::ShortConv{out.id, x.id, weight.id, state(columns * (taps - 1)), taps, activation});
  return out;
}

Value Recorder::delta_rule(const DeltaRuleArgs& a) {
  CHECK(info(a.x).rows == Rows::tokens && a.key_heads > 0 && a.value_heads % a.key_heads == 0);
  CHECK(info(a.x).columns == 2 * a.key_heads * a.key_dim + a.value_heads * a.value_dim);
  CHECK(info(a.alpha).columns == a.value_heads && info(a.beta).columns == a.value_heads);
  CHECK(info(a.decay).shape.elements() == a.value_heads && info(a.bias).shape.elements() == a.value_heads);
  const Value out = value(Rows::tokens, a.value_heads * a.value_dim);
  const int32_t kept = state(static_cast<int64_t>(a.value_heads) * a.key_dim * a.value_dim);
  program_.ops.push_back(op::DeltaRule{.out = out.id,
                                       .x = a.x.id,
                                       .alpha = a.alpha.id,
                                       .beta = a.beta.id,
                                       .decay = a.decay.id,
                                       .bias = a.bias.id,
                                       .state = kept,
                                       .key_heads = a.key_heads,
                                       .value_heads = a.value_heads,
                                       .key_dim = a.key_dim,
                                       .value_dim = a.value_dim,
                                       .eps = a.eps});
  return out;
}

Value Recorder::columns(Value x, int64_t first, int64_t count) {
  CHECK(first >= 0 && count > 0 && first + count <= info(x).columns);
  const Value out = value(info(x).rows, count);
  program_.ops.push_back(op::Columns{out.id, x.id, first});
  return out;
}

Value Recorder::join(std::vector<Value> parts) {
  CHECK(!parts.empty());
  int64_t columns = 0;
  std::vector<ValueId> ids;
  for (const Value part : parts) {
    CHECK(info(part).rows == info(parts[0]).rows);
    columns += info(part).columns;
    ids.push_back(part.id);
  }
  const Value out = value(info(parts[0]).rows, columns);
  program_.ops.push_back(op::Join{out.id, std::move(ids)});
  return out;
}

Value Recorder::scale_columns(Value x, Weight weight) {
  CHECK(info(weight).shape.elements() == info(x).columns);
  const Value out = value(info(x).rows, info(x).columns);
  program_.ops.push_back(op::ScaleColumns{out.id, x.id, weight.id});
  return out;
}

Value Recorder::weighted_sum(Value base, std::span<const Value> terms, Value weights, int64_t first) {
  const ValueInfo like = info(base);
  CHECK(first >= 0 && first + static_cast<int64_t>(terms.size()) <= info(weights).columns);
  CHECK(info(weights).rows == like.rows);
  op::WeightedSum sum{.out = kNoValue, .base = base.id, .weights = weights.id, .terms = {}, .first = first};
  for (const Value term : terms) {
    CHECK(info(term).rows == like.rows && info(term).columns == like.columns);
    sum.terms.push_back(term.id);
  }
  const Value out = value(like.rows, like.columns);
  sum.out = out.id;
  program_.ops.emplace_back(std::move(sum));
  return out;
}

Value Recorder::match_magnitude(Value x, Value like, float floor) {
  CHECK(info(x).rows == info(like).rows && floor > 0);
  const Value out = value(info(x).rows, info(x).columns);
  program_.ops.push_back(op::MatchMagnitude{out.id, x.id, like.id, floor});
  return out;
}

Value Recorder::above_deviation(Value x, float deviations) {
  const Value out = value(info(x).rows, info(x).columns);
  program_.ops.push_back(op::AboveDeviation{out.id, x.id, deviations});
  return out;
}

Value Recorder::select_outputs(Value x) {
  CHECK(info(x).rows == Rows::tokens);
  const Value out = value(Rows::outputs, info(x).columns);
  program_.ops.push_back(op::SelectRows{out.id, x.id});
  return out;
}

Program Recorder::finish(Value output) && {
  CHECK(info(output).rows == Rows::outputs);
  program_.output = output.id;
  return std::move(program_);
}

}  // namespace nanomind
