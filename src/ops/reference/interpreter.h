// SPDX-License-Identifier: Apache-2.0
// Runs a Program slowly and plainly on float weights: the twin that whole-program tests compare a device with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/program.h"

namespace nanomind::reference {

// One sequence. Weights are dense floats, parallel to Program::weights.
class Interpreter {
 public:
  Interpreter(const Program& program, std::vector<std::vector<float>> weights);

  // Evaluates `tokens` after those of earlier calls; returns the output [R, V] for the wanted rows of this call.
  struct Extras {
    std::span<const float> given;          // the rows of tokens below 0, one after another
    std::span<const int32_t> places = {};  // these three as in Step
    std::span<const RowCoordinates> where = {};
    std::span<const int32_t> groups = {};
  };
  std::vector<float> run(std::span<const int32_t> tokens, std::span<const int32_t> outputs, const Extras& extras);
  std::vector<float> run(std::span<const int32_t> tokens, std::span<const int32_t> outputs) {
    return run(tokens, outputs, Extras{});
  }

 private:
  struct KvLayer {
    std::vector<float> keys, values;  // [positions, K * D]
  };
  void apply(const op::Embed& o);
  void apply(const op::Input& o);
  void apply(const op::RmsNorm& o);
  void apply(const op::MatMul& o);
  void apply(const op::Rope& o);
  void apply(const op::Attention& o);
  void apply(const op::GatedActivation& o);
  void apply(const op::Add& o);
  void apply(const op::Scale& o);
  void apply(const op::Experts& o);
  void apply(const op::SigmoidGate& o);
  void apply(const op::SplitHeads& o);
  void apply(const op::ShortConv& o);
  void apply(const op::DeltaRule& o);
  void apply(const op::LayerNorm& o);
  void apply(const op::Activate& o);
  void apply(const op::Columns& o);
  void apply(const op::Join& o);
  void apply(const op::ScaleColumns& o);
  void apply(const op::WeightedSum& o);
  void apply(const op::MatchMagnitude& o);
  void apply(const op::AboveDeviation& o);
  void apply(const op::SelectRows& o);

  // The keys that row t sees: [first, end).
  struct Range {
    int64_t first = 0, end = 0;
  };
  Range seen(const op::Attention& o, int64_t t) const;

  // The row given for token i, or nothing.
  std::span<const float> given(size_t i) const;
  int64_t rows(ValueId id) const;
  int64_t columns(ValueId id) const { return program_.values[static_cast<size_t>(id)].columns; }
  std::vector<float>& value(ValueId id);
  std::span<const float> weight(WeightId id) const { return weights_[static_cast<size_t>(id)]; }

  const Program& program_;
  std::vector<std::vector<float>> weights_;
  std::vector<std::vector<float>> values_;
  std::vector<KvLayer> kv_;
  std::vector<std::vector<float>> states_;
  int64_t past_ = 0;
  std::span<const int32_t> tokens_, outputs_;
  Extras extras_;
};

}  // namespace nanomind::reference
