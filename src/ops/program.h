// SPDX-License-Identifier: Apache-2.0
// A Program: the flat tape of operations that a model records once and a device compiles once. It says what is
// computed, on values with symbolic row counts, and nothing about where. Plain data; built by Recorder.
#pragma once

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

// How many rows a value has: one per token of the step (T), or one per row whose result is wanted (R).
enum class Rows : uint8_t { tokens, outputs };

// A value is a float matrix [rows, columns].
struct ValueInfo {
  Rows rows = Rows::tokens;
  int64_t columns = 0;
};

// A constant that the device is given at compile time: a matrix [N, C], or a vector [C] of floats.
struct WeightInfo {
  std::string name;  // as in the model's file
  DType dtype = DType::f32;
  Shape shape;
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
};

enum class Activation : uint8_t { silu, gelu_tanh };

namespace op {

// out[T, E] = table[token] * scale.
struct Embed {
  ValueId out;
  WeightId table;
  float scale;
};
// Each run of `group` columns of x is divided by its root mean square and multiplied by weight[group].
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
// within the row's own sequence. Row at position p sees positions p - window + 1 .. p; window 0 means all.
struct Attention {
  ValueId out, q, k, v;
  int32_t layer;
  int32_t heads;
  int64_t window;
  float scale;
};
// out = activation(gate) * up.
struct GatedActivation {
  ValueId out, gate, up;
  Activation activation;
};
struct Add {
  ValueId out, a, b;
};
// out[R, C] = the rows of x [T, C] that the step asks results for.
struct SelectRows {
  ValueId out, x;
};

}  // namespace op

using Op = std::variant<op::Embed, op::RmsNorm, op::MatMul, op::Rope, op::Attention, op::GatedActivation, op::Add,
                        op::SelectRows>;

struct Program {
  std::vector<ValueInfo> values;
  std::vector<WeightInfo> weights;
  std::vector<KvLayerInfo> kv_layers;
  std::vector<RopeInfo> ropes;
  std::vector<Op> ops;
  ValueId output = -1;  // [R, V]
};

}  // namespace nanomind
