// SPDX-License-Identifier: Apache-2.0
// Operations that keep a state of each sequence: short convolution, cut by columns, and the gated delta rule, cut by
// heads; and the split of heads that models with them need.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/cpu/instructions.h"

namespace nanomind::cpu {
namespace {

constexpr int64_t kPiece = 256;  // columns of one task of a convolution

float softplus(float x) { return x > 30 ? x : std::log1p(std::exp(x)); }
float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// Columns [begin, end) of the rows of one sequence. The state holds the taps - 1 rows before them.
void convolve(const ShortConvStep& s, float* state, int64_t first_row, int64_t rows, int64_t begin, int64_t end) {
  const int64_t columns = s.x.columns, before = s.taps - 1;
  const auto input = [&](int64_t t) { return t < before ? state + t * columns : s.x.row(first_row + t - before); };
  for (int64_t t = 0; t < rows; ++t) {
    float* out = s.out.row(first_row + t);
    std::fill(out + begin, out + end, 0.0F);
    for (int64_t j = 0; j < s.taps; ++j) {
      const float* x = input(t + j);
      for (int64_t c = begin; c < end; ++c) out[c] += s.weight[c * s.taps + j] * x[c];
    }
    if (s.activation != Activation::silu) continue;
    for (int64_t c = begin; c < end; ++c) out[c] *= sigmoid(out[c]);
  }
  // Rows of the old state may move up before they are overwritten.
  for (int64_t t = 0; t < before; ++t) {
    const float* x = input(rows + t);
    std::copy(x + begin, x + end, state + t * columns + begin);
  }
}

// to = x / sqrt(sum of squares + eps) * scale
void normalise(const float* x, int n, float eps, float scale, float* to) {
  float squares = eps;
  for (int i = 0; i < n; ++i) squares += x[i] * x[i];
  const float factor = scale / std::sqrt(squares);
  for (int i = 0; i < n; ++i) to[i] = x[i] * factor;
}

void recur(const DeltaRuleStep& s, const KernelTable& kernels, float* state, int64_t first_row, int64_t rows,
           int head) {
  float q[kMaxHeadDim], k[kMaxHeadDim];
  const int dk = s.key_dim, dv = s.value_dim, keys = s.key_heads * dk, key = head % s.key_heads * dk;
  for (int64_t t = first_row; t < first_row + rows; ++t) {
    const float* x = s.x.row(t);
    normalise(x + key, dk, s.eps, 1 / std::sqrt(static_cast<float>(dk)), q);
    normalise(x + keys + key, dk, s.eps, 1, k);
    const float decay = std::exp(s.decay[head] * softplus(s.alpha.row(t)[head] + s.bias[head]));
    kernels.delta_step(state + static_cast<int64_t>(head) * dk * dv, q, k, x + 2 * keys + head * dv, dk, dv, decay,
                       sigmoid(s.beta.row(t)[head]), s.out.row(t) + static_cast<int64_t>(head) * dv);
  }
}

// Calls f(sequence, its first row) for each sequence of the step.
template <typename F>
void for_sequences(const StepContext& context, const F& f) {
  int64_t first_row = 0;
  for (const SequenceRows& sequence : context.step.sequences) {
    f(sequence, first_row);
    first_row += sequence.rows;
  }
}

}  // namespace

void run(const SplitStep& s, StepContext& context) {
  const int64_t rows = context.rows(s.x.rows);
  for (int64_t i = 0; i < rows; ++i) {
    const float* x = s.x.row(i);
    for (int64_t c = 0; c < s.first.columns; c += s.width) {
      std::copy_n(x + 2 * c, s.width, s.first.row(i) + c);
      std::copy_n(x + 2 * c + s.width, s.width, s.second.row(i) + c);
    }
  }
}

void run(const ShortConvStep& s, StepContext& context) {
  const int64_t pieces = (s.x.columns + kPiece - 1) / kPiece;
  context.pool.for_each(pieces, [&](int64_t piece) {
    const int64_t begin = piece * kPiece, end = std::min(begin + kPiece, s.x.columns);
    for_sequences(context, [&](const SequenceRows& sequence, int64_t first_row) {
      convolve(s, context.state(sequence, s.state_offset), first_row, sequence.rows, begin, end);
    });
  });
}

void run(const DeltaRuleStep& s, StepContext& context) {
  context.pool.for_each(s.value_heads, [&](int64_t head) {
    for_sequences(context, [&](const SequenceRows& sequence, int64_t first_row) {
      recur(s, context.kernels, context.state(sequence, s.state_offset), first_row, sequence.rows,
            static_cast<int>(head));
    });
  });
}

}  // namespace nanomind::cpu
