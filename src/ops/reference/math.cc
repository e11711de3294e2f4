// SPDX-License-Identifier: Apache-2.0
#include "ops/reference/math.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace nanomind::reference {

void matmul(std::span<const float> x, std::span<const float> w, int64_t rows, int64_t columns, int64_t inputs,
            std::span<float> out) {
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < columns; ++n) {
      double sum = 0;
      for (int64_t c = 0; c < inputs; ++c) sum += static_cast<double>(x[m * inputs + c]) * w[n * inputs + c];
      out[m * columns + n] = static_cast<float>(sum);
    }
  }
}

void rms_norm(std::span<const float> x, std::span<const float> weight, double eps, std::span<float> out) {
  double squares = 0;
  for (float v : x) squares += static_cast<double>(v) * v;
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<float>(x[i] * factor * weight[i]);
}

double silu(double x) { return x / (1.0 + std::exp(-x)); }

double gelu_tanh(double x) {
  const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}

void softmax(std::span<double> row) {
  const double max = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (double& v : row) sum += v = std::exp(v - max);
  for (double& v : row) v /= sum;
}

void rope(std::span<float> head, double position, std::span<const float> inverse_frequency, RopePairing pairing) {
  const size_t half = inverse_frequency.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = position * inverse_frequency[i];
    float& a = pairing == RopePairing::halves ? head[i] : head[2 * i];
    float& b = pairing == RopePairing::halves ? head[i + half] : head[2 * i + 1];
    const double x = a, y = b;
    a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
    b = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
  }
}

void attention(std::span<const float> q, std::span<const float> keys, std::span<const float> values, int64_t first,
               double scale, std::span<float> out) {
  const auto d = static_cast<int64_t>(q.size());
  const int64_t n = static_cast<int64_t>(keys.size()) / d;
  std::vector<double> weights(static_cast<size_t>(n - first));
  for (int64_t j = first; j < n; ++j) {
    double score = 0;
    for (int64_t c = 0; c < d; ++c) score += static_cast<double>(q[c]) * keys[j * d + c];
    weights[j - first] = score * scale;
  }
  softmax(weights);
  for (int64_t c = 0; c < d; ++c) {
    double sum = 0;
    for (int64_t j = first; j < n; ++j) sum += weights[j - first] * values[j * d + c];
    out[c] = static_cast<float>(sum);
  }
}

}  // namespace nanomind::reference
