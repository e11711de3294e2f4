// SPDX-License-Identifier: Apache-2.0
// What a compiled program consists of: instructions with resolved pointers, and the functions that run them. One file
// per family: product.cc, attention.cc, rowwise.cc.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/thread_pool.h"
#include "device/device.h"
#include "kernels/cpu/table.h"

namespace nanomind::cpu {

// A value in the arena: [rows, columns], rows `stride` floats apart. Stride is a multiple of 16, so kernels may write
// whole row groups; the columns beyond `columns` are unspecified.
struct Matrix {
  float* data = nullptr;
  int64_t stride = 0;
  int64_t columns = 0;
  Rows rows = Rows::tokens;
  float* row(int64_t i) const { return data + i * stride; }
};

// How a value is quantised for integer products. What comes out of a norm has few outliers and loses least in 8 bits,
// so steps of many tokens, whose time is arithmetic, take these where the kernel table offers them.
enum class Precision : uint8_t { bits16, bits8_for_many };

// A value quantised for integer products: rows of `stride` units. data is null where no integer product reads the
// value.
struct Quantized {
  ActivationUnit* data = nullptr;
  int64_t stride = 0;
  Precision precision = Precision::bits16;
  ActivationUnit* row(int64_t i) const { return data + i * stride; }
};

// cos and sin of the angles of this step's positions, [T, pairs].
struct RopeTable {
  RopePairs pairs = RopePairs::halves;
  std::vector<float> inverse_frequency;
  float* cosine = nullptr;
  float* sine = nullptr;
};

struct EmbedStep {
  Matrix out;
  std::span<const std::byte> table;
  DType dtype;
  float scale;
};
struct NormStep {
  Matrix out, x;
  Quantized quantized;  // of out
  const float* weight;
  int64_t group;
  float eps;
};
struct QuantizeStep {
  Matrix x;
  Quantized quantized;
};
// Several products of the same activations, run as one parallel loop.
struct Product {
  std::span<const std::byte> weights;
  size_t group_bytes;
  int64_t groups;
  int64_t blocks;              // per group; of integer products
  IntMatmul multiply;          // either this,
  IntMatmul multiply8;         // with this for 8-bit activations, where the step has them,
  FloatMatmul multiply_float;  // or this
  const float* bias;           // null: none
  Matrix out;
};
struct ProductStep {
  Matrix x;
  Quantized quantized;
  std::vector<Product> products;
};
struct RopeStep {
  Matrix x;
  int rope, heads, head_dim;
};
struct AttentionStep {
  Matrix out, q, k, v;
  size_t k_offset, v_offset;  // of the layer in a cache block, bytes: k[K][D][64], v[K][64][D] halves
  int heads, kv_heads, head_dim;
  int64_t window;
  float scale;
};
struct ActivationStep {
  Matrix out, gate, up;
  Quantized quantized;
  Activation activation;
};
struct AddStep {
  Matrix out, a, b;
};
struct SelectStep {
  Matrix out, x;
};

using Instruction = std::variant<EmbedStep, NormStep, QuantizeStep, ProductStep, RopeStep, AttentionStep,
                                 ActivationStep, AddStep, SelectStep>;

// What an instruction needs to know about the step that is being run.
struct StepContext {
  const KernelTable& kernels;
  ThreadPool& pool;
  const Step& step;
  std::span<const RopeTable> ropes;
  std::byte* kv = nullptr;
  size_t kv_block_bytes = 0;

  int64_t rows(Rows kind) const {
    return static_cast<int64_t>(kind == Rows::tokens ? step.tokens.size() : step.outputs.size());
  }
};

// Whether this step has the value in 8 bits.
bool in_8_bits(const StepContext& context, const Quantized& quantized);

void run(const EmbedStep& s, StepContext& context);
void run(const NormStep& s, StepContext& context);
void run(const QuantizeStep& s, StepContext& context);
void run(const ProductStep& s, StepContext& context);
void run(const RopeStep& s, StepContext& context);
void run(const AttentionStep& s, StepContext& context);
void run(const ActivationStep& s, StepContext& context);
void run(const AddStep& s, StepContext& context);
void run(const SelectStep& s, StepContext& context);

// Fills the tables for the positions of the step's rows.
void fill_rope_tables(std::span<RopeTable> ropes, const Step& step);

}  // namespace nanomind::cpu
