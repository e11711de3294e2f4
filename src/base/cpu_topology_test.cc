// SPDX-License-Identifier: Apache-2.0
// Made-up /sys and /proc trees of boards and machines as their kernels show them.
#include "base/cpu_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace nanomind {
namespace {

using testing::ElementsAre;
namespace fs = std::filesystem;

class CpuTopologyTest : public testing::Test {
 protected:
  CpuTopologyTest() {
    std::string name = (fs::temp_directory_path() / "cpu_topology_test.XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~CpuTopologyTest() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  void put_cpu(int processor, const std::string& file, const std::string& text) {
    put("sys/devices/system/cpu/cpu" + std::to_string(processor) + "/" + file, text);
  }
  CpuTopology read(std::vector<int> allowed = {}) const { return read_cpu_topology(root_, allowed); }

  // Lowest processor and kind of each core, in order.
  static std::vector<std::pair<int, int>> cores(const CpuTopology& topology) {
    std::vector<std::pair<int, int>> list;
    for (const CpuCore& core : topology.cores) list.emplace_back(core.processors.front(), core.kind);
    return list;
  }

  // Four Cortex-A55, then two clusters of two Cortex-A76 that differ by their bin.
  void make_rk3588() {
    put("sys/devices/system/cpu/online", "0-7");
    for (int i = 0; i < 8; ++i) {
      put_cpu(i, "topology/core_cpus_list", std::to_string(i));
      put_cpu(i, "cpu_capacity", i < 4 ? "414" : i < 6 ? "1010" : "1024");
      put_cpu(i, "cpufreq/cpuinfo_max_freq", i < 4 ? "1800000" : "2352000");
    }
    put("proc/device-tree/model", "Radxa ROCK 5B");
  }

  fs::path root_;
};

TEST_F(CpuTopologyTest, BigCoresOfAnRk3588ComeFirst) {
  make_rk3588();
  const CpuTopology topology = read();
  EXPECT_THAT(cores(topology), ElementsAre(std::pair(6, 0), std::pair(7, 0), std::pair(4, 0), std::pair(5, 0),
                                           std::pair(0, 1), std::pair(1, 1), std::pair(2, 1), std::pair(3, 1)));
  EXPECT_EQ(topology.threads, 8);
  EXPECT_EQ(topology.model, "Radxa ROCK 5B");
  EXPECT_TRUE(topology.uneven());
  const auto places = thread_places(topology, 5);
  ASSERT_EQ(places.size(), 5u);
  for (int i = 0; i < 4; ++i) EXPECT_THAT(places[static_cast<size_t>(i)], ElementsAre(6, 7, 4, 5));
  EXPECT_EQ(places[4].size(), 8u);
  EXPECT_TRUE(thread_places(topology, 9).empty());
}

TEST_F(CpuTopologyTest, AMaskOfSmallCoresLeavesThoseAlone) {
  make_rk3588();
  const CpuTopology topology = read({1, 2});
  EXPECT_THAT(cores(topology), ElementsAre(std::pair(1, 0), std::pair(2, 0)));
  EXPECT_FALSE(topology.uneven());
  EXPECT_TRUE(thread_places(topology, 2).empty());
}

// Four like cores; older kernels give no capacity where there is nothing to compare.
TEST_F(CpuTopologyTest, CoresOfAnRk3566AreAlike) {
  put("sys/devices/system/cpu/online", "0-3");
  for (int i = 0; i < 4; ++i) {
    put_cpu(i, "topology/thread_siblings_list", std::to_string(i));
    put_cpu(i, "cpufreq/cpuinfo_max_freq", "1800000");
  }
  const CpuTopology topology = read();
  EXPECT_EQ(topology.cores.size(), 4u);
  EXPECT_FALSE(topology.uneven());
}

TEST_F(CpuTopologyTest, APi5HasFourLikeCoresAndACache) {
  put("sys/devices/system/cpu/online", "0-3");
  for (int i = 0; i < 4; ++i) {
    put_cpu(i, "cpu_capacity", "1024");
    put_cpu(i, "cache/index0/size", "64K");
    put_cpu(i, "cache/index2/size", "512K");
    put_cpu(i, "cache/index3/size", "2048K");
  }
  put("proc/device-tree/model", "Raspberry Pi 5 Model B Rev 1.0");
  const CpuTopology topology = read();
  EXPECT_EQ(topology.threads, 4);
  EXPECT_FALSE(topology.uneven());
  EXPECT_EQ(topology.cache_bytes, 2u << 20);
  EXPECT_EQ(topology.model, "Raspberry Pi 5 Model B Rev 1.0");
}

// Processors i and i + 4 are threads of one core; favoured cores have a slightly higher frequency.
TEST_F(CpuTopologyTest, HardwareThreadsOfACoreCountOnce) {
  put("sys/devices/system/cpu/online", "0-7");
  for (int i = 0; i < 8; ++i) {
    put_cpu(i, "topology/core_cpus_list", std::to_string(i % 4) + "," + std::to_string(i % 4 + 4));
    put_cpu(i, "cpufreq/cpuinfo_max_freq", i % 4 == 2 ? "5200000" : "5000000");
  }
  put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some x86\nflags\t\t: fpu");
  const CpuTopology topology = read();
  EXPECT_EQ(topology.threads, 4);
  EXPECT_FALSE(topology.uneven());
  EXPECT_THAT(topology.cores[0].processors, ElementsAre(2, 6));
  EXPECT_EQ(topology.model, "Some x86");
  EXPECT_THAT(read({4, 1}).cores[0].processors, ElementsAre(4));  // a core of which one thread may be used
}

// Two performance cores of two threads each, four efficiency cores.
TEST_F(CpuTopologyTest, HybridX86NamesItsEfficiencyCores) {
  put("sys/devices/system/cpu/online", "0-7");
  put("sys/devices/cpu_core/cpus", "0-3");
  put("sys/devices/cpu_atom/cpus", "4-7");
  for (int i = 0; i < 8; ++i) {
    const int pair = i / 2 * 2;
    put_cpu(i, "topology/core_cpus_list",
            i < 4 ? std::to_string(pair) + "-" + std::to_string(pair + 1) : std::to_string(i));
  }
  const CpuTopology topology = read();
  EXPECT_THAT(cores(topology), ElementsAre(std::pair(0, 0), std::pair(2, 0), std::pair(4, 1), std::pair(5, 1),
                                           std::pair(6, 1), std::pair(7, 1)));
  EXPECT_THAT(thread_places(topology, 2)[1], ElementsAre(0, 1, 2, 3));
}

TEST_F(CpuTopologyTest, AQuotaLimitsThreadsInBothVersionsOfControlGroups) {
  make_rk3588();
  put("proc/self/cgroup", "0::/system.slice/job.scope");
  put("sys/fs/cgroup/system.slice/cpu.max", "350000 100000");
  put("sys/fs/cgroup/system.slice/job.scope/cpu.max", "max 100000");
  EXPECT_EQ(read().threads, 3);
  put("sys/fs/cgroup/system.slice/job.scope/cpu.max", "50000 100000");
  EXPECT_EQ(read().threads, 1);

  put("proc/self/cgroup", "5:cpuset:/\n3:cpu,cpuacct:/docker/abc\n0::/docker/abc");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000");  // the container sees its own group as the root
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(read().threads, 2);
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(read().threads, 8);
}

TEST_F(CpuTopologyTest, WhatMakesNoSenseIsNotThere) {
  EXPECT_THAT(cores(read()), ElementsAre(std::pair(0, 0)));  // an empty tree
  put("sys/devices/system/cpu/online", "0-1,99999999999999999999");
  put_cpu(0, "topology/core_cpus_list", "nonsense");
  put_cpu(0, "cpu_capacity", "-3");
  put_cpu(0, "cache/index0/size", "many");
  put_cpu(1, "topology/core_cpus_list", "7");  // a core that the processor itself is not part of
  put("proc/self/cgroup", "::\n0\n0::/../..");
  put("sys/fs/cgroup/cpu.max", "100000 0");
  const CpuTopology topology = read();
  EXPECT_THAT(cores(topology), ElementsAre(std::pair(0, 0), std::pair(1, 0)));
  EXPECT_EQ(topology.threads, 2);
  EXPECT_EQ(topology.cache_bytes, 0u);
}

TEST(AllowedProcessors, AreThoseOfThisProcess) {
  EXPECT_FALSE(allowed_processors().empty());
  EXPECT_EQ(read_cpu_topology("/", allowed_processors()).cores.empty(), false);
}

}  // namespace
}  // namespace nanomind
