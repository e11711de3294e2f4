// SPDX-License-Identifier: Apache-2.0
// Attention of many rows over keys that are all at hand before the first query comes, as in towers that see. Keys and
// queries are codes of 16 bits, weights and values codes of 8, so both products are sums of integers. The softmax runs
// along blocks of keys (Flash-Attention, arXiv 2205.14135); a weight is coded by the largest of its row and block, so
// that nothing depends on the order of blocks but rounding.
#pragma once

#include <cstdint>

namespace nanomind {

// Of one call.
inline constexpr int kIntegerQueries = 32;

// Most columns of a head.
inline constexpr int kIntegerHeadDim = 128;

// Tokens are padded to fours, as values are kept.
inline constexpr int64_t integer_tokens(int64_t tokens) { return (tokens + 3) / 4 * 4; }

// One head's keys and values, coded; d is a multiple of 8 up to kIntegerHeadDim.
struct IntegerKeys {
  int16_t* keys;        // [tokens, d], sums of d products of them fit into an int32
  float* key_scales;    // [tokens]
  int8_t* values;       // [tokens / 4, d, 4]
  float* value_scales;  // [d]
};

struct IntegerAttentionArgs {
  IntegerKeys kv;
  int d;
  const float* q;  // [rows, d]
  int64_t q_stride;
  int rows;                            // 1..kIntegerQueries
  const int32_t *first_key, *end_key;  // [rows]: the keys that a row sees, at least one
  float scale;                         // of scores, above 0
  float* out;                          // [rows, d]
  int64_t out_stride;
};

// All null where an ISA has nothing better than floats.
struct IntegerAttention {
  // Codes rows of floats: all `tokens` of a head, with padding.
  void (*code_keys)(const float* k, int64_t stride, int64_t tokens, int d, const IntegerKeys& out);
  void (*code_values)(const float* v, int64_t stride, int64_t tokens, int d, const IntegerKeys& out);

  // out[i] = sum over j of softmax_j(scale * q[i] . k[j]) * v[j]. With normal operands results are within 1.6e-2 of
  // their root mean square (root mean square of the difference): values and weights are rounded to bytes.
  void (*attend)(const IntegerAttentionArgs& args);
};

}  // namespace nanomind
