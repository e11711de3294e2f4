// SPDX-License-Identifier: Apache-2.0
// Pieces that decoder-only language models share: their parameters, the rotary table, attention and SwiGLU-style
// feed-forward.
#pragma once

#include <cstdint>

#include "models/blocks/rope.h"
#include "models/registry.h"
#include "models/weights.h"
#include "ops/recorder.h"

namespace nanomind {

struct DecoderParams {
  int64_t layers = 0;
  int64_t width = 0;                // E
  int64_t feed_forward = 0;         // F
  int64_t experts = 0;              // 0: every layer is dense
  int64_t expert_feed_forward = 0;  // F of an expert
  int64_t shared_feed_forward = 0;  // F of the expert that every row uses
  int64_t heads = 0;                // H
  int64_t kv_heads = 0;             // K
  int64_t head_dim = 0;             // D
  int64_t vocabulary = 0;           // V
  int64_t context_length = 0;
  ModelResult result;
  float eps = 0;  // of every RMSNorm
};

// What the file is for, by key pooling_type: 0 or none is a model that writes.
ModelResult read_result(WeightReader& reader);

// Reads the keys that GGUF defines for all decoders, with the limits that devices rely on.
DecoderParams read_decoder_params(WeightReader& reader, const GgufFile& file);

// Grouped-query attention with rotary positions. Biases are absent where the model has none.
struct SelfAttention {
  Weight q, k, v, o;
  Weight q_bias, k_bias, v_bias, o_bias;
};
enum class QkvBias : uint8_t { absent, present };
SelfAttention bind_self_attention(WeightReader& reader, const DecoderParams& p, int64_t layer, QkvBias bias);

struct GatedFeedForward {
  Weight gate, up, down;                 // no gate: the activation is of up alone
  Weight gate_bias, up_bias, down_bias;  // may be absent
};
GatedFeedForward bind_feed_forward(WeightReader& reader, const DecoderParams& p, int64_t layer);
// x: [T, E] -> [T, E].
Value feed_forward(Recorder& rec, const GatedFeedForward& w, Value x, Activation activation);

// The output head: rows asked for, norm, then the head matrix, which is the embedding where the file has none of its
// own.
Value head_product(Recorder& rec, Value x, Weight head, Weight bias);
Value output_head(Recorder& rec, Value x, Weight norm, Weight head, float eps);
// Absent in models that embed (rows are the result then), the classifier of those that rank.
Weight bind_head(WeightReader& reader, const DecoderParams& p, Weight embedding);

Model finish_model(std::string architecture, const DecoderParams& p, Recorder&& rec, Value logits);

}  // namespace nanomind
