// SPDX-License-Identifier: Apache-2.0
#include "ops/recorder.h"

#include "base/result.h"

namespace nanomind {

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

int Recorder::kv_layer(KvLayerInfo info) {
  program_.kv_layers.push_back(info);
  return static_cast<int>(program_.kv_layers.size() - 1);
}

int Recorder::rope_table(RopeInfo info) {
  program_.ropes.push_back(std::move(info));
  return static_cast<int>(program_.ropes.size() - 1);
}

Value Recorder::embed(Weight table, float scale) {
  const Value out = value(Rows::tokens, info(table).shape.columns());
  program_.ops.push_back(op::Embed{out.id, table.id, scale});
  return out;
}

Value Recorder::rms_norm(Value x, Weight weight, float eps) {
  CHECK(info(weight).shape.elements() == info(x).columns);
  return rms_norm_heads(x, weight, eps);
}

Value Recorder::rms_norm_heads(Value x, Weight weight, float eps) {
  const int64_t group = info(weight).shape.elements();
  CHECK(group > 0 && info(x).columns % group == 0);
  const Value out = value(info(x).rows, info(x).columns);
  program_.ops.push_back(op::RmsNorm{out.id, x.id, weight.id, group, eps});
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
  CHECK(info(args.k).columns == kv.kv_heads * kv.head_dim && info(args.v).columns == kv.kv_heads * kv.head_dim);
  CHECK(info(args.q).columns == args.heads * kv.head_dim && args.heads % kv.kv_heads == 0);
  const Value out = value(Rows::tokens, info(args.q).columns);
  program_.ops.push_back(op::Attention{.out = out.id,
                                       .q = args.q.id,
                                       .k = args.k.id,
                                       .v = args.v.id,
                                       .layer = args.layer,
                                       .heads = args.heads,
                                       .window = args.window,
                                       .scale = args.scale});
  return out;
}

Value Recorder::gated(Value gate, Value up, Activation activation) {
  CHECK(info(gate).columns == info(up).columns && info(gate).rows == info(up).rows);
  const Value out = value(info(gate).rows, info(gate).columns);
  program_.ops.push_back(op::GatedActivation{out.id, gate.id, up.id, activation});
  return out;
}

Value Recorder::add(Value a, Value b) {
  CHECK(info(a).columns == info(b).columns && info(a).rows == info(b).rows);
  const Value out = value(info(a).rows, info(a).columns);
  program_.ops.push_back(op::Add{out.id, a.id, b.id});
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
