// SPDX-License-Identifier: Apache-2.0
// Portable attention: scores, running softmax and weighted values of one block of keys.
#include "kernels/cpu/install.h"
#include "tensor/half.h"

namespace nanomind::scalar {
namespace {

float widen(uint16_t half) { return float_from_half(half); }
float widen(float x) { return x; }

template <typename T>
void qk(const float* q, int64_t q_stride, int m, const T* k, int d, float* scores) {
  for (int i = 0; i < m; ++i) {
    float* row = scores + i * kKvBlock;
    for (int j = 0; j < kKvBlock; ++j) row[j] = 0;
    for (int c = 0; c < d; ++c) {
      const float x = q[i * q_stride + c];
      for (int j = 0; j < kKvBlock; ++j) row[j] += x * widen(k[c * kKvBlock + j]);
    }
  }
}

float softmax_block(float* scores, int first, int last, float scale, float* max, float* sum) {
  const float old_max = *max;
  float new_max = old_max;
  for (int j = first; j < last; ++j) {
    scores[j] *= scale;
    new_max = scores[j] > new_max ? scores[j] : new_max;
  }
  float total = 0;
  for (int j = 0; j < kKvBlock; ++j) {
    scores[j] = j < first || j >= last ? 0.0f : __builtin_expf(scores[j] - new_max);
    total += scores[j];
  }
  const float correction = __builtin_expf(old_max - new_max);
  *max = new_max;
  *sum = *sum * correction + total;
  return correction;
}

template <typename T>
void pv(const float* p, int m, const T* v, int first, int last, int d, const float* correction, float* out,
        int64_t out_stride) {
  for (int i = 0; i < m; ++i) {
    float* row = out + i * out_stride;
    for (int c = 0; c < d; ++c) row[c] = correction[i] == 0 ? 0.0f : row[c] * correction[i];
    for (int j = first; j < last; ++j) {
      const float weight = p[i * kKvBlock + j];
      for (int c = 0; c < d; ++c) row[c] += weight * widen(v[j * d + c]);
    }
  }
}

}  // namespace

void install_attention(KernelTable& table) {
  table.qk = qk<uint16_t>;
  table.qk_float = qk<float>;
  table.softmax_block = softmax_block;
  table.pv = pv<uint16_t>;
  table.pv_float = pv<float>;
}

}  // namespace nanomind::scalar
