// SPDX-License-Identifier: Apache-2.0
// The choice among measured rates, which counts are tried, and what becomes of kept results.
#include "device/cpu/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "kernels/cpu/select.h"

namespace nanomind::cpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

CpuTopology cores(int fast, int slow = 0) {
  CpuTopology topology{.model = "made up", .cores = {}, .threads = fast + slow};
  for (int i = 0; i < fast + slow; ++i) topology.cores.push_back({.processors = {i}, .kind = i < fast ? 0 : 1});
  return topology;
}

TEST(FewestSufficient, StopsWhereMoreThreadsBringLessThanTwoPercent) {
  EXPECT_EQ(fewest_sufficient(std::vector<Rate>{{1, 10}, {2, 19.7}, {3, 20}, {4, 19}}), 2);
  EXPECT_EQ(fewest_sufficient(std::vector<Rate>{{1, 10}, {2, 19.5}, {3, 20}}), 3);
  EXPECT_EQ(fewest_sufficient(std::vector<Rate>{{1, 10}, {2, 5}}), 1);
  EXPECT_EQ(fewest_sufficient(std::vector<Rate>{{1, 0}}), 1);
}

TEST(Candidates, AreFewAndHaveEveryKindOfCore) {
  EXPECT_THAT(candidates(cores(1)), ElementsAre(1));
  EXPECT_THAT(candidates(cores(2)), ElementsAre(1, 2));
  EXPECT_THAT(candidates(cores(4, 4)), ElementsAre(1, 2, 3, 4, 6, 8));
  EXPECT_THAT(candidates(cores(5, 2)), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  const std::vector<int> many = candidates(cores(128));
  EXPECT_LE(many.size(), 16u);
  EXPECT_EQ(many.back(), 128);
}

TEST(KeptCounts, CountForTheirMachineOnly) {
  const KernelTable kernels = select_kernels("").value();
  const std::string machine = machine_text(kernels, cores(4, 4));
  const std::string text = to_text(machine, {.decode = 4, .prefill = 8});
  EXPECT_EQ(parse(text, machine, 8), (ThreadCounts{4, 8}));
  EXPECT_FALSE(parse(text, machine, 6)) << "more threads than cores";
  EXPECT_FALSE(parse(text, machine_text(kernels, cores(8)), 8)) << "other cores";
  EXPECT_FALSE(parse(text + " ", machine, 8));
  EXPECT_FALSE(parse("", machine, 8));
  for (size_t length = 0; length < text.size(); ++length) EXPECT_FALSE(parse(text.substr(0, length), machine, 8));
  EXPECT_FALSE(parse(to_text(machine, {.decode = 0, .prefill = 8}), machine, 8));
}

class CalibrateTest : public testing::Test {
 protected:
  CalibrateTest() {
    std::string name = (fs::temp_directory_path() / "calibration_test.XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~CalibrateTest() override { fs::remove_all(folder_); }

  KernelTable kernels_ = select_kernels("").value();
  fs::path folder_;
};

TEST_F(CalibrateTest, MeasuresWithinTheNumberOfCores) {
  const Calibration result = calibrate(kernels_, cores(2), folder_);
  EXPECT_GE(std::min(result.threads.decode, result.threads.prefill), 1);
  EXPECT_LE(std::max(result.threads.decode, result.threads.prefill), 2);
  EXPECT_THAT(result.reason, HasSubstr("measured now"));
}

TEST_F(CalibrateTest, BelievesWhatIsKeptAndMeasuresAgainWhereThatIsBroken) {
  const CpuTopology topology = cores(2);
  const std::string machine = machine_text(kernels_, topology);
  const fs::path file = kept_file(folder_, machine);
  // Counts that differ are not what a machine of two like cores gives by itself.
  std::ofstream(file) << to_text(machine, {.decode = 2, .prefill = 1});
  const Calibration kept = calibrate(kernels_, topology, folder_);
  EXPECT_EQ(kept.threads, (ThreadCounts{2, 1}));
  EXPECT_THAT(kept.reason, HasSubstr(file.string()));
  std::ofstream(file) << "broken";
  EXPECT_THAT(calibrate(kernels_, topology, folder_).reason, HasSubstr("measured now"));
}

TEST_F(CalibrateTest, DoesNotMeasureForOneCoreOrWithoutAFolder) {
  EXPECT_EQ(calibrate(kernels_, cores(1), folder_).threads, (ThreadCounts{1, 1}));
  EXPECT_EQ(calibrate(kernels_, cores(3), "").threads, (ThreadCounts{3, 3}));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(CalibrateTest, AFolderThatCannotBeIsNoError) {
  std::ofstream(folder_ / "file") << "in the way";
  EXPECT_THAT(calibrate(kernels_, cores(2), folder_ / "file").reason, HasSubstr("measured now"));
}

}  // namespace
}  // namespace nanomind::cpu
