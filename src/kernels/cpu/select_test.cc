// SPDX-License-Identifier: Apache-2.0
// Choosing a table: forcing gives what was asked, unknown names are refused with the choices, no pointer is missing.
#include "kernels/cpu/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/isa.h"

namespace nanomind {
namespace {

TEST(SelectKernels, ForcedNameIsWhatItSays) {
  for (const std::string& name : runnable_isas()) {
    const Result<KernelTable> table = select_kernels(name);
    ASSERT_TRUE(table.has_value());
    EXPECT_EQ(table->name, name);
  }
}

TEST(SelectKernels, DefaultIsTheWidestRunnable) {
  const std::vector<std::string> names = runnable_isas();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.front(), "scalar");
  EXPECT_EQ(select_kernels("")->name, names.back());
}

TEST(SelectKernels, EveryTableIsComplete) {
  for (const std::string& name : runnable_isas()) {
    const KernelTable t = *select_kernels(name);
    for (const IntMatmul f : t.matmul) EXPECT_NE(f, nullptr) << name;
    for (const FloatMatmul f : t.matmul_float) EXPECT_NE(f, nullptr) << name;
    EXPECT_TRUE(t.quantize && t.rms_norm && t.swiglu && t.geglu && t.to_half && t.qk && t.softmax_block && t.pv &&
                t.qk_float && t.pv_float)
        << name;
    for (const KvCodes& codes : {t.kv_8, t.kv_4}) EXPECT_TRUE(codes.quantize && codes.keys && codes.values) << name;
    EXPECT_EQ(t.needs & ~detect_cpu_features(), 0u) << name;
  }
}

TEST(SelectKernels, UnknownNameListsTheChoices) {
  const Result<KernelTable> table = select_kernels("mmx");
  ASSERT_FALSE(table.has_value());
  EXPECT_EQ(table.error().code, ErrorCode::unsupported);
  EXPECT_THAT(table.error().message, testing::HasSubstr("'mmx'"));
  for (const std::string& name : runnable_isas()) EXPECT_THAT(table.error().message, testing::HasSubstr(name));
}

TEST(SelectKernels, WiderIsasOverrideProducts) {
  const std::vector<std::string> names = runnable_isas();
  for (size_t i = 1; i < names.size(); ++i) {
    const KernelTable wide = *select_kernels(names[i]), narrow = *select_kernels(names[i - 1]);
    EXPECT_TRUE(wide.matmul[0] != narrow.matmul[0] || wide.gemm_fast.multiply[0] != narrow.gemm_fast.multiply[0])
        << names[i];
  }
}

TEST(SelectKernels, IsasNeedAllTheirFeatures) {
  for (const Isa& isa : isas()) {
    EXPECT_STREQ(select_kernels(isa.name, isa.needs)->name, isa.name);
    for (uint32_t bit = 1; bit != 0; bit <<= 1) {
      EXPECT_EQ(select_kernels(isa.name, ~bit).has_value(), (isa.needs & bit) == 0) << isa.name << ", " << bit;
    }
  }
}

}  // namespace
}  // namespace nanomind
