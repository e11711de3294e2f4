// SPDX-License-Identifier: Apache-2.0
// What benchmarks say of repeated measurements.
#pragma once

#include <vector>

namespace nanomind {

// Of none: 0.
double median(std::vector<double> values);

// A speed as a share of its limit: medians of both, and the best of both.
struct Share {
  double median = 0, best = 0;
};
// `unit` turns `speeds` into the unit of `limits`; more is better in both.
Share share_of(const std::vector<double>& speeds, double unit, const std::vector<double>& limits);

}  // namespace nanomind
