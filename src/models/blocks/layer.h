// SPDX-License-Identifier: Apache-2.0
// The layer that most decoders have: [norm,] attention, [norm,] sum, [norm,] feed-forward or experts, [norm,] sum.
#pragma once

#include <cstdint>
#include <optional>

#include "models/blocks/decoder.h"
#include "models/weights.h"
#include "ops/recorder.h"

namespace nanomind {

// Weights that a layer does not have are absent.
struct MixtureOfExperts {
  Weight router, gate, up, down;
  Weight selection_bias;
  Routing routing;
  std::optional<GatedFeedForward> shared;  // which every row uses
  Weight shared_gate;                      // its share is the sigmoid of this with the row
};
struct DecoderLayer {
  Weight attn_norm;
  SelfAttention attention;
  Weight q_norm, k_norm;
  Weight post_attn_norm;
  Weight ffn_norm;
  std::optional<GatedFeedForward> ffn;      // either this
  std::optional<MixtureOfExperts> experts;  // or this
  Weight post_ffn_norm;
};

// Which weights the layers of an architecture have. Biases are bound wherever the file has them.
enum class QkNorm : uint8_t { absent, heads, rows };  // weights of one head, or of the whole row
struct LayerParts {
  QkNorm qk_norm = QkNorm::absent;
  bool qkv_bias = false;           // must have biases of q, k and v
  bool norms_before = true;        // of what attention and feed-forward read
  bool norms_after = false;        // of what they give
  std::optional<Routing> routing;  // of a mixture of experts
};
DecoderLayer bind_decoder_layer(WeightReader& reader, const DecoderParams& p, const LayerParts& parts, int64_t layer);

// How a layer computes, where architectures and layers differ.
inline constexpr int kNoRope = -1;
struct LayerStyle {
  int rope = kNoRope;
  int64_t window = 0;           // 0: sees everything
  float attention_scale = 0;    // 0: 1 / sqrt(D)
  float attention_cap = 0;      // of scores; 0: none
  float residual_scale = 1.0F;  // of what attention and feed-forward add
  Activation activation = Activation::silu;
};
// x: [T, E] -> [T, E].
Value decoder_layer(Recorder& rec, const DecoderLayer& w, const DecoderParams& p, const LayerStyle& style, Value x);

}  // namespace nanomind
