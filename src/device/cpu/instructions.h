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

// Activation rows from which products go by GemmKernels, where the table has them: below, weights that are unpacked
// into a panel meet too few rows to pay for it.
inline constexpr int64_t kManyRows = 16;

// A value as its products read it: rows of `stride` units for few rows (where an integer product reads it; else
// float rows serve), or what `many` packs for many rows (null: the table has nothing). Both share the bytes. data is
// null where no product needs another form than the floats.
struct Quantized {
  std::byte* data = nullptr;
  int64_t stride = 0;
  bool units = false;
  bool only = false;  // nothing reads the floats themselves
  const GemmKernels* many = nullptr;
  ActivationUnit* row(int64_t i) const { return reinterpret_cast<ActivationUnit*>(data) + i * stride; }

  // What the value is packed by in a step where it has so many rows; null: units or floats.
  const GemmKernels* packed_by(int64_t rows) const { return rows >= kManyRows ? many : nullptr; }
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
  IntMatmul multiply;          // of few rows: either this
  FloatMatmul multiply_float;  // or this
  Gemm multiply_many;          // of many rows, where the value is packed for them
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
  std::span<std::byte> scratch;          // of all threads, equal parts that are multiples of 64 bytes
  std::span<std::byte> attention_parts;  // attention_part_bytes of the widest head
  std::byte* kv = nullptr;
  size_t kv_block_bytes = 0;

  int64_t rows(Rows kind) const {
    return static_cast<int64_t>(kind == Rows::tokens ? step.tokens.size() : step.outputs.size());
  }
};

void run(const EmbedStep& s, StepContext& context);
void run(const NormStep& s, StepContext& context);
void run(const QuantizeStep& s, StepContext& context);
void run(const ProductStep& s, StepContext& context);
void run(const RopeStep& s, StepContext& context);
void run(const AttentionStep& s, StepContext& context);
void run(const ActivationStep& s, StepContext& context);
void run(const AddStep& s, StepContext& context);
void run(const SelectStep& s, StepContext& context);

// Memory that attention needs for results of parts of the keys.
size_t attention_part_bytes(int head_dim, int threads);

// Fills the tables for the positions of the step's rows.
void fill_rope_tables(std::span<RopeTable> ropes, const Step& step);

}  // namespace nanomind::cpu
