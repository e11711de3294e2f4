// SPDX-License-Identifier: Apache-2.0
// A Program: the flat tape of operations that a model records once and a device compiles once. It says what is
// computed, on values with symbolic row counts, and nothing about where. Plain data; built by Recorder.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace nanomind {

using ValueId = int32_t;
using WeightId = int32_t;
inline constexpr WeightId kNoWeight = -1;
inline constexpr ValueId kNoValue = -1;

// How many rows a value has: one per token of the step (T), or one per row whose result is wanted (R).
enum class Rows : uint8_t { tokens, outputs };

// A value is a float matrix [rows, columns].
struct ValueInfo {
  Rows rows = Rows::tokens;
  int64_t columns = 0;
};

// A constant that the device is given at compile time: a matrix [N, C], equal matrices of several experts [X, N, C], or
// a vector [C] of floats.
struct WeightInfo {
  std::string name;  // as in the model's file
  DType dtype = DType::f32;
  Shape shape;
  int64_t first_row = 0;    // of the file's tensor, which may have more rows than this weight
  bool transposed = false;  // the file's tensor is [C, N]
};

// Widest head that models may record and devices keep room for.
inline constexpr int64_t kMaxHeadDim = 512;

// Keys and values of one attention layer, kept between steps: [P, kv_heads, head_dim] each.
struct KvLayerInfo {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

// Rotary position embedding (RoFormer, arXiv 2104.09864): pair i of a head turns by position * inverse_frequency[i].
enum class RopePairs : uint8_t {
  adjacent,  // (x[2i], x[2i + 1]); GGUF "llama" weights are permuted for this
  halves,    // (x[i], x[i + n]) with n pairs; GPT-NeoX order
};
struct RopeInfo {
  RopePairs pairs = RopePairs::halves;
  std::vector<float> inverse_frequency;  // one per pair; head dimensions beyond the pairs are left alone
  float magnitude = 1.0F;                // of sine and cosine (the attention factor of YaRN, arXiv 2309.00071)
  // The magnitude grows by growth * ln(1 + floor(position / growth_period)) of itself (scores of far positions in
  // Llama 4 and Ministral 3); 0: it does not.
  float growth = 0;
  int64_t growth_period = 1;
  // Of models that see: by which of a row's coordinates each pair turns (RowCoordinates); empty: all by the position.
  std::vector<uint8_t> axes;

  double magnitude_at(int64_t position) const;
};

enum class Activation : uint8_t { silu, gelu_tanh, gelu, gelu_quick, sigmoid, relu_squared, tanh, identity };

// Which row of a table a token gets: its own, that of its position in the sequence (or of its place in a picture, where
// the step gives places), or the first (all tokens the same).
// A token below 0 has no row of its own: a step gives it one, which is not scaled.
enum class Lookup : uint8_t { token, position, first };

// Which positions a row of attention sees. Groups are runs of rows of a step that belong together: windows of a
// picture's patches, or a picture's rows in a text.
enum class Mask : uint8_t {
  causal,        // those up to its own
  none,          // all of its sequence so far, later ones of the same step included (encoders)
  group,         // those of its own group only; where a step has no groups, as none
  causal_group,  // those up to its own and all of its group; where a step has no groups, as causal
};

// Where a row stands: in time, down and across. Rows of a text stand on the diagonal.
using RowCoordinates = std::array<int32_t, 3>;

// What a recurrent operation keeps of a sequence between steps: so many floats, all zero before its first token.
struct StateInfo {
  int64_t floats = 0;
};

// How a mixture of experts turns a row of router logits [X] into weights of the experts that the row uses.
enum class RouterScore : uint8_t { softmax, sigmoid };
struct Routing {
  int32_t used = 0;  // experts per row: those of the highest scores, of equal ones the first
  RouterScore score = RouterScore::softmax;
  bool normalise = false;  // divide the chosen scores by their sum
  float scale = 1.0F;      // of the chosen scores, at the end
};

namespace op {

// out[T, E] = table[row] * scale.
struct Embed {
  ValueId out;
  WeightId table;
  float scale;
  Lookup by;
};
// out[T, C] = columns [first, first + C) of the rows that a step gives for its tokens below 0; zero for others.
struct Input {
  ValueId out;
  int64_t first;
};
// Each run of `group` columns of x is divided by its root mean square and multiplied by weight[group], if there is one.
struct RmsNorm {
  ValueId out, x;
  WeightId weight;
  int64_t group;
  float eps;
};
// out[., N] = x[., C] * weight[N, C]^T + bias[N].
struct MatMul {
  ValueId out, x;
  WeightId weight, bias;
};
// Rotates each head of x [T, heads * head_dim] by the position of its row, in place.
struct Rope {
  ValueId x;
  int32_t rope;  // index into Program::ropes
  int32_t heads, head_dim;
};
// Appends k and v [T, K * D] to the layer's cache, then out[T, H * D] = softmax(scale * q K^T) V per query head, causal
// within the row's own sequence. Row at position p sees positions p - window + 1 .. p; window 0 means all. A cap above
// 0 bounds the scaled scores: cap * tanh(score / cap). Without k and v it reads what an earlier attention of the same
// program has appended to the same layer.
struct Attention {
  ValueId out, q, k, v;
  int32_t layer;
  int32_t heads;
  int64_t window;
  float scale;
  float cap;
  Mask mask;
};
// out = (x - mean) / sqrt(variance + eps) * weight + bias, over each row; there may be no weight or no bias.
struct LayerNorm {
  ValueId out, x;
  WeightId weight, bias;
  float eps;
};
// out = activation(x).
struct Activate {
  ValueId out, x;
  Activation activation;
};
// out = activation(gate) * up.
struct GatedActivation {
  ValueId out, gate, up;
  Activation activation;
};
// out = a + scale * b.
struct Add {
  ValueId out, a, b;
  float scale;
};
// x = factor * x, then, with a cap above 0, cap * tanh(x / cap); in place.
struct Scale {
  ValueId x;
  float factor, cap;
};
// Mixture of experts: out[T, E] = sum over the experts e that a row's router logits [T, X] choose, each with its weight
// w_e of `routing`, of w_e * down[e] (activation(gate[e] x) * (up[e] x)). gate and up are [X, F, E], down is [X, E, F].
// selection_bias[X], if any, is added to the scores for choosing only.
struct Experts {
  ValueId out, x, logits;
  WeightId gate, up, down, selection_bias;
  Routing routing;
  Activation activation;
};
// out[T, C] = y[T, C] * sigmoid(weight[E] . x[T, E]): a shared expert's share.
struct SigmoidGate {
  ValueId out, y, x;
  WeightId weight;
};
// Cuts each run of 2 * width columns of x [T, 2C] into two halves: first[T, C] has the lower, second[T, C] the upper
// ones.
struct SplitHeads {
  ValueId first, second, x;
  int64_t width;
};
// Causal depthwise convolution over the tokens of a sequence: out[t][c] = activation(sum over j < taps of
// weight[c][j] * x[t - taps + 1 + j][c]). The state [taps - 1, C] holds the last rows of x.
struct ShortConv {
  ValueId out, x;
  WeightId weight;  // [C * taps] floats
  int32_t state;
  int32_t taps;
  Activation activation;  // silu or identity
};
// Gated delta rule (arXiv 2412.06464) for V value heads of width dv that share K key heads of width dk (head h reads
// key head h % K). x [T, 2 * K * dk + V * dv] = q | k | v; q and k are divided by their lengths (sqrt of the sum of
// squares
// + eps), q also by sqrt(dk). With g = decay[h] * softplus(alpha[t][h] + bias[h]), b = sigmoid(beta[t][h]) and the
// state S [V, dk, dv]: S *= exp(g); S += k (b * (v - S^T k))^T; out[t][h] = S^T q.
struct DeltaRule {
  ValueId out, x, alpha, beta;
  WeightId decay, bias;  // [V]
  int32_t state;
  int32_t key_heads, value_heads, key_dim, value_dim;
  float eps;
};
// out[., C] = columns [first, first + C) of x.
struct Columns {
  ValueId out, x;
  int64_t first;
};
// out = the columns of all parts, one part after another.
struct Join {
  ValueId out;
  std::vector<ValueId> parts;
};
// out = x * weight[C], each column by its own factor.
struct ScaleColumns {
  ValueId out, x;
  WeightId weight;
};
// out[t] = base[t] + sum over i of weights[t][first + i] * terms[i][t]: factors of each row's own.
struct WeightedSum {
  ValueId out, base, weights;
  std::vector<ValueId> terms;
  int64_t first;
};
// Gives each row of x the root mean square of the same row of `like`: out = x * sqrt(mean(like^2) / max(mean(x^2),
// floor)).
struct MatchMagnitude {
  ValueId out, x, like;
  float floor;
};
// out = max(0, x - m - deviations * s) with mean m and standard deviation s of each row: of normally distributed values
// this keeps a known share (statistical top-k, arXiv 2506.06644).
struct AboveDeviation {
  ValueId out, x;
  float deviations;
};
// out[R, C] = the rows of x [T, C] that the step asks results for.
struct SelectRows {
  ValueId out, x;
};

}  // namespace op

using Op = std::variant<op::Embed, op::Input, op::RmsNorm, op::MatMul, op::Rope, op::Attention, op::GatedActivation,
                        op::Add, op::Scale, op::Experts, op::SigmoidGate, op::SplitHeads, op::ShortConv, op::DeltaRule,
                        op::LayerNorm, op::Activate, op::Columns, op::Join, op::ScaleColumns, op::WeightedSum,
                        op::MatchMagnitude, op::AboveDeviation, op::SelectRows>;

struct Program {
  std::vector<ValueInfo> values;
  std::vector<WeightInfo> weights;
  std::vector<KvLayerInfo> kv_layers;
  std::vector<RopeInfo> ropes;
  std::vector<StateInfo> states;
  std::vector<Op> ops;
  ValueId output = -1;  // [R, V]
};

}  // namespace nanomind
