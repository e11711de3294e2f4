// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/kv_store.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <type_traits>

#include "tensor/half.h"

namespace nanomind::cpu {
namespace {

constexpr int kMaxRuns = static_cast<int>(kMaxHeadDim) / kKvRun;

int runs_of(int d) { return (d + kKvRun - 1) / kKvRun; }

// Walsh-Hadamard transform of kN numbers, divided by sqrt(kN).
template <int kN>
void hadamard(float* x, float factor) {
#pragma GCC unroll 8
  for (int h = kN / 2; h >= 1; h /= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < kN; i += 2 * h) {
#pragma GCC unroll 16
      for (int j = i; j < i + h; ++j) {
        const float a = x[j], b = x[j + h];
        x[j] = a + b;
        x[j + h] = a - b;
      }
    }
  }
  for (int i = 0; i < kN; ++i) x[i] *= factor;
}

// Runs of 32; of a last one of 8, 16 or 24 the powers of two that it is made of.
void mix_runs(float* x, int d) {
  int c = 0;
  for (; c + 32 <= d; c += 32) hadamard<32>(x + c, 0.17677670F);
  if (c + 16 <= d) {
    hadamard<16>(x + c, 0.25F);
    c += 16;
  }
  if (c + 8 <= d) hadamard<8>(x + c, 0.35355339F);
}

// out[64][d] = in[d][64].
template <typename T, typename F>
void transpose(const T* in, int d, float* out, const F& widen) {
  for (int t = 0; t < kKvBlock; ++t) {
    for (int c = 0; c < d; ++c) out[t * d + c] = widen(in[c * kKvBlock + t]);
  }
}

// Numbers that the kernels read as they are: floats and halves.
template <typename T>
class PlainStore final : public KvStore {
 public:
  explicit PlainStore(const KernelTable& kernels) : kernels_(kernels) {}

  void put_key(const float* x, int count, int, int slot, std::byte* keys) const override {
    T row[kMaxHeadDim];
    convert(x, count, row);
    T* column = reinterpret_cast<T*>(keys) + slot;
    for (int c = 0; c < count; ++c) column[c * kKvBlock] = row[c];
  }
  void put_value(const float* x, int d, int slot, std::byte* values) const override {
    convert(x, d, reinterpret_cast<T*>(values) + slot * d);
  }
  void get_keys(const std::byte* keys, int d, float* out) const override {
    const T* numbers = reinterpret_cast<const T*>(keys);
    if constexpr (std::is_same_v<T, float>) {
      transpose(numbers, d, out, std::identity());
    } else {
      transpose(numbers, d, out, float_from_half);
    }
  }
  void mix(float*, int) const override {}
  void qk(const float* q, int m, const std::byte* keys, int d, float* scores) const override {
    if constexpr (std::is_same_v<T, float>) {
      kernels_.qk_float(q, d, m, reinterpret_cast<const T*>(keys), d, scores);
    } else {
      kernels_.qk(q, d, m, reinterpret_cast<const T*>(keys), d, scores);
    }
  }
  void pv(const float* p, int m, const std::byte* values, int first, int last, int d, const float* correction,
          float* out) const override {
    if constexpr (std::is_same_v<T, float>) {
      kernels_.pv_float(p, m, reinterpret_cast<const T*>(values), first, last, d, correction, out, d);
    } else {
      kernels_.pv(p, m, reinterpret_cast<const T*>(values), first, last, d, correction, out, d);
    }
  }

 private:
  void convert(const float* x, int n, T* out) const {
    if constexpr (std::is_same_v<T, float>) {
      std::copy_n(x, n, out);
    } else {
      kernels_.to_half(x, n, out);
    }
  }
  const KernelTable& kernels_;
};

// How codes lie in memory: one per byte, or two.
struct Bytes {
  static int codes_bytes(int d) { return d * kKvBlock; }
  static void put_key(const uint8_t* codes, int count, int slot, uint8_t* keys) {
    for (int c = 0; c < count; ++c) keys[c * kKvBlock + slot] = codes[c];
  }
  static void put_value(const uint8_t* codes, int d, int slot, uint8_t* values) {
    std::memcpy(values + slot * d, codes, static_cast<size_t>(d));
  }
};
struct Nibbles {
  static int codes_bytes(int d) { return d * kKvBlock / 2; }
  static void put_key(const uint8_t* codes, int count, int slot, uint8_t* keys) {
    constexpr int kPairs = kKvBlock / 2;
    const int shift = slot < kPairs ? 0 : 4;
    const auto others = static_cast<uint8_t>(0xF0 >> shift);
    uint8_t* column = keys + slot % kPairs;
    for (int c = 0; c < count; ++c) {
      uint8_t& pair = column[c * kPairs];
      pair = static_cast<uint8_t>((pair & others) | codes[c] << shift);
    }
  }
  static void put_value(const uint8_t* codes, int d, int slot, uint8_t* values) {
    const int half = d / 2;
    for (int j = 0; j < half; ++j) values[slot * half + j] = static_cast<uint8_t>(codes[j] | codes[half + j] << 4);
  }
};

// Codes of mixed rows, which become floats block by block.
template <class Layout>
class CodeStore final : public KvStore {
 public:
  CodeStore(const KernelTable& kernels, const KvCodes& codes) : kernels_(kernels), codes_(codes) {}

  void put_key(const float* x, int count, int d, int slot, std::byte* keys) const override {
    uint8_t codes[kMaxHeadDim];
    uint16_t scales[kMaxRuns];
    quantize(x, count, codes, scales);
    Layout::put_key(codes, count, slot, reinterpret_cast<uint8_t*>(keys));
    uint16_t* column = scales_of(keys, d) + slot;
    for (int run = 0; run < runs_of(count); ++run) column[run * kKvBlock] = scales[run];
  }
  void put_value(const float* x, int d, int slot, std::byte* values) const override {
    uint8_t codes[kMaxHeadDim];
    quantize(x, d, codes, scales_of(values, d) + slot * runs_of(d));
    Layout::put_value(codes, d, slot, reinterpret_cast<uint8_t*>(values));
  }
  void get_keys(const std::byte* keys, int d, float* out) const override {
    alignas(64) float floats[kMaxHeadDim * kKvBlock];
    read_keys(keys, d, floats);
    transpose(floats, d, out, std::identity());
    for (int t = 0; t < kKvBlock; ++t) mix_runs(out + t * d, d);
  }
  void mix(float* row, int d) const override { mix_runs(row, d); }
  void qk(const float* q, int m, const std::byte* keys, int d, float* scores) const override {
    alignas(64) float floats[kMaxHeadDim * kKvBlock];
    read_keys(keys, d, floats);
    kernels_.qk_float(q, d, m, floats, d, scores);
  }
  void pv(const float* p, int m, const std::byte* values, int first, int last, int d, const float* correction,
          float* out) const override {
    alignas(64) float floats[kMaxHeadDim * kKvBlock];
    codes_.values(reinterpret_cast<const uint8_t*>(values), scales_of(values, d), first, last, d, floats);
    kernels_.pv_float(p, m, floats, first, last, d, correction, out, d);
  }

 private:
  void quantize(const float* x, int n, uint8_t* codes, uint16_t* scales) const {
    alignas(64) float mixed[kMaxHeadDim];
    std::copy_n(x, n, mixed);
    mix_runs(mixed, n);
    codes_.quantize(mixed, n, codes, scales);
  }
  // Mixed, out[d][64].
  void read_keys(const std::byte* keys, int d, float* out) const {
    codes_.keys(reinterpret_cast<const uint8_t*>(keys), scales_of(keys, d), d, out);
  }
  static uint16_t* scales_of(std::byte* head, int d) {
    return reinterpret_cast<uint16_t*>(head + Layout::codes_bytes(d));
  }
  static const uint16_t* scales_of(const std::byte* head, int d) {
    return reinterpret_cast<const uint16_t*>(head + Layout::codes_bytes(d));
  }
  const KernelTable& kernels_;
  const KvCodes& codes_;
};

}  // namespace

std::unique_ptr<KvStore> KvStore::make(KvType type, const KernelTable& kernels) {
  switch (type) {
    case KvType::f32: return std::make_unique<PlainStore<float>>(kernels);
    case KvType::f16: return std::make_unique<PlainStore<uint16_t>>(kernels);
    case KvType::q8_0: return std::make_unique<CodeStore<Bytes>>(kernels, kernels.kv_8);
    case KvType::q4_0: return std::make_unique<CodeStore<Nibbles>>(kernels, kernels.kv_4);
  }
  CHECK(false);
}

}  // namespace nanomind::cpu
