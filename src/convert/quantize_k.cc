// SPDX-License-Identifier: Apache-2.0
#include "convert/quantize_k.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "convert/scale_search.h"
#include "convert/super_search.h"
#include "tensor/half.h"

namespace nanomind {
namespace {

constexpr int kMostSubs = 16;

// --- x = d * sc[s] * q - dmin * mn[s], q from 0 to high, sc and mn from 0 to most ---

struct OffsetKind {
  int subs = 0, width = 0;  // sub-blocks, and elements of each
  int high = 0, most = 0;
};

struct OffsetSuper {
  float d = 0, dmin = 0;
  std::array<uint8_t, kMostSubs> sc{}, mn{};
  std::array<uint8_t, kSuperBlock> codes{};
  double error = std::numeric_limits<double>::infinity();
};

class OffsetQuantizer {
 public:
  OffsetQuantizer(const float* x, OffsetKind kind)
      : x_(x), importance_(importance_by_size({x, kSuperBlock})), kind_(kind) {
    for (int s = 0; s < kind.subs; ++s) {
      const OffsetFit fit = fit_offset(sub(s), kind.high, Offset::not_positive, false, codes(scratch_, s));
      scales_[s] = std::max(fit.d, 0.0F);
      offsets_[s] = -std::min(fit.m, 0.0F);
    }
  }

  OffsetSuper run() {
    const float scale = *std::ranges::max_element(scales_), offset = *std::ranges::max_element(offsets_);
    const auto most = static_cast<float>(kind_.most);
    OffsetSuper best;
    for (const float share : kSuperShares) {
      OffsetSuper tried{.d = as_half(share * scale / most), .dmin = as_half(share * offset / most)};
      for (int s = 0; s < kind_.subs; ++s) {
        tried.sc[s] = small(scales_[s], tried.d);
        tried.mn[s] = small(offsets_[s], tried.dmin);
      }
      improve(*this, tried, best);
    }
    return best;
  }

  // The best small scale and offset of every sub-block near those that it has.
  void choose_small(OffsetSuper& t) {
    t.error = 0;
    for (int s = 0; s < kind_.subs; ++s) {
      double least = std::numeric_limits<double>::infinity();
      const int sc = t.sc[s], mn = t.mn[s];
      for (int a = std::max(0, sc - 1); a <= std::min(kind_.most, sc + 1); ++a) {
        for (int b = std::max(0, mn - 1); b <= std::min(kind_.most, mn + 1); ++b) {
          const float d = t.d * static_cast<float>(a), m = -(t.dmin * static_cast<float>(b));
          const double error = nearest_offset(sub(s), d, m, kind_.high, codes(scratch_, s));
          if (error >= least) continue;
          least = error;
          t.sc[s] = static_cast<uint8_t>(a);
          t.mn[s] = static_cast<uint8_t>(b);
          std::ranges::copy(codes(scratch_, s), codes(t.codes, s).begin());
        }
      }
      t.error += least;
    }
  }

  // The halves that fit the codes and small scales best; false where they stay.
  bool refit(OffsetSuper& t) const {
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;  // x ~ d * a + dmin * b
    for (int i = 0; i < kSuperBlock; ++i) {
      const int s = i / kind_.width;
      const double a = static_cast<double>(t.sc[s]) * t.codes[i], b = -static_cast<double>(t.mn[s]);
      const double weight = importance_.of(x_[i]);
      aa += weight * a * a, ab += weight * a * b, bb += weight * b * b;
      ax += weight * a * x_[i], bx += weight * b * x_[i];
    }
    const double determinant = aa * bb - ab * ab;
    double d = t.d, dmin = t.dmin;
    if (determinant > 1e-9 * aa * bb) {
      d = (ax * bb - bx * ab) / determinant;
      dmin = (bx * aa - ax * ab) / determinant;
    } else if (aa > 0) {
      d = (ax - ab * dmin) / aa;
    }
    if (!(d >= 0) || !(dmin >= 0)) return false;
    const float new_d = as_half(static_cast<float>(d)), new_dmin = as_half(static_cast<float>(dmin));
    if (new_d == t.d && new_dmin == t.dmin) return false;
    t.d = new_d;
    t.dmin = new_dmin;
    return true;
  }

 private:
  Numbers sub(int s) const { return {{x_ + s * kind_.width, static_cast<size_t>(kind_.width)}, importance_}; }
  std::span<uint8_t> codes(std::array<uint8_t, kSuperBlock>& all, int s) const {
    return std::span(all).subspan(static_cast<size_t>(s) * static_cast<size_t>(kind_.width),
                                  static_cast<size_t>(kind_.width));
  }
  uint8_t small(float value, float unit) const {
    if (unit == 0) return 0;
    return static_cast<uint8_t>(std::clamp(std::lround(value / unit), 0L, static_cast<long>(kind_.most)));
  }

  const float* x_;
  Importance importance_;
  OffsetKind kind_;
  std::array<float, kMostSubs> scales_{}, offsets_{};
  std::array<uint8_t, kSuperBlock> scratch_{};
};

// --- x = d * sc[s] * q, q of a range ---

// Codes of one range, in sub-blocks of 16.
struct RangeCodes {
  static constexpr int kSubs = 16, kWidth = 16;
  CodeRange range;

  float scale(const Numbers& x, std::span<int8_t> codes) const { return fit_symmetric(x, range, 10, codes).d; }
  double nearest(const Numbers& x, float d, std::span<int8_t> codes) const {
    return nearest_symmetric(x, d, range, codes);
  }
};

SymmetricSuper<RangeCodes> fit_range(const float* x, CodeRange codes, CodeRange scales) {
  return SymmetricQuantizer<RangeCodes>(x, {codes}, scales).run();
}

// --- how the results lie in blocks (tensor/block.h) ---

void put_six_bits(const OffsetSuper& t, uint8_t* out) {
  for (int s = 0; s < 4; ++s) {
    out[s] = static_cast<uint8_t>(t.sc[s] | (t.sc[s + 4] >> 4) << 6);
    out[s + 4] = static_cast<uint8_t>(t.mn[s] | (t.mn[s + 4] >> 4) << 6);
    out[s + 8] = static_cast<uint8_t>((t.sc[s + 4] & 15) | (t.mn[s + 4] & 15) << 4);
  }
}

void put_nibbles(const std::array<uint8_t, kSuperBlock>& codes, uint8_t* qs) {
  for (int s = 0; s < 8; s += 2) {
    for (int j = 0; j < 32; ++j)
      qs[16 * s + j] = static_cast<uint8_t>((codes[32 * s + j] & 15) | (codes[32 * s + 32 + j] & 15) << 4);
  }
}

// Place and shift of the two bits of element i, in halves of 128.
struct TwoBits {
  int place, shift;
};
TwoBits two_bits(int i) { return {32 * (i / 128) + i % 32, 2 * (i % 128 / 32)}; }

}  // namespace

void quantize(const float* x, BlockQ2_K& block) {
  const OffsetSuper t = OffsetQuantizer(x, {.subs = 16, .width = 16, .high = 3, .most = 15}).run();
  block = {};
  block.d = half_from_float(t.d);
  block.dmin = half_from_float(t.dmin);
  for (int s = 0; s < 16; ++s) block.scales[s] = static_cast<uint8_t>(t.sc[s] | t.mn[s] << 4);
  for (int i = 0; i < kSuperBlock; ++i) {
    const auto [place, shift] = two_bits(i);
    block.qs[place] |= static_cast<uint8_t>(t.codes[i] << shift);
  }
}

void quantize(const float* x, BlockQ3_K& block) {
  const auto t = fit_range(x, {-4, 3}, {-32, 31});
  block = {};
  block.d = half_from_float(t.d);
  for (int s = 0; s < 16; ++s) {
    const int sc = t.sc[s] + 32;
    block.scales[s % 8] |= static_cast<uint8_t>((sc & 15) << (4 * (s / 8)));
    block.scales[8 + s % 4] |= static_cast<uint8_t>((sc >> 4) << (2 * (s / 4)));
  }
  for (int i = 0; i < kSuperBlock; ++i) {
    const auto [place, shift] = two_bits(i);
    const int code = t.codes[i] + 4;
    block.qs[place] |= static_cast<uint8_t>((code & 3) << shift);
    block.hmask[i % 32] |= static_cast<uint8_t>((code >> 2) << (i / 32));
  }
}

void quantize(const float* x, BlockQ4_K& block) {
  const OffsetSuper t = OffsetQuantizer(x, {.subs = 8, .width = 32, .high = 15, .most = 63}).run();
  block.d = half_from_float(t.d);
  block.dmin = half_from_float(t.dmin);
  put_six_bits(t, block.scales);
  put_nibbles(t.codes, block.qs);
}

void quantize(const float* x, BlockQ5_K& block) {
  const OffsetSuper t = OffsetQuantizer(x, {.subs = 8, .width = 32, .high = 31, .most = 63}).run();
  block.d = half_from_float(t.d);
  block.dmin = half_from_float(t.dmin);
  put_six_bits(t, block.scales);
  put_nibbles(t.codes, block.qs);
  std::ranges::fill(block.qh, uint8_t{0});
  for (int i = 0; i < kSuperBlock; ++i) block.qh[i % 32] |= static_cast<uint8_t>((t.codes[i] >> 4) << (i / 32));
}

void quantize(const float* x, BlockQ6_K& block) {
  const auto t = fit_range(x, {-32, 31}, {-128, 127});
  block = {};
  block.d = half_from_float(t.d);
  for (int s = 0; s < 16; ++s) block.scales[s] = static_cast<int8_t>(t.sc[s]);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int half = i / 128, j = i % 128 / 32, l = i % 32, code = t.codes[i] + 32;
    block.ql[64 * half + 32 * (j & 1) + l] |= static_cast<uint8_t>((code & 15) << (j < 2 ? 0 : 4));
    block.qh[32 * half + l] |= static_cast<uint8_t>((code >> 4) << (2 * j));
  }
}

}  // namespace nanomind
