// SPDX-License-Identifier: Apache-2.0
// Instructions that treat each row by itself: embedding, norms, rotary positions, gated activation, residual sums.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/cpu/for_rows.h"
#include "device/cpu/instructions.h"
#include "tensor/packed.h"

namespace nanomind::cpu {
namespace {

// A wide row is cut into pieces of this many columns, so that a single row too keeps all threads busy (a multiple of
// what GemmKernels::pack may start at). Floats of which only the quantised form is read stay in an array of a piece:
// they need not go to memory.
constexpr int64_t kPiece = 2048;

constexpr float kQuickGelu = 1.702F;  // x * sigmoid(1.702 x), OpenAI's CLIP

// Brings `piece`, columns [begin, begin + n) of a row of x, into the form that the step's products read; the last piece
// also clears the unit that pads the row to a whole block.
void quantize_piece(const StepContext& context, const float* piece, const Matrix& x, int64_t row, int64_t begin,
                    int64_t n, const Quantized& out) {
  if (const GemmKernels* gemm = out.packed_by(context.rows(x.rows))) {
    gemm->pack(piece, begin, n, x.columns, row, out.data);
    return;
  }
  if (!out.units) return;
  ActivationUnit* units = out.row(row);
  context.kernels.quantize(piece, n, units + begin / kUnitColumns);
  if (begin + n == x.columns) clear_padding(units, x.columns, out.stride);
}

// Calls f(row, begin, n) for each piece of x. Few rows do not keep all threads busy, their pieces do.
template <typename F>
void for_pieces(StepContext& context, const Matrix& x, const F& f) {
  const int64_t rows = context.rows(x.rows), pieces = (x.columns + kPiece - 1) / kPiece;
  const auto call = [&](int64_t i, int64_t piece) {
    f(i, piece * kPiece, std::min(kPiece, x.columns - piece * kPiece));
  };
  if (rows < kManyRows) {
    context.pool.for_each(rows * pieces, [&](int64_t task) { call(task / pieces, task % pieces); });
  } else {
    for_rows(context, rows, [&](int64_t i) {
      for (int64_t piece = 0; piece < pieces; ++piece) call(i, piece);
    });
  }
}

void sigmoid_gate(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = up[i] / (1 + std::exp(-gate[i]));
}
void relu_squared_gate(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = gate[i] > 0 ? gate[i] * gate[i] * up[i] : 0;
}
void multiply(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = gate[i] * up[i];
}

}  // namespace

namespace {

// The widest kernels compute gates; these are gates of nothing but a factor.
struct Factors {
  alignas(64) float of[kPiece];
  explicit Factors(float factor) { std::ranges::fill(of, factor); }
};

void activate(const KernelTable& kernels, Activation activation, const float* x, int64_t n, float* out) {
  static const Factors ones(1.0F), unscaled(1.0F / kQuickGelu);
  const auto each = [&](auto function) { std::transform(x, x + n, out, function); };
  switch (activation) {
    case Activation::silu: return kernels.swiglu(x, ones.of, n, out);
    case Activation::gelu_tanh: return kernels.geglu(x, ones.of, n, out);
    case Activation::gelu_quick:
      each([](float v) { return kQuickGelu * v; });
      return kernels.swiglu(out, unscaled.of, n, out);
    case Activation::gelu: return each([](float v) { return 0.5F * v * (1 + std::erf(v * 0.7071067812F)); });
    case Activation::sigmoid: return each([](float v) { return 1 / (1 + std::exp(-v)); });
    case Activation::relu_squared: return each([](float v) { return v > 0 ? v * v : 0; });
    case Activation::tanh: return each([](float v) { return std::tanh(v); });
    case Activation::identity: return each([](float v) { return v; });
  }
}

// Sums of few floats in lanes, which a compiler can keep in vectors, and those in double.
template <typename F>
double sum_in_lanes(int64_t n, const F& term) {
  constexpr int64_t kLanes = 16, kRun = 32 * kLanes;
  double total = 0;
  int64_t c = 0;
  while (c + kLanes <= n) {
    float lanes[kLanes] = {};
    for (const int64_t end = std::min(c + kRun, n - n % kLanes); c < end; c += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(c + lane);
    }
    for (const float lane : lanes) total += lane;
  }
  for (; c < n; ++c) total += term(c);
  return total;
}

void rms_norm(const float* x, int64_t n, float eps, float* out) {
  double squares = 0;
  for (int64_t c = 0; c < n; ++c) squares += static_cast<double>(x[c]) * x[c];
  const auto factor = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(n) + eps));
  for (int64_t c = 0; c < n; ++c) out[c] = x[c] * factor;
}

void gelu_gate(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = 0.5F * gate[i] * (1 + std::erf(gate[i] * 0.7071067812F)) * up[i];
}
void quick_gelu_gate(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = gate[i] / (1 + std::exp(-kQuickGelu * gate[i])) * up[i];
}
void tanh_gate(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = std::tanh(gate[i]) * up[i];
}

}  // namespace

GatedActivation gated_activation(const KernelTable& kernels, Activation activation) {
  switch (activation) {
    case Activation::silu: return kernels.swiglu;
    case Activation::gelu_tanh: return kernels.geglu;
    case Activation::gelu: return gelu_gate;
    case Activation::gelu_quick: return quick_gelu_gate;
    case Activation::sigmoid: return sigmoid_gate;
    case Activation::relu_squared: return relu_squared_gate;
    case Activation::tanh: return tanh_gate;
    case Activation::identity: return multiply;
  }
  __builtin_unreachable();
}

void run(const EmbedStep& s, StepContext& context) {
  for_rows(context, context.rows(Rows::tokens), [&](int64_t i) {
    float* out = s.out.row(i);
    int64_t row = 0;
    if (s.by == Lookup::token && context.step.tokens[static_cast<size_t>(i)] < 0) {
      std::copy_n(context.given(i), s.out.columns, out);
      return;
    }
    if (s.by == Lookup::token) row = context.step.tokens[static_cast<size_t>(i)];
    if (s.by == Lookup::position) row = context.place(i);
    packed_row_to_float(s.dtype, s.table, row, s.out.columns, out);
    if (s.scale == 1.0F) return;
    for (int64_t c = 0; c < s.out.columns; ++c) out[c] *= s.scale;
  });
}

void run(const InputStep& s, StepContext& context) {
  for_rows(context, context.rows(Rows::tokens), [&](int64_t i) {
    if (context.step.tokens[static_cast<size_t>(i)] < 0)
      std::copy_n(context.given(i) + s.first, s.out.columns, s.out.row(i));
    else
      std::fill_n(s.out.row(i), s.out.columns, 0.0F);
  });
}

void run(const NormStep& s, StepContext& context) {
  for_rows(context, context.rows(s.x.rows), [&](int64_t i) {
    for (int64_t c = 0; c < s.x.columns; c += s.group) {
      if (s.weight == nullptr)
        rms_norm(s.x.row(i) + c, s.group, s.eps, s.out.row(i) + c);
      else
        context.kernels.rms_norm(s.x.row(i) + c, s.weight, s.group, s.eps, s.out.row(i) + c);
    }
    if (s.quantized.data != nullptr) quantize_piece(context, s.out.row(i), s.out, i, 0, s.out.columns, s.quantized);
  });
}

void run(const LayerNormStep& s, StepContext& context) {
  const bool in_pieces = s.x.columns <= kPiece && !s.quantized.read_as_floats(context.rows(s.x.rows));
  for_rows(context, context.rows(s.x.rows), [&](int64_t i) {
    const float* x = s.x.row(i);
    const int64_t n = s.x.columns;
    alignas(64) float piece[kPiece];
    float* out = in_pieces ? piece : s.out.row(i);
    const auto mean = static_cast<float>(sum_in_lanes(n, [&](int64_t c) { return x[c]; }) / static_cast<double>(n));
    const double squares = sum_in_lanes(n, [&](int64_t c) { return (x[c] - mean) * (x[c] - mean); });
    const auto scale = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(n) + s.eps));
    if (s.weight != nullptr && s.bias != nullptr) {
      for (int64_t c = 0; c < n; ++c) out[c] = (x[c] - mean) * scale * s.weight[c] + s.bias[c];
    } else {
      for (int64_t c = 0; c < n; ++c)
        out[c] =
            (x[c] - mean) * scale * (s.weight != nullptr ? s.weight[c] : 1.0F) + (s.bias != nullptr ? s.bias[c] : 0);
    }
    if (s.quantized.data != nullptr) quantize_piece(context, out, s.out, i, 0, n, s.quantized);
  });
}

void run(const ActivateStep& s, StepContext& context) {
  const bool in_pieces = !s.quantized.read_as_floats(context.rows(s.x.rows));
  for_pieces(context, s.x, [&](int64_t i, int64_t begin, int64_t n) {
    alignas(64) float piece[kPiece];
    float* out = in_pieces ? piece : s.out.row(i) + begin;
    activate(context.kernels, s.activation, s.x.row(i) + begin, n, out);
    if (s.quantized.data != nullptr) quantize_piece(context, out, s.out, i, begin, n, s.quantized);
  });
}

void run(const QuantizeStep& s, StepContext& context) {
  for_rows(context, context.rows(s.x.rows),
           [&](int64_t i) { quantize_piece(context, s.x.row(i), s.x, i, 0, s.x.columns, s.quantized); });
}

void run(const RopeStep& s, StepContext& context) {
  const RopeTable& table = context.ropes[static_cast<size_t>(s.rope)];
  const auto pairs = static_cast<int64_t>(table.info.inverse_frequency.size());
  for_rows(context, context.rows(Rows::tokens), [&](int64_t i) {
    const float* cosine = table.cosine + i * pairs;
    const float* sine = table.sine + i * pairs;
    for (int h = 0; h < s.heads; ++h) {
      float* x = s.x.row(i) + static_cast<int64_t>(h) * s.head_dim;
      if (table.info.pairs == RopePairs::halves) {
        float* y = x + pairs;
        for (int64_t j = 0; j < pairs; ++j) {
          const float a = x[j], b = y[j];
          x[j] = a * cosine[j] - b * sine[j];
          y[j] = a * sine[j] + b * cosine[j];
        }
      } else {
        for (int64_t j = 0; j < pairs; ++j) {
          const float a = x[2 * j], b = x[2 * j + 1];
          x[2 * j] = a * cosine[j] - b * sine[j];
          x[2 * j + 1] = a * sine[j] + b * cosine[j];
        }
      }
    }
  });
}

void run(const ActivationStep& s, StepContext& context) {
  const auto activate = gated_activation(context.kernels, s.activation);
  const bool in_pieces = !s.quantized.read_as_floats(context.rows(s.out.rows));
  for_pieces(context, s.out, [&](int64_t i, int64_t begin, int64_t n) {
    alignas(64) float piece[kPiece];
    float* out = in_pieces ? piece : s.out.row(i) + begin;
    activate(s.gate.row(i) + begin, s.up.row(i) + begin, n, out);
    if (s.quantized.data != nullptr) quantize_piece(context, out, s.out, i, begin, n, s.quantized);
  });
}

void run(const AddStep& s, StepContext& context) {
  for_rows(context, context.rows(s.out.rows), [&](int64_t i) {
    const float* a = s.a.row(i);
    const float* b = s.b.row(i);
    float* out = s.out.row(i);
    for (int64_t c = 0; c < s.out.columns; ++c) out[c] = a[c] + s.scale * b[c];
  });
}

void run(const ScaleStep& s, StepContext& context) {
  for_rows(context, context.rows(s.x.rows), [&](int64_t i) {
    float* x = s.x.row(i);
    for (int64_t c = 0; c < s.x.columns; ++c) x[c] *= s.factor;
    if (s.cap <= 0) return;
    for (int64_t c = 0; c < s.x.columns; ++c) x[c] = s.cap * std::tanh(x[c] / s.cap);
  });
}

void run(const SigmoidGateStep& s, StepContext& context) {
  for_rows(context, context.rows(s.out.rows), [&](int64_t i) {
    float dot = 0;
    for (int64_t c = 0; c < s.x.columns; ++c) dot += s.weight[c] * s.x.row(i)[c];
    const float share = 1.0F / (1.0F + std::exp(-dot));
    for (int64_t c = 0; c < s.out.columns; ++c) s.out.row(i)[c] = s.y.row(i)[c] * share;
  });
}

void run(const SelectStep& s, StepContext& context) {
  for (size_t i = 0; i < context.step.outputs.size(); ++i) {
    std::memcpy(s.out.row(static_cast<int64_t>(i)), s.x.row(context.step.outputs[i]),
                static_cast<size_t>(s.x.columns) * sizeof(float));
  }
}

void fill_rope_tables(std::span<RopeTable> ropes, const Step& step) {
  for (RopeTable& table : ropes) {
    const size_t pairs = table.info.inverse_frequency.size();
    const bool elsewhere = !table.info.axes.empty() && !step.where.empty();
    size_t row = 0;
    for (const SequenceRows& sequence : step.sequences) {
      for (int64_t i = 0; i < sequence.rows; ++i, ++row) {
        const double magnitude = table.info.magnitude_at(sequence.past + i);
        for (size_t j = 0; j < pairs; ++j) {
          const double along = elsewhere ? step.where[row][table.info.axes[j]] : sequence.past + i;
          const double angle = along * table.info.inverse_frequency[j];
          table.cosine[row * pairs + j] = static_cast<float>(magnitude * std::cos(angle));
          table.sine[row * pairs + j] = static_cast<float>(magnitude * std::sin(angle));
        }
      }
    }
  }
}

}  // namespace nanomind::cpu
