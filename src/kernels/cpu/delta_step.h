// SPDX-License-Identifier: Apache-2.0
// One token of the gated delta rule, in plain loops over rows of the state: each ISA folder includes this and its
// compiler makes vectors of them. Internal linkage, like everything in an ISA folder.
#pragma once

#include <cstdint>

namespace nanomind {
namespace {

void delta_step(float* __restrict state, const float* __restrict q, const float* __restrict k,
                const float* __restrict v, int key_dim, int value_dim, float decay, float beta, float* __restrict out) {
  for (int j = 0; j < value_dim; ++j) out[j] = 0;
  for (int i = 0; i < key_dim; ++i) {  // out: what the decayed state recalls for k
    float* row = state + static_cast<int64_t>(i) * value_dim;
    const float key = k[i];
    for (int j = 0; j < value_dim; ++j) {
      row[j] *= decay;
      out[j] += key * row[j];
    }
  }
  float delta[512];
  for (int j = 0; j < value_dim; ++j) {
    delta[j] = beta * (v[j] - out[j]);
    out[j] = 0;
  }
  for (int i = 0; i < key_dim; ++i) {
    float* row = state + static_cast<int64_t>(i) * value_dim;
    const float key = k[i], query = q[i];
    for (int j = 0; j < value_dim; ++j) {
      row[j] += key * delta[j];
      out[j] += query * row[j];
    }
  }
}

}  // namespace
}  // namespace nanomind
