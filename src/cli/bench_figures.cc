// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_figures.h"

#include <algorithm>

namespace nanomind {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Share share_of(const std::vector<double>& speeds, double unit, const std::vector<double>& limits) {
  if (speeds.empty() || limits.empty() || std::ranges::max(limits) <= 0) return {};
  return {.median = median(speeds) * unit / median(limits),
          .best = std::ranges::max(speeds) * unit / std::ranges::max(limits)};
}

}  // namespace nanomind
