// SPDX-License-Identifier: Apache-2.0
// Shared by the kernel tests: every test runs once for each ISA that this CPU can run or tests emulate.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/select.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/test_features.h"

namespace nanomind {

// Parameter: the name of an ISA, which is forced.
class Kernels : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const Result<KernelTable> table = select_kernels(GetParam(), testable_features());
    ASSERT_TRUE(table.has_value()) << table.error().message;
    table_ = *table;
    ASSERT_EQ(table_.name, GetParam());
  }

  KernelTable table_{};
  std::mt19937 random_{1};

  std::vector<float> normal(size_t n, float deviation = 1) {
    std::normal_distribution<float> distribution(0, deviation);
    std::vector<float> v(n);
    for (float& x : v) x = distribution(random_);
    return v;
  }
};

inline auto each_isa() { return testing::ValuesIn(runnable_isas(testable_features())); }
inline std::string isa_name(const testing::TestParamInfo<std::string>& info) { return info.param; }

// Bytes aligned as packed weights are.
struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;
inline AlignedBytes aligned_bytes(size_t size) {
  AlignedBytes bytes(static_cast<std::byte*>(::operator new(size, std::align_val_t{64})));
  std::memset(bytes.get(), 0, size);
  return bytes;
}

}  // namespace nanomind
