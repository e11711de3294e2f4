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
    EXPECT_TRUE(t.quantize && t.rms_norm && t.swiglu && t.geglu && t.to_half && t.qk && t.softmax_block && t.pv)
        << name;
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

TEST(SelectKernels, WiderIsasOverrideTheIntegerProduct) {
  const std::vector<std::string> names = runnable_isas();
  for (size_t i = 1; i < names.size(); ++i) {
    EXPECT_NE(select_kernels(names[i])->matmul[0], select_kernels(names[i - 1])->matmul[0]) << names[i];
  }
}

}  // namespace
}  // namespace nanomind
