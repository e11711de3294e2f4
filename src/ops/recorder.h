// SPDX-License-Identifier: Apache-2.0
// Records a Program. Each call appends one operation, checks shapes by the operation's rule and returns the new value,
// so a model reads like eager code. A wrong shape here is a mistake of the model file's author (weights were checked
// when they were bound), hence CHECK.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "ops/program.h"

namespace nanomind {

// A handle to a recorded value; copies refer to the same value.
struct Value {
  ValueId id = kNoValue;
  bool present() const { return id != kNoValue; }
};
// A handle to a weight of the program; may be absent (an optional bias).
struct Weight {
  WeightId id = kNoWeight;
  bool present() const { return id != kNoWeight; }
};

class Recorder {
 public:
  Weight weight(WeightInfo info);
  // Makes the weight, a matrix of the file, the transposed of it, in floats; before it is used.
  Weight transpose(Weight stored);
  // Declares cache for one attention layer; returns its index.
  int kv_layer(KvLayerInfo info);
  int rope_table(RopeInfo info);

  Value embed(Weight table, float scale = 1.0F, Lookup by = Lookup::token);
  Value input(int64_t columns, int64_t first = 0);
  Value rms_norm(Value x, Weight weight, float eps);        // over the whole row
  Value rms_norm_heads(Value x, Weight weight, float eps);  // over each run of as many columns as the weight has
  Value rms_norm_heads(Value x, int64_t group, float eps);  // over each run of `group` columns, without a weight
  Value matmul(Value x, Weight weight, Weight bias = {});
  Value rope(Value x, int table, int head_dim);  // x itself is rotated; returns it
  struct AttentionArgs {
    Value q, k, v;  // k and v may both be absent
    int layer = 0;
    int heads = 0;
    int64_t window = 0;
    float scale = 0;
    float cap = 0;
    Mask mask = Mask::causal;
  };
  Value attention(const AttentionArgs& args);
  Value layer_norm(Value x, Weight weight, Weight bias, float eps);
  Value activate(Value x, Activation activation);
  Value gated(Value gate, Value up, Activation activation);
  Value add(Value a, Value b, float scale_of_b = 1.0F);
  Value scale(Value x, float factor, float cap = 0.0F);  // x itself is changed; returns it
  struct ExpertsArgs {
    Value x, logits;
    Weight gate, up, down;
    Weight selection_bias;  // may be absent
    Routing routing;
    Activation activation = Activation::silu;
  };
  Value experts(const ExpertsArgs& args);
  Value sigmoid_gate(Value y, Value x, Weight weight);
  struct Halves {
    Value first, second;
  };
  Halves split_heads(Value x, int64_t width);
  // Both declare the state that they keep.
  Value short_conv(Value x, Weight weight, int taps, Activation activation);
  struct DeltaRuleArgs {
    Value x, alpha, beta;
    Weight decay, bias;
    int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
    float eps = 0;
  };
  Value delta_rule(const DeltaRuleArgs& args);
  Value columns(Value x, int64_t first, int64_t count);
  Value join(std::vector<Value> parts);
  Value scale_columns(Value x, Weight weight);
  Value weighted_sum(Value base, std::span<const Value> terms, Value weights, int64_t first);
  Value match_magnitude(Value x, Value like, float floor);
  Value above_deviation(Value x, float deviations);
  Value select_outputs(Value x);

  // Ends the recording; `output` becomes the program's result.
  Program finish(Value output) &&;

 private:
  Value value(Rows rows, int64_t columns);
  Value rms_norm_runs(Value x, Weight weight, int64_t group, float eps);
  int32_t state(int64_t floats);
  const ValueInfo& info(Value v) const;
  const WeightInfo& info(Weight w) const;

  Program program_;
};

}  // namespace nanomind
