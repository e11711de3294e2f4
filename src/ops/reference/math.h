// SPDX-License-Identifier: Apache-2.0
// The operations in double precision, one loop each, for the tests of every fast path. Matrices are row-major and
// dense.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ops/program.h"

namespace nanomind::reference {

// out[M, N] = x[M, C] * w[N, C]^T.
void matmul(std::span<const float> x, std::span<const float> w, int64_t rows, int64_t columns, int64_t inputs,
            std::span<float> out);

double mean_square(std::span<const float> row);
struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(std::span<const float> row);

// out = x / sqrt(mean(x^2) + eps) * weight, over one row.
void rms_norm(std::span<const float> x, std::span<const float> weight, double eps, std::span<float> out);

// x * sigmoid(x), and tanh-approximated GELU.
double silu(double x);
double gelu_tanh(double x);
double activate(Activation activation, double x);
double sigmoid(double x);

// cap * tanh(x / cap); x itself where cap is 0.
double capped(double x, double cap);

// The experts of one row of router logits and their weights, as op::Experts says; `bias` may be empty.
std::vector<std::pair<size_t, double>> route(std::span<const float> logits, std::span<const float> bias,
                                             const Routing& routing);

// In place over one row; entries of minus infinity become 0.
void softmax(std::span<double> row);

// Rotates pairs (x[i], x[i + half]) of the first 2 * half elements by angles[i] ("half-split" pairing), or pairs
// (x[2i], x[2i + 1]) ("adjacent" pairing), and multiplies them by `magnitude`.
enum class RopePairing { halves, adjacent };
void rope(std::span<float> head, std::span<const double> angles, RopePairing pairing, double magnitude = 1.0);

// Causal attention of one query head: q[D] against keys[n, D] and values[n, D]; out[D] = softmax(scale * q K^T) V over
// the keys first..n-1, scaled scores capped.
void attention(std::span<const float> q, std::span<const float> keys, std::span<const float> values, int64_t first,
               double scale, double cap, std::span<float> out);

}  // namespace nanomind::reference
