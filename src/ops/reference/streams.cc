// SPDX-License-Identifier: Apache-2.0
// The interpreter's operations of models that carry several residual streams: parts of a row, factors of columns and of
// rows, magnitudes, and the threshold of a row.
#include <algorithm>
#include <cmath>

#include "ops/reference/interpreter.h"
#include "ops/reference/math.h"

namespace nanomind::reference {
void Interpreter::apply(const op::Columns& o) {
  const std::vector<float>& x = value(o.x);
  std::vector<float>& out = value(o.out);
  const int64_t n = columns(o.out);
  for (int64_t i = 0; i < rows(o.x); ++i) std::copy_n(x.begin() + i * columns(o.x) + o.first, n, out.begin() + i * n);
}

void Interpreter::apply(const op::Join& o) {
  std::vector<float>& out = value(o.out);
  const int64_t width = columns(o.out);
  for (int64_t row = 0; row < rows(o.out); ++row) {
    auto to = out.begin() + row * width;
    for (const ValueId part : o.parts) to = std::copy_n(value(part).begin() + row * columns(part), columns(part), to);
  }
}

void Interpreter::apply(const op::ScaleColumns& o) {
  const std::vector<float>& x = value(o.x);
  const std::span<const float> factors = weight(o.weight);
  std::vector<float>& out = value(o.out);
  for (size_t i = 0; i < out.size(); ++i) out[i] = x[i] * factors[i % factors.size()];
}

void Interpreter::apply(const op::WeightedSum& o) {
  const std::vector<float>&base = value(o.base), &weights = value(o.weights);
  std::vector<float>& out = value(o.out);
  const auto n = static_cast<size_t>(columns(o.out)), factors = static_cast<size_t>(columns(o.weights));
  for (size_t i = 0; i < out.size(); ++i) {
    double sum = base[i];
    for (size_t j = 0; j < o.terms.size(); ++j) {
      const float factor = weights[i / n * factors + static_cast<size_t>(o.first) + j];
      sum += static_cast<double>(factor) * value(o.terms[j])[i];
    }
    out[i] = static_cast<float>(sum);
  }
}

void Interpreter::apply(const op::MatchMagnitude& o) {
  const std::span<const float> x = value(o.x), like = value(o.like);
  std::vector<float>& out = value(o.out);
  const auto n = static_cast<size_t>(columns(o.x)), m = static_cast<size_t>(columns(o.like));
  for (size_t row = 0; row < out.size() / n; ++row) {
    const double floored = std::max<double>(mean_square(x.subspan(row * n, n)), o.floor);
    const double factor = std::sqrt(mean_square(like.subspan(row * m, m)) / floored);
    for (size_t i = row * n; i < (row + 1) * n; ++i) out[i] = static_cast<float>(x[i] * factor);
  }
}

void Interpreter::apply(const op::AboveDeviation& o) {
  const std::vector<float>& x = value(o.x);
  std::vector<float>& out = value(o.out);
  const auto n = static_cast<size_t>(columns(o.x));
  for (size_t row = 0; row < x.size(); row += n) {
    const auto [mean, variance] = moments(std::span(x).subspan(row, n));
    const double threshold = mean + o.deviations * std::sqrt(variance);
    for (size_t c = 0; c < n; ++c) out[row + c] = static_cast<float>(std::max(0.0, x[row + c] - threshold));
  }
}

}  // namespace nanomind::reference
