// SPDX-License-Identifier: Apache-2.0
// Decoders whose layers are all `DecoderLayer`: an architecture's file says what is particular to it, and the rest is
// one function.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/blocks/layer.h"
#include "models/blocks/rope.h"
#include "models/registry.h"

namespace nanomind {

struct DecoderPlan {
  RopePairs pairs = RopePairs::halves;
  double theta = 10000.0;  // where the file does not say
  LayerParts parts;
  LayerStyle style;                  // of every layer; its rope is filled in with that of the file
  std::vector<RopeInfo> more_ropes;  // whose numbers follow that one
  // Changes the style of one layer; empty: all are alike.
  std::function<void(int64_t layer, LayerStyle& style)> adapt;
  std::function<void(RotaryPlan& rotary)> adapt_rope;  // the same for the file's rotary positions
  std::function<RopeInfo(RopeInfo)> query_rope;        // makes that of q from that of k, where they differ
  int64_t picture_layers = 0;  // first layers, to whose results a part of its own of a picture's row is added
  bool has_positions = true;   // rotary ones; else a table of positions is added to the embedding
  float embedding_scale = 1.0F;
  float logit_scale = 1.0F;
  float logit_cap = 0;  // 0: none
};

// `plan` reads what is the architecture's own; its complaints are reported with all others.
Result<Model> build_decoder(const GgufFile& file, std::string architecture,
                            const std::function<DecoderPlan(WeightReader& reader, const DecoderParams& p)>& plan);

// For DecoderPlan::adapt: every n-th layer sees everything and has no positions, the others have a window.
std::function<void(int64_t layer, LayerStyle& style)> global_every(int64_t n, int64_t window);

// Routing of the file's mixture of experts, if it has one: expert_used_count, expert_weights_scale, and, where they are
// given, expert_gating_func and expert_weights_norm.
std::optional<Routing> read_routing(WeightReader& reader, const DecoderParams& p, Routing usual);

// Key attention.sliding_window, 0 where there is none.
int64_t read_window(WeightReader& reader);

}  // namespace nanomind
