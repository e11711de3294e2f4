// SPDX-License-Identifier: Apache-2.0
// Keys and values in blocks of the cache: where those of a head lie, and how each KvType writes and reads them. What
// attention.cc does is the same for all types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/device.h"
#include "kernels/cpu/table.h"

namespace nanomind::cpu {

static_assert(kKvBlock == kKvBlockTokens);

// One layer's part of every cache block: the keys of its heads, then the values of its heads.
struct KvLayout {
  KvTypes types = {};
  int heads = 0;
  int head_dim = 0;
  size_t offset = 0;  // of the layer in a block, bytes; a multiple of 64

  // Of one head.
  size_t key_bytes() const { return kv_row_bytes(types.keys, head_dim) * kKvBlock; }
  size_t value_bytes() const { return kv_row_bytes(types.values, head_dim) * kKvBlock; }

  size_t bytes() const { return static_cast<size_t>(heads) * (key_bytes() + value_bytes()); }
  size_t keys(int head) const { return offset + static_cast<size_t>(head) * key_bytes(); }
  size_t values(int head) const { return keys(heads) + static_cast<size_t>(head) * value_bytes(); }
};

// Reads and writes the keys or values of one head of width `d` in one block. Keys are transposed, [d][64], values are
// [64][d]; codes as kernels/cpu/kv_codes.h has them.
//
// Codes are of mixed rows: each run of 32 numbers that share a scale is multiplied by a Hadamard matrix first, which
// spreads the few large numbers that heads of real models have, and would leave the others too few steps (QuaRot, arXiv
// 2404.00456). The matrix is orthonormal, so scores of mixed queries and keys are those of the rows themselves.
class KvStore {
 public:
  // `kernels` outlives the store.
  static std::unique_ptr<KvStore> make(KvType type, const KernelTable& kernels);
  virtual ~KvStore() = default;

  // The first `count` numbers of a token's key: all d, or a multiple of 32. Nothing of other tokens is touched.
  virtual void put_key(const float* x, int count, int d, int slot, std::byte* keys) const = 0;
  virtual void put_value(const float* x, int d, int slot, std::byte* values) const = 0;
  // All keys as floats, out[64][d].
  virtual void get_keys(const std::byte* keys, int d, float* out) const = 0;

  // Mixes a row as those of the store are, or undoes it: the matrix is its own inverse. Nothing where rows are kept as
  // they are.
  virtual void mix(float* row, int d) const = 0;
  // As KernelTable has them; queries and results are mixed.
  virtual void qk(const float* q, int m, const std::byte* keys, int d, float* scores) const = 0;
  virtual void pv(const float* p, int m, const std::byte* values, int first, int last, int d, const float* correction,
                  float* out) const = 0;
};

}  // namespace nanomind::cpu
