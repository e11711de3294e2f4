// SPDX-License-Identifier: Apache-2.0
// Row by row: what models that carry several residual streams do besides (sums with factors of each row's own, equal
// magnitudes, parts of rows), and the threshold of a row.
#include <algorithm>
#include <cmath>

#include "device/cpu/for_rows.h"
#include "device/cpu/instructions.h"

namespace nanomind::cpu {
namespace {

// Summed in four parts, which keeps errors and waiting small.
template <typename F>
double sum(int64_t n, const F& term) {
  double sums[4] = {};
  int64_t c = 0;
  for (; c + 4 <= n; c += 4) {
    for (int64_t lane = 0; lane < 4; ++lane) sums[lane] += term(c + lane);
  }
  for (; c < n; ++c) sums[0] += term(c);
  return sums[0] + sums[1] + sums[2] + sums[3];
}

double mean_square(const Matrix& x, int64_t i) {
  const float* row = x.row(i);
  return sum(x.columns, [&](int64_t c) { return static_cast<double>(row[c]) * row[c]; }) /
         static_cast<double>(x.columns);
}

}  // namespace

void run(const ColumnsStep& s, StepContext& context) {
  for_rows(context, context.rows(s.x.rows),
           [&](int64_t i) { std::copy_n(s.x.row(i) + s.first, s.out.columns, s.out.row(i)); });
}

void run(const JoinStep& s, StepContext& context) {
  for_rows(context, context.rows(s.out.rows), [&](int64_t i) {
    float* to = s.out.row(i);
    for (const Matrix& part : s.parts) to = std::copy_n(part.row(i), part.columns, to);
  });
}

void run(const ScaleColumnsStep& s, StepContext& context) {
  for_rows(context, context.rows(s.x.rows), [&](int64_t i) {
    const float* x = s.x.row(i);
    float* out = s.out.row(i);
    for (int64_t c = 0; c < s.x.columns; ++c) out[c] = x[c] * s.weight[c];
  });
}

void run(const WeightedSumStep& s, StepContext& context) {
  for_rows(context, context.rows(s.out.rows), [&](int64_t i) {
    float* out = s.out.row(i);
    std::copy_n(s.base.row(i), s.out.columns, out);
    const float* factor = s.weights.row(i) + s.first;
    for (const Matrix& term : s.terms) {
      const float* x = term.row(i);
      for (int64_t c = 0; c < s.out.columns; ++c) out[c] += *factor * x[c];
      ++factor;
    }
  });
}

void run(const MatchMagnitudeStep& s, StepContext& context) {
  for_rows(context, context.rows(s.x.rows), [&](int64_t i) {
    const double floored = std::max<double>(mean_square(s.x, i), s.floor);
    const auto factor = static_cast<float>(std::sqrt(mean_square(s.like, i) / floored));
    const float* x = s.x.row(i);
    float* out = s.out.row(i);
    for (int64_t c = 0; c < s.x.columns; ++c) out[c] = x[c] * factor;
  });
}

void run(const AboveDeviationStep& s, StepContext& context) {
  for_rows(context, context.rows(s.x.rows), [&](int64_t i) {
    const float* x = s.x.row(i);
    const int64_t n = s.x.columns;
    const double mean = sum(n, [&](int64_t c) { return static_cast<double>(x[c]); }) / static_cast<double>(n);
    const double squares = sum(n, [&](int64_t c) { return (x[c] - mean) * (x[c] - mean); });
    const auto threshold = static_cast<float>(mean + s.deviations * std::sqrt(squares / static_cast<double>(n)));
    float* out = s.out.row(i);
    for (int64_t c = 0; c < n; ++c) out[c] = std::max(0.0F, x[c] - threshold);
  });
}

}  // namespace nanomind::cpu
