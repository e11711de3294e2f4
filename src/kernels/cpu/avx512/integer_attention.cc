// SPDX-License-Identifier: Apache-2.0
// Lanes are query rows: 32 of them, two vectors, meet keys and values that are broadcast, so the softmax needs no sums
// across lanes. Keys are taken 128 at a time; their scores, the bytes of their weights and the results stay in L1.
#include "kernels/cpu/avx512/dot.h"
#include "kernels/cpu/avx512/vectors.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx512 {
namespace {

constexpr int kVectors = kIntegerQueries / 16;
constexpr int kBlockKeys = 128;
constexpr int kTile = 12;  // keys, or columns of values: 24 sums

constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kNothing = -__builtin_inff();
constexpr float kLeastExponent = -126;        // of 2^x: what is below counts as nothing
constexpr float kByteExponent = 7.99435344f;  // log2(255)

[[gnu::always_inline]] inline __m512i broadcast_four_bytes(const void* bytes) {
  int32_t dword;
  __builtin_memcpy(&dword, bytes, sizeof dword);
  return _mm512_set1_epi32(dword);
}

// 2^x for -126 <= x <= 127, relative error below 8e-5: a cubic for the fraction (fitted for the least greatest error).
[[gnu::always_inline]] inline __m512 exp2_roughly(__m512 x) {
  const __m512 fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(0.0780245117f);
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(0.226067171f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(0.695833535f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(0.999925219f));
  return _mm512_scalef_ps(p, x);
}
// The operand that may be no number (infinity less itself) comes first: the maximum is then the other.
[[gnu::always_inline]] inline __m512 at_least(__m512 x, float least) { return _mm512_max_ps(x, _mm512_set1_ps(least)); }

// The largest code of which d products fit into an int32.
float largest_code(int d) { return __builtin_floorf(__builtin_sqrtf(2147483647.0f / static_cast<float>(d))) - 1; }

[[gnu::always_inline]] inline float largest(const float* x, int n) {
  __m512 most = _mm512_setzero_ps();
  for (int c = 0; c < n; c += 16) most = _mm512_max_ps(most, _mm512_abs_ps(load_floats(first_lanes(n - c), x + c)));
  return _mm512_reduce_max_ps(most);
}

// Returns the scale of the codes.
[[gnu::always_inline]] inline float code_row(const float* x, int d, float limit, int16_t* codes) {
  const float most = largest(x, d);
  const __m512 inverse = _mm512_set1_ps(most > 0 ? limit / most : 0.0f);
  for (int c = 0; c < d; c += 16) {
    const __mmask16 lanes = first_lanes(d - c);
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(load_floats(lanes, x + c), inverse));
    _mm256_mask_storeu_epi16(codes + c, lanes, _mm512_cvtsepi32_epi16(rounded));
  }
  return most / limit;
}

void code_keys(const float* k, int64_t stride, int64_t tokens, int d, const IntegerKeys& out) {
  const float limit = largest_code(d);
  for (int64_t i = 0; i < integer_tokens(tokens); ++i) {
    if (i < tokens) {
      out.key_scales[i] = code_row(k + i * stride, d, limit, out.keys + i * d);
    } else {
      out.key_scales[i] = 0;
      __builtin_memset(out.keys + i * d, 0, static_cast<size_t>(d) * sizeof(int16_t));
    }
  }
}

void code_values(const float* v, int64_t stride, int64_t tokens, int d, const IntegerKeys& out) {
  for (int c = 0; c < d; c += 16) {
    const __mmask16 lanes = first_lanes(d - c);
    __m512 most = _mm512_setzero_ps();
    for (int64_t i = 0; i < tokens; ++i)
      most = _mm512_max_ps(most, _mm512_abs_ps(load_floats(lanes, v + i * stride + c)));
    const __mmask16 some = _mm512_cmp_ps_mask(most, _mm512_setzero_ps(), _CMP_GT_OQ);
    const __m512 inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(127.0f), most);
    _mm512_mask_storeu_ps(out.value_scales + c, lanes, _mm512_mul_ps(most, _mm512_set1_ps(1.0f / 127)));
    for (int64_t i = 0; i < integer_tokens(tokens); i += 4) {
      __m512i fours = _mm512_setzero_si512();
      each<4>([&] [[gnu::always_inline]] (auto j) {
        if (i + j >= tokens) return;
        const __m512 x = _mm512_mul_ps(load_floats(lanes, v + (i + j) * stride + c), inverse);
        const __m512i code = _mm512_and_si512(_mm512_cvtps_epi32(x), _mm512_set1_epi32(0xFF));
        fours = _mm512_or_si512(fours, _mm512_slli_epi32(code, 8 * j));
      });
      _mm512_mask_storeu_epi32(out.values + (i / 4 * d + c) * 4, lanes, fours);
    }
  }
}

// What rows have gathered from blocks of keys so far: out / sum, in codes of values, would be the result.
struct Gathered {
  __m512 max[kVectors];  // of scores, in units of scale[]
  __m512 sum[kVectors];
  alignas(64) float out[kIntegerHeadDim][kIntegerQueries];
};

struct Queries {
  alignas(64) int32_t pairs[kIntegerHeadDim / 2][kIntegerQueries];  // of columns
  __m512 scale[kVectors];                                           // of a product with a key, for powers of two
  __m512i first[kVectors], end[kVectors];                           // keys seen
};

void code_queries(const IntegerAttentionArgs& a, Queries& q) {
  alignas(64) float scales[kIntegerQueries] = {};
  alignas(64) int32_t first[kIntegerQueries] = {}, end[kIntegerQueries] = {};
  alignas(64) int16_t codes[kIntegerHeadDim];
  for (int i = 0; i < kIntegerQueries; ++i) {
    const int row = i < a.rows ? i : a.rows - 1;  // lanes that are left over repeat the last
    scales[i] = code_row(a.q + row * a.q_stride, a.d, largest_code(a.d), codes) * a.scale * kLog2E;
    for (int c = 0; c < a.d / 2; ++c) __builtin_memcpy(&q.pairs[c][i], codes + 2 * c, sizeof(int32_t));
    first[i] = a.first_key[row];
    end[i] = a.end_key[row];
  }
  for (int v = 0; v < kVectors; ++v) {
    q.scale[v] = _mm512_load_ps(scales + 16 * v);
    q.first[v] = _mm512_load_si512(first + 16 * v);
    q.end[v] = _mm512_load_si512(end + 16 * v);
  }
}

// Scores of a block of keys, of which the maximum of each row is taken.
struct Scores {
  alignas(64) float of[kBlockKeys][kIntegerQueries];
  __m512 max[kVectors];
};

template <int kKeys>
[[gnu::noinline]] void score_tile(const Queries& q, const IntegerAttentionArgs& a, int64_t key, float* scores) {
  __m512i sum[kKeys][kVectors];
  each<kKeys>([&] [[gnu::always_inline]] (auto k) {
    each<kVectors>([&] [[gnu::always_inline]] (auto v) { sum[k][v] = _mm512_setzero_si512(); });
  });
  const int16_t* keys = a.kv.keys + key * a.d;
  for (int c = 0; c < a.d / 2; ++c) {
    __m512i pairs[kVectors];
    each<kVectors>([&] [[gnu::always_inline]] (auto v) { pairs[v] = _mm512_load_si512(q.pairs[c] + 16 * v); });
    each<kKeys>([&] [[gnu::always_inline]] (auto k) {
      const __m512i x = broadcast_four_bytes(keys + k * a.d + 2 * c);
      each<kVectors>([&] [[gnu::always_inline]] (auto v) { add_pairs(sum[k][v], pairs[v], x); });
    });
  }
  each<kKeys>([&] [[gnu::always_inline]] (auto k) {
    const __m512 scale = _mm512_set1_ps(a.kv.key_scales[key + k]);
    each<kVectors>([&] [[gnu::always_inline]] (auto v) {
      _mm512_store_ps(scores + k * kIntegerQueries + 16 * v, _mm512_mul_ps(_mm512_cvtepi32_ps(sum[k][v]), scale));
    });
  });
}

// Of keys [key, key + count); `partly`: some row does not see all of them.
void score(const Queries& q, const IntegerAttentionArgs& a, int64_t key, int count, bool partly, Scores& s) {
  int k = 0;
  for (; k + kTile <= count; k += kTile) score_tile<kTile>(q, a, key + k, s.of[k]);
  for (; k < count; k += 4) score_tile<4>(q, a, key + k, s.of[k]);
  each<kVectors>([&] [[gnu::always_inline]] (auto v) { s.max[v] = _mm512_set1_ps(kNothing); });
  for (int j = 0; j < count; ++j) {
    each<kVectors>([&] [[gnu::always_inline]] (auto v) {
      float* row = s.of[j] + 16 * v;
      __m512 x = _mm512_load_ps(row);
      if (partly) {
        const __m512i at = _mm512_set1_epi32(static_cast<int>(key + j));
        const __mmask16 seen = _mm512_cmpge_epi32_mask(at, q.first[v]) & _mm512_cmplt_epi32_mask(at, q.end[v]);
        x = _mm512_mask_mov_ps(_mm512_set1_ps(kNothing), seen, x);
        _mm512_store_ps(row, x);
      }
      s.max[v] = _mm512_max_ps(s.max[v], x);
    });
  }
}

struct Weights {
  alignas(64) int32_t fours[kBlockKeys / 4][kIntegerQueries];  // bytes of four keys
  __m512 sum[kVectors];
};

// Weights of a block, the largest of a row being 255.
void weigh(const Queries& q, const Scores& s, int count, Weights& w) {
  __m512 top[kVectors];
  __m512i sum[kVectors];
  each<kVectors>([&] [[gnu::always_inline]] (auto v) {
    const __mmask16 some = _mm512_cmp_ps_mask(s.max[v], _mm512_set1_ps(kNothing), _CMP_NEQ_UQ);
    const __m512 max = _mm512_maskz_mov_ps(some, s.max[v]);
    top[v] = _mm512_fmsub_ps(max, q.scale[v], _mm512_set1_ps(kByteExponent));
    sum[v] = _mm512_setzero_si512();
  });
  for (int j = 0; j < count; j += 4) {
    each<kVectors>([&] [[gnu::always_inline]] (auto v) {
      __m512i code[4];
      each<4>([&] [[gnu::always_inline]] (auto i) {
        const __m512 x = _mm512_fmsub_ps(_mm512_load_ps(s.of[j + i] + 16 * v), q.scale[v], top[v]);
        code[i] = _mm512_cvtps_epi32(exp2_roughly(at_least(x, kLeastExponent)));
      });
      const __m512i low = _mm512_or_si512(code[0], _mm512_slli_epi32(code[1], 8));
      const __m512i high = _mm512_or_si512(code[2], _mm512_slli_epi32(code[3], 8));
      const __m512i fours = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
      _mm512_store_si512(w.fours[j / 4] + 16 * v, fours);
      add_quads(sum[v], fours, _mm512_set1_epi8(1));
    });
  }
  each<kVectors>([&] [[gnu::always_inline]] (auto v) { w.sum[v] = _mm512_cvtepi32_ps(sum[v]); });
}

template <int kColumns>
[[gnu::noinline]] void add_tile(const Weights& w, const int8_t* values, int d, int fours, const __m512 (&old)[kVectors],
                                const __m512 (&add)[kVectors], float* out) {
  __m512i sum[kColumns][kVectors];
  each<kColumns>([&] [[gnu::always_inline]] (auto c) {
    each<kVectors>([&] [[gnu::always_inline]] (auto v) { sum[c][v] = _mm512_setzero_si512(); });
  });
  for (int j = 0; j < fours; ++j, values += 4 * d) {
    __m512i weights[kVectors];
    each<kVectors>([&] [[gnu::always_inline]] (auto v) { weights[v] = _mm512_load_si512(w.fours[j] + 16 * v); });
    each<kColumns>([&] [[gnu::always_inline]] (auto c) {
      const __m512i x = broadcast_four_bytes(values + 4 * c);
      each<kVectors>([&] [[gnu::always_inline]] (auto v) { add_quads(sum[c][v], weights[v], x); });
    });
  }
  each<kColumns>([&] [[gnu::always_inline]] (auto c) {
    each<kVectors>([&] [[gnu::always_inline]] (auto v) {
      float* row = out + c * kIntegerQueries + 16 * v;
      const __m512 added = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[c][v]), add[v]);
      _mm512_store_ps(row, _mm512_fmadd_ps(_mm512_load_ps(row), old[v], added));
    });
  });
}

void add_block(const Queries& q, const IntegerAttentionArgs& a, const Scores& s, const Weights& w, int64_t key,
               int count, Gathered& g) {
  __m512 old[kVectors], add[kVectors];
  each<kVectors>([&] [[gnu::always_inline]] (auto v) {
    const __m512 max = _mm512_max_ps(g.max[v], s.max[v]);
    const auto factor = [&] [[gnu::always_inline]] (__m512 of) {
      const __m512 exponent = at_least(_mm512_mul_ps(_mm512_sub_ps(of, max), q.scale[v]), kLeastExponent);
      return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(of, _mm512_set1_ps(kNothing), _CMP_NEQ_UQ), exp2_roughly(exponent));
    };
    old[v] = factor(g.max[v]);
    add[v] = factor(s.max[v]);
    g.max[v] = max;
    g.sum[v] = _mm512_fmadd_ps(g.sum[v], old[v], _mm512_mul_ps(w.sum[v], add[v]));
  });
  const int8_t* values = a.kv.values + key * a.d;
  int c = 0;
  for (; c + kTile <= a.d; c += kTile) add_tile<kTile>(w, values + 4 * c, a.d, count / 4, old, add, g.out[c]);
  for (; c < a.d; c += 4) add_tile<4>(w, values + 4 * c, a.d, count / 4, old, add, g.out[c]);
}

void finish(const IntegerAttentionArgs& a, const Gathered& g) {
  alignas(64) float inverse[kIntegerQueries];
  for (int v = 0; v < kVectors; ++v) _mm512_store_ps(inverse + 16 * v, _mm512_div_ps(_mm512_set1_ps(1.0f), g.sum[v]));
  const __m512i across = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                            _mm512_set1_epi32(kIntegerQueries));
  for (int i = 0; i < a.rows; ++i) {
    for (int c = 0; c < a.d; c += 16) {
      const __mmask16 lanes = first_lanes(a.d - c);
      const __m512 sums = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), lanes, across, g.out[c] + i, sizeof(float));
      const __m512 scale = _mm512_mul_ps(load_floats(lanes, a.kv.value_scales + c), _mm512_set1_ps(inverse[i]));
      _mm512_mask_storeu_ps(a.out + i * a.out_stride + c, lanes, _mm512_mul_ps(sums, scale));
    }
  }
}

void attend(const IntegerAttentionArgs& a) {
  Queries q;
  Scores s;
  Weights w;
  Gathered g;
  code_queries(a, q);
  for (int v = 0; v < kVectors; ++v) {
    g.max[v] = _mm512_set1_ps(kNothing);
    g.sum[v] = _mm512_setzero_ps();
  }
  for (int c = 0; c < a.d; ++c) {
    for (int v = 0; v < kVectors; ++v) _mm512_store_ps(g.out[c] + 16 * v, _mm512_setzero_ps());
  }
  int32_t first = a.first_key[0], end = a.end_key[0], common_first = first, common_end = end;
  for (int i = 1; i < a.rows; ++i) {
    first = a.first_key[i] < first ? a.first_key[i] : first;
    end = a.end_key[i] > end ? a.end_key[i] : end;
    common_first = a.first_key[i] > common_first ? a.first_key[i] : common_first;
    common_end = a.end_key[i] < common_end ? a.end_key[i] : common_end;
  }
  for (int64_t key = first / 4 * 4; key < end; key += kBlockKeys) {
    const auto count = static_cast<int>(integer_tokens(end - key < kBlockKeys ? end - key : kBlockKeys));
    score(q, a, key, count, key < common_first || key + count > common_end, s);
    weigh(q, s, count, w);
    add_block(q, a, s, w, key, count, g);
  }
  finish(a, g);
}

}  // namespace

void install_integer_attention(KernelTable& table) {
  table.integer_attention = {.code_keys = code_keys, .code_values = code_values, .attend = attend};
}

}  // namespace nanomind::avx512
