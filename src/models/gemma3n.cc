// SPDX-License-Identifier: Apache-2.0
// Gemma 3n decoder (GGUF arch "gemma3n"), as transformers computes its text half. Beside what Gemma 3 has:
// - AltUp (arXiv 2301.13310): several residual streams. A layer predicts all of them from each other, runs on the
//   active one, and corrects all by what that one gained.
// - LAuReL (arXiv 2411.07501): a low-rank map beside attention.
// - Embeddings of each layer: a table, joined with a projection of the token's embedding, gates what a layer adds to
//   the other streams. The table is read by rows only.
// - The last layers have no keys and values of their own; they read those of the last layer of their kind that has.
// - The first feed-forwards keep only what is far above the mean of their gate (arXiv 2506.06644).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "models/architectures.h"
#include "models/blocks/decoder.h"

namespace nanomind {
namespace {

// Where the file does not say:
constexpr int64_t kGlobalEvery = 5;              // layer i sees everything when (i + 1) % 5 == 0
constexpr double kLocalTheta = 10000.0;          // rotary base of the layers with a window
constexpr int64_t kSparseLayers = 10;            // the first ones, that keep what is above
constexpr float kSparseDeviations = 1.6448536F;  // the 95th percentile of the normal distribution

constexpr float kLeastMagnitude = 1e-5F;  // squared; of what is made as large as something else

struct Params : DecoderParams {
  int64_t streams = 0;
  size_t active = 0;
  int64_t input_width = 0;  // P, of a layer's own embedding
  int64_t own_kv = 0;       // layers before this one have keys and values of their own
  int64_t window = 0;
  std::vector<float> is_local{};    // by layer, 0 or 1
  std::vector<float> deviations{};  // by layer; not finite: the layer keeps everything
};

struct AltUp {
  Weight norm, router, predict, correct, scale;
};
struct LayerInput {
  Weight gate, projection, norm;
};
struct Layer {
  AltUp altup;
  Weight laurel_left, laurel_right, laurel_norm;
  Weight attn_norm, q, k, v, q_norm, k_norm, o, post_attn_norm;
  Weight ffn_norm, post_ffn_norm;
  GatedFeedForward ffn;
  LayerInput input;
};

// What a layer is given by its place.
struct Place {
  int rope = 0;
  int64_t window = 0;
  int cache = 0;
  float deviations = 0;
};

Params read_params(WeightReader& r, const GgufFile& file) {
  Params p{read_decoder_params(r, file)};
  p.streams = r.count("altup.num_inputs", 2, 16);
  p.active = static_cast<size_t>(r.count_or("altup.active_idx", 0, 0, p.streams - 1));
  p.input_width = r.count("embedding_length_per_layer_input", 1, 1 << 16);
  p.own_kv = p.layers - r.count_or("attention.shared_kv_layers", 0, 0, p.layers - 1);
  p.window = r.count_or("attention.sliding_window", 0, 0, int64_t{1} << 40);
  if (r.has("attention.sliding_window_pattern")) {
    p.is_local = r.list("attention.sliding_window_pattern", GgufType::boolean, p.layers);
  } else {
    for (int64_t i = 0; i < p.layers; ++i) p.is_local.push_back((i + 1) % kGlobalEvery == 0 ? 0.0F : 1.0F);
  }
  if (r.has("activation_sparsity_scale")) {
    p.deviations = r.list("activation_sparsity_scale", GgufType::f32, p.layers);
  } else {
    p.deviations.assign(static_cast<size_t>(p.layers), -std::numeric_limits<float>::infinity());
    std::fill_n(p.deviations.begin(), std::min(kSparseLayers, p.layers), kSparseDeviations);
  }
  return p;
}

AltUp bind_altup(WeightReader& r, const Params& p, int64_t i) {
  const int64_t n = p.streams;
  return {.norm = r.vector(block_name(i, "altup_router_norm"), p.width),
          .router = r.matrix(block_name(i, "altup_router"), n, p.width),
          .predict = r.matrix(block_name(i, "altup_predict_coef"), n * n, n),
          .correct = r.matrix(block_name(i, "altup_correct_coef"), n, n),
          .scale = r.vector(block_name(i, "altup_correct_scale"), p.width)};
}

Layer bind_layer(WeightReader& r, Params p, int64_t i) {
  const int64_t rank = r.tensor_rows(block_name(i, "laurel_l"));
  p.feed_forward = r.tensor_rows(block_name(i, "ffn_up"));  // layers may differ
  Layer layer{.altup = bind_altup(r, p, i),
              .laurel_left = r.matrix(block_name(i, "laurel_l"), rank, p.width),
              .laurel_right = r.matrix(block_name(i, "laurel_r"), p.width, rank),
              .laurel_norm = r.vector(block_name(i, "laurel_post_norm"), p.width),
              .attn_norm = r.vector(block_name(i, "attn_norm"), p.width),
              .q = r.matrix(block_name(i, "attn_q"), p.heads * p.head_dim, p.width),
              .k = {},
              .v = {},
              .q_norm = r.vector(block_name(i, "attn_q_norm"), p.head_dim),
              .k_norm = {},
              .o = r.matrix(block_name(i, "attn_output"), p.width, p.heads * p.head_dim),
              .post_attn_norm = r.vector(block_name(i, "post_attention_norm"), p.width),
              .ffn_norm = r.vector(block_name(i, "ffn_norm"), p.width),
              .post_ffn_norm = r.vector(block_name(i, "post_ffw_norm"), p.width),
              .ffn = bind_feed_forward(r, p, i),
              .input = {.gate = r.matrix(block_name(i, "inp_gate"), p.input_width, p.width),
                        .projection = r.matrix(block_name(i, "proj"), p.width, p.input_width),
                        .norm = r.vector(block_name(i, "post_norm"), p.width)}};
  if (i < p.own_kv) {  // files may have these of later layers too, where nothing reads them
    layer.k = r.matrix(block_name(i, "attn_k"), p.kv_heads * p.head_dim, p.width);
    layer.v = r.matrix(block_name(i, "attn_v"), p.kv_heads * p.head_dim, p.width);
    layer.k_norm = r.vector(block_name(i, "attn_k_norm"), p.head_dim);
  }
  return layer;
}

// The cache of each layer: its own, or that of the last layer of its kind that has one.
std::vector<int> assign_caches(Recorder& rec, WeightReader& reader, const Params& p) {
  std::vector<int> caches;
  std::optional<int> last[2];
  for (int64_t i = 0; i < p.layers; ++i) {
    std::optional<int>& cache = last[p.is_local[static_cast<size_t>(i)] != 0 ? 1 : 0];
    if (i < p.own_kv) cache = rec.kv_layer({p.kv_heads, p.head_dim});
    if (!cache) reader.complain(fmt::format("Layer {} has no earlier layer of its kind to take keys from.", i));
    caches.push_back(cache.value_or(0));
  }
  return caches;
}

class Gemma3n {
 public:
  Gemma3n(Recorder& rec, const Params& p) : rec_(rec), p_(p) {}

  // Embeddings of the layers for each token: [T, layers * P]. x: [T, E]
  Value inputs(Value x, Weight table, Weight projection, Weight norm) {
    const Value projected = rec_.scale(rec_.matmul(x, projection), 1.0F / std::sqrt(static_cast<float>(p_.width)));
    const Value rows = rec_.embed(table, std::sqrt(static_cast<float>(p_.input_width)));
    return halve_power(rec_.add(rec_.rms_norm_heads(projected, norm, p_.eps), rows));
  }

  // The token's embedding x [T, E] as the first stream, and projections of it, as large as it, as the others.
  std::vector<Value> spread(Value x, std::span<const Weight> projections) {
    std::vector<Value> streams{x};
    for (const Weight w : projections) streams.push_back(rec_.match_magnitude(rec_.matmul(x, w), x, kLeastMagnitude));
    return streams;
  }

  // The mean of all streams, each mapped back and as large as the first: [R, E]
  Value join(std::span<const Value> streams, std::span<const Weight> projections) {
    const Value first = rec_.select_outputs(streams[0]);
    Value sum = first;
    for (size_t i = 1; i < streams.size(); ++i) {
      const Value back = rec_.matmul(rec_.select_outputs(streams[i]), projections[i - 1]);
      sum = rec_.add(sum, rec_.match_magnitude(back, first, kLeastMagnitude));
    }
    return rec_.scale(sum, 1.0F / static_cast<float>(streams.size()));
  }

  // streams: [T, E] each; input: [T, P], this layer's embedding
  std::vector<Value> layer(const Layer& w, const Place& place, std::span<const Value> streams, Value input) {
    const std::vector<Value> predicted = predict(w.altup, streams);
    std::vector<Value> corrected = correct(w.altup, predicted, block(w, place, predicted[p_.active]));
    const Value gate = rec_.matmul(rec_.scale_columns(corrected[p_.active], w.altup.scale), w.input.gate);
    const Value gated = rec_.gated(gate, input, Activation::gelu_tanh);
    const Value gain = rec_.rms_norm(rec_.matmul(gated, w.input.projection), w.input.norm, p_.eps);
    for (size_t i = 1; i < corrected.size(); ++i) corrected[i] = rec_.add(corrected[i], gain);
    return corrected;
  }

 private:
  // A sum of two, as large as each of them.
  Value halve_power(Value sum) { return rec_.scale(sum, std::numbers::sqrt2_v<float> / 2); }

  // x: [T, E] -> [T, streams], between -1 and 1
  Value modalities(const AltUp& w, Value x) {
    const Value routed = rec_.matmul(rec_.rms_norm(x, w.norm, p_.eps), w.router);
    return rec_.activate(rec_.scale(routed, 1.0F / static_cast<float>(p_.width)), Activation::tanh);
  }

  std::vector<Value> predict(const AltUp& w, std::span<const Value> streams) {
    const Value factors = rec_.matmul(modalities(w, streams[p_.active]), w.predict);
    std::vector<Value> predicted;
    for (int64_t i = 0; i < p_.streams; ++i)
      predicted.push_back(rec_.weighted_sum(streams[static_cast<size_t>(i)], streams, factors, i * p_.streams));
    return predicted;
  }

  // Each stream gains 1 + factor times what the active one gained.
  std::vector<Value> correct(const AltUp& w, std::span<const Value> predicted, Value activated) {
    const Value factors = rec_.matmul(modalities(w, activated), w.correct);
    const Value gained = rec_.add(activated, predicted[p_.active], -1.0F);
    std::vector<Value> corrected;
    for (int64_t i = 0; i < p_.streams; ++i) {
      const Value once = rec_.add(predicted[static_cast<size_t>(i)], gained);
      corrected.push_back(rec_.weighted_sum(once, {&gained, 1}, factors, i));
    }
    return corrected;
  }

  // A transformer's layer: attention, with the low-rank map beside it, and feed-forward. x: [T, E] -> [T, E]
  Value block(const Layer& w, const Place& place, Value x) {
    const Value h = rec_.rms_norm(x, w.attn_norm, p_.eps);
    const Value low_rank = rec_.matmul(rec_.matmul(h, w.laurel_left), w.laurel_right);
    const Value laurel = rec_.add(h, rec_.rms_norm(low_rank, w.laurel_norm, p_.eps));
    const Value mixed = rec_.rms_norm(rec_.matmul(attention(w, place, h), w.o), w.post_attn_norm, p_.eps);
    const Value sum = halve_power(rec_.add(rec_.add(x, mixed), laurel));
    const Value f = feed_forward(w.ffn, place.deviations, rec_.rms_norm(sum, w.ffn_norm, p_.eps));
    return rec_.add(sum, rec_.rms_norm(f, w.post_ffn_norm, p_.eps));
  }

  // h: [T, E] -> [T, H * D]
  Value attention(const Layer& w, const Place& place, Value h) {
    const auto d = static_cast<int>(p_.head_dim);
    const Value q = rec_.rms_norm_heads(rec_.matmul(h, w.q), w.q_norm, p_.eps);
    Value k, v;
    if (w.k.present()) {
      k = rec_.rope(rec_.rms_norm_heads(rec_.matmul(h, w.k), w.k_norm, p_.eps), place.rope, d);
      v = rec_.rms_norm_heads(rec_.matmul(h, w.v), p_.head_dim, p_.eps);
    }
    return rec_.attention({.q = rec_.rope(q, place.rope, d),
                           .k = k,
                           .v = v,
                           .layer = place.cache,
                           .heads = static_cast<int>(p_.heads),
                           .window = place.window,
                           .scale = 1.0F});
  }

  // x: [T, E] -> [T, E]
  Value feed_forward(const GatedFeedForward& w, float deviations, Value x) {
    Value gate = rec_.matmul(x, w.gate);
    const Value up = rec_.matmul(x, w.up);
    if (std::isfinite(deviations)) gate = rec_.above_deviation(gate, deviations);
    return rec_.matmul(rec_.gated(gate, up, Activation::gelu_tanh), w.down);
  }

  Recorder& rec_;
  const Params& p_;
};

}  // namespace

Result<Model> build_gemma3n(const GgufFile& file) {
  Recorder rec;
  WeightReader reader(file, rec, "gemma3n");
  const Params p = read_params(reader, file);
  const double theta = reader.number_or("rope.freq_base", 1e6);
  const double local_theta = reader.number_or("rope.freq_base_swa", kLocalTheta);
  const auto cap = static_cast<float>(reader.number_or("final_logit_softcapping", 30.0));
  TRY(reader.check());

  const Weight embedding = reader.matrix("token_embd", p.vocabulary, p.width);
  const Weight table = reader.matrix("per_layer_token_embd", p.vocabulary, p.layers * p.input_width);
  const Weight projection = reader.matrix("per_layer_model_proj", p.layers * p.input_width, p.width);
  const Weight input_norm = reader.vector("per_layer_proj_norm", p.input_width);
  std::vector<Weight> spread, join;
  for (int64_t i = 0; i < p.streams - 1; ++i) {
    spread.push_back(reader.stacked("altup_proj", i, p.streams - 1, p.width, p.width));
    join.push_back(reader.stacked("altup_unembd_proj", i, p.streams - 1, p.width, p.width));
  }
  std::vector<Layer> layers;
  for (int64_t i = 0; i < p.layers; ++i) layers.push_back(bind_layer(reader, p, i));
  const std::vector<int> caches = assign_caches(rec, reader, p);
  const Weight norm = reader.vector("output_norm", p.width);
  const Weight head = bind_head(reader, p, embedding);
  TRY(reader.check());

  const int everywhere = rec.rope_table(rope_table(RopePairs::halves, theta, p.head_dim));
  const int nearby = rec.rope_table(rope_table(RopePairs::halves, local_theta, p.head_dim));
  Gemma3n model(rec, p);
  const Value x = rec.embed(embedding, std::sqrt(static_cast<float>(p.width)));
  const Value inputs = model.inputs(x, table, projection, input_norm);
  std::vector<Value> streams = model.spread(x, spread);
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool is_local = p.is_local[i] != 0;
    const Place place{.rope = is_local ? nearby : everywhere,
                      .window = is_local ? p.window : 0,
                      .cache = caches[i],
                      .deviations = p.deviations[i]};
    const Value input = rec.columns(inputs, static_cast<int64_t>(i) * p.input_width, p.input_width);
    streams = model.layer(layers[i], place, streams, input);
  }
  const Value result = rec.rms_norm(model.join(streams, join), norm, p.eps);
  return finish_model("gemma3n", p, std::move(rec), rec.scale(head_product(rec, result, head, {}), 1.0F, cap));
}

}  // namespace nanomind
