// SPDX-License-Identifier: Apache-2.0
// The interpreter's operations that keep a state of the sequence: short convolution and the gated delta rule, token by
// token in double precision.
#include <algorithm>
#include <cmath>

#include "ops/reference/interpreter.h"
#include "ops/reference/math.h"

namespace nanomind::reference {
namespace {

double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

// x / sqrt(sum of squares + eps)
std::vector<double> unit(std::span<const float> x, double eps) {
  double squares = eps;
  for (const float v : x) squares += static_cast<double>(v) * v;
  std::vector<double> out(x.begin(), x.end());
  for (double& v : out) v /= std::sqrt(squares);
  return out;
}

}  // namespace

void Interpreter::apply(const op::SplitHeads& o) {
  const std::vector<float>& x = value(o.x);
  std::vector<float>&first = value(o.first), &second = value(o.second);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto width = static_cast<size_t>(o.width);
    const size_t run = i / (2 * width), within = i % (2 * width);
    (within < width ? first : second)[run * width + within % width] = x[i];
  }
}

void Interpreter::apply(const op::ShortConv& o) {
  const int64_t n = columns(o.x);
  const std::vector<float>& weight = weights_[static_cast<size_t>(o.weight)];
  std::vector<float>& state = states_[static_cast<size_t>(o.state)];
  std::vector<float> all(state);  // [taps - 1 + T, C]
  all.insert(all.end(), value(o.x).begin(), value(o.x).end());
  std::vector<float>& out = value(o.out);
  for (int64_t t = 0; t < rows(o.x); ++t) {
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < o.taps; ++j) {
        sum += static_cast<double>(weight[static_cast<size_t>(c * o.taps + j)]) *
               all[static_cast<size_t>((t + j) * n + c)];
      }
      out[static_cast<size_t>(t * n + c)] = static_cast<float>(activate(o.activation, sum));
    }
  }
  state.assign(all.end() - static_cast<int64_t>(state.size()), all.end());
}

void Interpreter::apply(const op::DeltaRule& o) {
  const int64_t dk = o.key_dim, dv = o.value_dim, keys = o.key_heads * dk;
  const std::span<const float> x = value(o.x);
  std::vector<float>& out = value(o.out);
  std::vector<float>& states = states_[static_cast<size_t>(o.state)];
  for (int64_t t = 0; t < rows(o.x); ++t) {
    const auto row = x.subspan(static_cast<size_t>(t * columns(o.x)), static_cast<size_t>(columns(o.x)));
    for (int64_t h = 0; h < o.value_heads; ++h) {
      const auto head = static_cast<size_t>(h), at = static_cast<size_t>(t * o.value_heads + h);
      const auto k_at = static_cast<size_t>(h % o.key_heads * dk), width = static_cast<size_t>(dk);
      const std::vector<double> q = unit(row.subspan(k_at, width), o.eps);
      const std::vector<double> k = unit(row.subspan(static_cast<size_t>(keys) + k_at, width), o.eps);
      const auto v = row.subspan(static_cast<size_t>(2 * keys + h * dv), static_cast<size_t>(dv));
      const double g = weights_[static_cast<size_t>(o.decay)][head] *
                       softplus(value(o.alpha)[at] + weights_[static_cast<size_t>(o.bias)][head]);
      const double beta = sigmoid(value(o.beta)[at]);
      float* state = states.data() + h * dk * dv;
      for (int64_t j = 0; j < dv; ++j) {
        double recalled = 0, result = 0;
        for (int64_t i = 0; i < dk; ++i) recalled += std::exp(g) * state[i * dv + j] * k[static_cast<size_t>(i)];
        const double delta = beta * (v[static_cast<size_t>(j)] - recalled);
        for (int64_t i = 0; i < dk; ++i) {
          const double s = std::exp(g) * state[i * dv + j] + k[static_cast<size_t>(i)] * delta;
          state[i * dv + j] = static_cast<float>(s);
          result += s * q[static_cast<size_t>(i)] / std::sqrt(static_cast<double>(dk));
        }
        out[at * static_cast<size_t>(dv) + static_cast<size_t>(j)] = static_cast<float>(result);
      }
    }
  }
}

}  // namespace nanomind::reference
