// SPDX-License-Identifier: Apache-2.0
// What a compiled program consists of: instructions with resolved pointers, and the functions that run them. One file
// per family: product.cc, experts.cc, attention.cc, recurrent.cc, rowwise.cc, streams.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/kv_store.h"
#include "device/cpu/weight_matrix.h"
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
  bool few_as_floats = true, many_as_floats = true;  // whether anything reads the floats of few rows, of many
  const GemmKernels* many = nullptr;
  ActivationUnit* row(int64_t i) const { return reinterpret_cast<ActivationUnit*>(data) + i * stride; }

  // What the value is packed by in a step where it has so many rows; null: units or floats.
  const GemmKernels* packed_by(int64_t rows) const { return rows >= kManyRows ? many : nullptr; }
  bool read_as_floats(int64_t rows) const { return rows >= kManyRows ? many_as_floats : few_as_floats; }
};

// cos and sin of the angles of this step's positions, [T, pairs].
struct RopeTable {
  RopeInfo info;
  float* cosine = nullptr;
  float* sine = nullptr;
};

struct EmbedStep {
  Matrix out;
  std::span<const std::byte> table;
  DType dtype;
  float scale;
  Lookup by;
};
struct InputStep {
  Matrix out;
  int64_t first;
};
struct NormStep {
  Matrix out, x;
  Quantized quantized;  // of out
  const float* weight;  // null: none
  int64_t group;
  float eps;
};
struct QuantizeStep {
  Matrix x;
  Quantized quantized;
};
// Several products of the same activations, run as one parallel loop.
struct Product {
  WeightMatrix w;
  Gemm multiply_many;  // of many rows, where the value is packed for them
  const float* bias;   // null: none
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
  Matrix out, q, k, v;  // without data of k and v: what the cache already has of this step
  KvLayout kv;
  const KvStore *keys, *values;  // the compiled program's
  int heads;
  int64_t window;
  float scale, cap;
  Mask mask;
  std::byte* coded;  // memory for keys and values of a step as integers; null: floats
};
struct ActivationStep {
  Matrix out, gate, up;
  Quantized quantized;
  Activation activation;
};
struct AddStep {
  Matrix out, a, b;
  float scale;
};
struct ScaleStep {
  Matrix x;
  float factor, cap;
};
struct SigmoidGateStep {
  Matrix out, y, x;
  const float* weight;
};
// A slot is one expert of one row. Slots lie in the order of their experts, so that an expert's weights meet all its
// rows at once. Matrices of slots have room for max_tokens * used rows.
struct ExpertsStep {
  Matrix out, x, logits;
  WeightMatrix gate, up, down;
  const float* selection_bias;  // null: none
  Routing routing;
  Activation activation;
  struct Slots {
    int32_t* expert;                                // [T * used], by row
    float* share;                                   // [T * used], by row
    int32_t* slot;                                  // [T * used], by row: where that expert's result lies
    int32_t* row;                                   // [T * used], by slot
    int32_t *begin, *next;                          // [experts + 1], [experts]: first slot, first that is not yet taken
    int32_t* active;                                // experts that were chosen
    std::byte *gate_input, *up_input, *down_input;  // rows as those products read them; the first two may be one
    Matrix gate, up, down;
  } slots;
};
struct LayerNormStep {
  Matrix out, x;
  Quantized quantized;  // of out
  const float *weight, *bias;
  float eps;
};
struct ActivateStep {
  Matrix out, x;
  Quantized quantized;  // of out
  Activation activation;
};
struct SplitStep {
  Matrix first, second, x;
  int64_t width;
};
struct ShortConvStep {
  Matrix out, x;
  const float* weight;  // [C, taps]
  size_t state_offset;  // floats from the beginning of a sequence's state
  int64_t taps;
  Activation activation;
};
struct DeltaRuleStep {
  Matrix out, x, alpha, beta;
  const float *decay, *bias;
  size_t state_offset;
  int key_heads, value_heads, key_dim, value_dim;
  float eps;
};
struct ColumnsStep {
  Matrix out, x;
  int64_t first;
};
struct JoinStep {
  Matrix out;
  std::vector<Matrix> parts;
};
struct ScaleColumnsStep {
  Matrix out, x;
  const float* weight;
};
struct WeightedSumStep {
  Matrix out, base, weights;
  std::vector<Matrix> terms;
  int64_t first;
};
struct MatchMagnitudeStep {
  Matrix out, x, like;
  float floor;
};
struct AboveDeviationStep {
  Matrix out, x;
  float deviations;
};
struct SelectStep {
  Matrix out, x;
};

using Instruction = std::variant<EmbedStep, InputStep, NormStep, QuantizeStep, ProductStep, RopeStep, AttentionStep,
                                 ActivationStep, AddStep, ScaleStep, ExpertsStep, SigmoidGateStep, LayerNormStep,
                                 ActivateStep, SplitStep, ShortConvStep, DeltaRuleStep, ColumnsStep, JoinStep,
                                 ScaleColumnsStep, WeightedSumStep, MatchMagnitudeStep, AboveDeviationStep, SelectStep>;

// Rows [begin, end) of a step.
struct RowGroup {
  int64_t begin = 0, end = 0;
};

// What an instruction needs to know about the step that is being run.
struct StepContext {
  const KernelTable& kernels;
  ThreadPool& pool;
  const Step& step;
  std::span<const RopeTable> ropes;
  std::span<const RowGroup> groups;      // [T], empty where no attention of the program looks at them
  std::span<std::byte> scratch;          // of all threads, equal parts that are multiples of 64 bytes
  std::span<std::byte> attention_parts;  // attention_part_bytes of the widest head
  std::byte* kv = nullptr;
  size_t kv_block_bytes = 0;
  std::byte* states = nullptr;
  size_t state_bytes = 0;

  // The row that is given for token i, which is below 0.
  const float* given(int64_t i) const {
    if (step.given.size() == step.tokens.size()) return step.given[static_cast<size_t>(i)];
    const auto before = step.tokens.first(static_cast<size_t>(i));
    return step.given[static_cast<size_t>(std::ranges::count_if(before, [](int32_t token) { return token < 0; }))];
  }
  // Row of a table of positions.
  int64_t place(int64_t i) const { return step.places.empty() ? position(i) : step.places[static_cast<size_t>(i)]; }
  // The group of row i of the step.
  RowGroup group(int64_t i) const { return groups[static_cast<size_t>(i)]; }
  // Of row i of the step, within its sequence.
  int64_t position(int64_t i) const {
    for (const SequenceRows& sequence : step.sequences) {
      if (i < sequence.rows) return sequence.past + i;
      i -= sequence.rows;
    }
    return 0;
  }
  // The rows of the step that are of the same sequence as row i.
  RowGroup sequence_rows(int64_t i) const {
    int64_t begin = 0;
    for (const SequenceRows& sequence : step.sequences) {
      if (i < begin + sequence.rows) return {.begin = begin, .end = begin + sequence.rows};
      begin += sequence.rows;
    }
    return {};
  }
  float* state(const SequenceRows& sequence, size_t offset) const {
    return reinterpret_cast<float*>(states + static_cast<size_t>(sequence.state) * state_bytes) + offset;
  }
  int64_t rows(Rows kind) const {
    return static_cast<int64_t>(kind == Rows::tokens ? step.tokens.size() : step.outputs.size());
  }
};

void run(const EmbedStep& s, StepContext& context);
void run(const InputStep& s, StepContext& context);
void run(const NormStep& s, StepContext& context);
void run(const QuantizeStep& s, StepContext& context);
void run(const ProductStep& s, StepContext& context);
void run(const RopeStep& s, StepContext& context);
void run(const AttentionStep& s, StepContext& context);
void run(const ActivationStep& s, StepContext& context);
void run(const AddStep& s, StepContext& context);
void run(const ScaleStep& s, StepContext& context);
void run(const ExpertsStep& s, StepContext& context);
void run(const SigmoidGateStep& s, StepContext& context);
void run(const LayerNormStep& s, StepContext& context);
void run(const ActivateStep& s, StepContext& context);
void run(const SplitStep& s, StepContext& context);
void run(const ShortConvStep& s, StepContext& context);
void run(const DeltaRuleStep& s, StepContext& context);
void run(const ColumnsStep& s, StepContext& context);
void run(const JoinStep& s, StepContext& context);
void run(const ScaleColumnsStep& s, StepContext& context);
void run(const WeightedSumStep& s, StepContext& context);
void run(const MatchMagnitudeStep& s, StepContext& context);
void run(const AboveDeviationStep& s, StepContext& context);
void run(const SelectStep& s, StepContext& context);

// Places a step's slots in memory that is theirs alone while it runs; returns the bytes, also where `base` is null. Of
// the step only weights and routing need to be known.
size_t place_slots(ExpertsStep& step, int64_t experts, int64_t max_tokens, std::byte* base);

// Memory for keys and values of a step as integers; whether a step can be computed so; and that.
size_t integer_keys_bytes(int64_t heads, int64_t max_tokens, int head_dim);
bool attends_in_integers(const AttentionStep& s, const StepContext& context);
void attend_in_integers(const AttentionStep& s, StepContext& context);

// Memory that attention needs for results of parts of the keys.
size_t attention_part_bytes(int head_dim, int threads);

// out[i] = activation(gate[i]) * up[i]; out may be gate or up.
using GatedActivation = void (*)(const float* gate, const float* up, int64_t n, float* out);
// Never null.
GatedActivation gated_activation(const KernelTable& kernels, Activation activation);

// Writes the group of each of the step's rows: those that the step gives, else each row alone or its whole sequence.
void find_groups(const Step& step, Mask mask, std::span<RowGroup> groups);

// Fills the tables for the positions of the step's rows.
void fill_rope_tables(std::span<RopeTable> ropes, const Step& step);

}  // namespace nanomind::cpu
