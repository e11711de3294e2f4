// SPDX-License-Identifier: Apache-2.0
#include "ops/reference/math.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
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

double mean_square(std::span<const float> row) {
  double squares = 0;
  for (const float x : row) squares += static_cast<double>(x) * x;
  return squares / static_cast<double>(row.size());
}

Moments moments(std::span<const float> row) {
  const auto n = static_cast<double>(row.size());
  Moments m;
  for (const float x : row) m.mean += x / n;
  for (const float x : row) m.variance += std::pow(x - m.mean, 2) / n;
  return m;
}

void rms_norm(std::span<const float> x, std::span<const float> weight, double eps, std::span<float> out) {
  const double factor = 1.0 / std::sqrt(mean_square(x) + eps);
  for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<float>(x[i] * factor * weight[i]);
}

double silu(double x) { return x / (1.0 + std::exp(-x)); }

double gelu_tanh(double x) {
  const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::silu: return silu(x);
    case Activation::gelu_tanh: return gelu_tanh(x);
    case Activation::gelu: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_quick: return x * sigmoid(1.702 * x);
    case Activation::sigmoid: return 1 / (1 + std::exp(-x));
    case Activation::relu_squared: return x > 0 ? x * x : 0;
    case Activation::tanh: return std::tanh(x);
    case Activation::identity: return x;
  }
  return x;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double capped(double x, double cap) { return cap > 0 ? cap * std::tanh(x / cap) : x; }

std::vector<std::pair<size_t, double>> route(std::span<const float> logits, std::span<const float> bias,
                                             const Routing& routing) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (routing.score == RouterScore::softmax) softmax(scores);
  if (routing.score == RouterScore::sigmoid) std::ranges::transform(scores, scores.begin(), sigmoid);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](size_t e) { return scores[e] + (bias.empty() ? 0.0 : static_cast<double>(bias[e])); });
  std::vector<std::pair<size_t, double>> chosen;
  double sum = 0;
  for (const size_t e : std::span(order).first(static_cast<size_t>(routing.used))) {
    chosen.emplace_back(e, scores[e]);
    sum += scores[e];
  }
  for (auto& [expert, share] : chosen) share *= routing.scale / (routing.normalise ? sum : 1.0);
  return chosen;
}

void softmax(std::span<double> row) {
  const double max = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (double& v : row) sum += v = std::exp(v - max);
  for (double& v : row) v /= sum;
}

void rope(std::span<float> head, std::span<const double> angles, RopePairing pairing, double magnitude) {
  const size_t half = angles.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = angles[i];
    float& a = pairing == RopePairing::halves ? head[i] : head[2 * i];
    float& b = pairing == RopePairing::halves ? head[i + half] : head[2 * i + 1];
    const double x = a * magnitude, y = b * magnitude;
    a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
    b = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
  }
}

void attention(std::span<const float> q, std::span<const float> keys, std::span<const float> values, int64_t first,
               double scale, double cap, std::span<float> out) {
  const auto d = static_cast<int64_t>(q.size());
  const int64_t n = static_cast<int64_t>(keys.size()) / d;
  std::vector<double> weights(static_cast<size_t>(n - first));
  for (int64_t j = first; j < n; ++j) {
    double score = 0;
    for (int64_t c = 0; c < d; ++c) score += static_cast<double>(q[c]) * keys[j * d + c];
    weights[j - first] = capped(score * scale, cap);
  }
  softmax(weights);
  for (int64_t c = 0; c < d; ++c) {
    double sum = 0;
    for (int64_t j = first; j < n; ++j) sum += weights[j - first] * values[j * d + c];
    out[c] = static_cast<float>(sum);
  }
}

}  // namespace nanomind::reference
