// SPDX-License-Identifier: Apache-2.0
// The layer that most decoders have: [norm,] attention, [norm,] sum, [norm,] feed-forward or experts, [norm,] sum; or
// both at once, and one sum.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/blocks/decoder.h"
#include "models/weights.h"
#include "ops/recorder.h"

namespace nanomind {

enum class NormKind : uint8_t {
  rms,
  layer,       // LayerNorm, with a bias where the file has one
  unweighted,  // LayerNorm that has no weights at all
};
struct Norm {
  NormKind kind = NormKind::rms;
  bool present = false;
  Weight weight, bias;
};
Norm bind_norm(WeightReader& reader, NormKind kind, const std::string& name, int64_t width);
// x itself where the norm is not present.
Value apply_norm(Recorder& rec, const Norm& norm, Value x, float eps);

// Weights that a layer does not have are absent.
struct MixtureOfExperts {
  Weight router, gate, up, down;
  Weight selection_bias;
  Routing routing;
  std::optional<GatedFeedForward> shared;  // which every row uses
  Weight shared_gate;                      // its share is the sigmoid of this with the row
};
struct DecoderLayer {
  Norm attn_norm;
  SelfAttention attention;
  Weight q_norm, k_norm;
  Norm post_attn_norm;
  Norm ffn_norm;
  std::optional<GatedFeedForward> ffn;      // either this
  std::optional<MixtureOfExperts> experts;  // or this
  Norm post_ffn_norm;
};

// Which weights the layers of an architecture have. Biases are bound wherever the file has them.
enum class QkNorm : uint8_t { absent, heads, rows };  // weights of one head, or of the whole row
struct LayerParts {
  NormKind norm = NormKind::rms;
  QkNorm qk_norm = QkNorm::absent;
  bool qkv_bias = false;              // must have biases of q, k and v
  bool norms_before = true;           // of what attention and feed-forward read
  bool norms_after = false;           // of what they give
  bool gated = true;                  // feed-forward is activation(gate) * up, else activation(up)
  const char* ffn_norm = "ffn_norm";  // name of the norm before feed-forward; null: it shares that of attention
  std::optional<Routing> routing;     // of a mixture of experts
};
DecoderLayer bind_decoder_layer(WeightReader& reader, const DecoderParams& p, const LayerParts& parts, int64_t layer);

// How a layer computes, where architectures and layers differ.
inline constexpr int kNoRope = -1;
struct LayerStyle {
  int rope = kNoRope;
  int query_rope = kNoRope;       // where q has another one than k
  bool norms_after_rope = false;  // of q and k
  bool parallel = false;          // feed-forward reads what attention reads, and both are added at once
  int64_t window = 0;             // 0: sees everything
  float attention_scale = 0;      // 0: 1 / sqrt(D)
  float attention_cap = 0;        // of scores; 0: none
  float residual_scale = 1.0F;    // of what attention and feed-forward add
  Activation activation = Activation::silu;
};
// x: [T, E] -> [T, E].
Value decoder_layer(Recorder& rec, const DecoderLayer& w, const DecoderParams& p, const LayerStyle& style, Value x);

}  // namespace nanomind
