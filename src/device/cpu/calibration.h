// SPDX-License-Identifier: Apache-2.0
// How many threads decode and how many read prompts: measured once on each machine, in a fraction of a second, and kept
// in a small file. Decoding is limited by memory, which a few cores may already exhaust; prompts by arithmetic.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/cpu_topology.h"
#include "kernels/cpu/table.h"

namespace nanomind::cpu {

struct ThreadCounts {
  int decode = 1;
  int prefill = 1;
  bool operator==(const ThreadCounts&) const = default;
};

// Counts, and why these: a phrase for people.
struct Calibration {
  ThreadCounts threads;
  std::string reason;
};

// What was kept in `folder` for this machine and these kernels, else what a measurement now says, which is then kept
// there unless other programs disturbed it. One thread per core, without measuring, when `folder` is empty. Files of
// other machines lie side by side; what is damaged or was measured on another machine is measured again. Failing to
// keep a result is no error.
Calibration calibrate(const KernelTable& kernels, const CpuTopology& topology, const std::filesystem::path& folder);

// The parts of calibrate, for tests.

// Counts to try: all up to 4, then ever larger steps, the cores of each kind, and all.
std::vector<int> candidates(const CpuTopology& topology);

struct Rate {
  int threads;
  double per_second;
};
// The fewest threads that reach 98 % of the best rate.
int fewest_sufficient(std::span<const Rate> rates);

// What must agree for a kept result to count.
std::string machine_text(const KernelTable& kernels, const CpuTopology& topology);
// The file of such a machine's result, and what is in it.
std::filesystem::path kept_file(const std::filesystem::path& folder, const std::string& machine);
std::string to_text(const std::string& machine, ThreadCounts counts);
// Nothing unless `text` is what to_text made for this machine, with counts of 1 to `threads`.
std::optional<ThreadCounts> parse(std::string_view text, const std::string& machine, int threads);

}  // namespace nanomind::cpu
