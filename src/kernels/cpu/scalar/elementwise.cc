// SPDX-License-Identifier: Apache-2.0
// Portable quantisation, normalisation and activation functions.
#include "kernels/cpu/delta_step.h"
#include "kernels/cpu/install.h"
#include "tensor/half.h"

namespace nanomind::scalar {
namespace {

constexpr float kCodeMax = 127 * 256;

// Any bits to a code that fits in two signed bytes: NaN becomes 0.
int32_t code(float x) {
  if (!(x > -kCodeMax)) return x <= -kCodeMax ? -static_cast<int32_t>(kCodeMax) : 0;
  return static_cast<int32_t>(__builtin_rintf(x < kCodeMax ? x : kCodeMax));
}

void quantize(const float* x, int64_t n, ActivationUnit* out) {
  for (int64_t first = 0; first < n; first += kUnitColumns, ++out) {
    const int count = n - first < kUnitColumns ? static_cast<int>(n - first) : kUnitColumns;
    float max = 0;
    for (int i = 0; i < count; ++i) {
      const float magnitude = __builtin_fabsf(x[first + i]);
      max = magnitude > max ? magnitude : max;
    }
    max = max < __FLT_MAX__ ? max : __FLT_MAX__;
    *out = {};
    out->scale = max / kCodeMax;
    if (out->scale == 0) continue;  // also when the quotient underflows
    for (int p = 0; p < kUnitColumns; ++p) {
      const int column = (p & ~7) + kColumnOrder[p & 7];
      if (column >= count) continue;
      const int32_t q = code(x[first + column] / out->scale);
      out->lo[p] = static_cast<int8_t>(q & 255);
      out->hi[p] = static_cast<int8_t>((q - out->lo[p]) >> 8);
      out->sum[p / 16] += q;
    }
    out->scaled_sum = out->scale * static_cast<float>(out->sum[0] + out->sum[1]);
  }
}

void rms_norm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const auto factor =
      static_cast<float>(1 / __builtin_sqrt(squares / static_cast<double>(n) + static_cast<double>(eps)));
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void swiglu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = gate[i] / (1 + __builtin_expf(-gate[i])) * up[i];
}

// 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)).
void geglu(const float* gate, const float* up, int64_t n, float* out) {
  constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i];
    const float u = kTwoRootTwoOverPi * (g + 0.044715f * g * g * g);
    out[i] = g / (1 + __builtin_expf(-u)) * up[i];
  }
}

void to_half(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = half_from_float(x[i]);
}

}  // namespace

void install_elementwise(KernelTable& table) {
  table.delta_step = delta_step;
  table.quantize = quantize;
  table.rms_norm = rms_norm;
  table.swiglu = swiglu;
  table.geglu = geglu;
  table.to_half = to_half;
}

}  // namespace nanomind::scalar
