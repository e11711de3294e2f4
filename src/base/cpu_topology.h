// SPDX-License-Identifier: Apache-2.0
// The cores that this process may compute on: which are the fast ones, which share hardware threads, and how many may
// run at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace nanomind {

struct CpuCore {
  std::vector<int> processors;  // its logical processors that may be used, lowest first
  int kind = 0;                 // 0: the fastest kind of core here, 1 the next ...
};

struct CpuTopology {
  std::string model;           // as the system names the processor or the board; may be empty
  std::vector<CpuCore> cores;  // fastest first; never empty
  int threads = 1;             // that can compute at once: one per core, fewer where a control group limits the time
  uint64_t cache_bytes = 0;    // the largest cache of the first core; 0: unknown
  bool uneven() const { return cores.back().kind > 0; }
};

// Reads /sys, /proc/cpuinfo and /proc/self/cgroup below `root` (control groups of both versions). `allowed` are the
// logical processors that may be used; empty: all that are online. What is missing or makes no sense is taken as not
// there, down to a single core.
//
// Speeds come from cpu_capacity (ARM), cpufreq's highest frequency, or, on hybrid x86, the lists of performance and
// efficiency cores. A core is of another kind when it has less than 85 % of the speed of the fastest of its kind, so
// that favoured cores and bins of one design stay together.
CpuTopology read_cpu_topology(const std::filesystem::path& root, std::span<const int> allowed);

// Logical processors of the calling thread's affinity mask.
std::vector<int> allowed_processors();

// Where each of the first `threads` threads should run: thread i on any core at least as fast as the i-th. Empty where
// all cores are alike, or more threads than cores are wanted.
std::vector<std::vector<int>> thread_places(const CpuTopology& topology, int threads);

}  // namespace nanomind
