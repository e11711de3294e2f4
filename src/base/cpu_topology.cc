// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

namespace nanomind {
namespace {

namespace fs = std::filesystem;

constexpr double kSameKind = 0.85;
constexpr int kLargestProcessor = 4095;

std::optional<std::string> read(const fs::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0' || text.back() == ' ')) text.pop_back();
  return text;
}

// The number that `text` begins with; what follows it stays in `text`.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<int64_t> read_number(const fs::path& path) {
  const auto text = read(path);
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  return take_number(rest);
}

// "0-3,6" as the kernel writes sets of processors.
std::vector<int> parse_list(std::string_view text) {
  std::vector<int> list;
  while (const auto first = take_number(text)) {
    auto last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = take_number(text);
    }
    if (!last || *first < 0 || *last > kLargestProcessor) break;
    for (int64_t i = *first; i <= *last; ++i) list.push_back(static_cast<int>(i));
    if (!text.starts_with(',')) break;
    text.remove_prefix(1);
  }
  return list;
}

std::vector<int> read_list(const fs::path& path) { return parse_list(read(path).value_or("")); }

bool contains(std::span<const int> list, int value) { return std::ranges::find(list, value) != list.end(); }

fs::path folder_of(const fs::path& root, int processor) {
  return root / "sys/devices/system/cpu" / ("cpu" + std::to_string(processor));
}

// In any unit; 1 where the system does not say.
double speed_of(const fs::path& root, int processor, std::span<const int> efficient) {
  if (!efficient.empty()) return contains(efficient, processor) ? 0.5 : 1;
  const fs::path folder = folder_of(root, processor);
  auto speed = read_number(folder / "cpu_capacity");
  if (!speed) speed = read_number(folder / "cpufreq/cpuinfo_max_freq");
  return speed && *speed > 0 ? static_cast<double>(*speed) : 1;
}

std::vector<CpuCore> read_cores(const fs::path& root, std::span<const int> processors) {
  std::map<int, CpuCore> by_lowest;  // sibling, usable or not
  for (const int processor : processors) {
    const fs::path topology = folder_of(root, processor) / "topology";
    std::vector<int> siblings = read_list(topology / "core_cpus_list");
    if (siblings.empty()) siblings = read_list(topology / "thread_siblings_list");
    const int lowest = contains(siblings, processor) ? std::ranges::min(siblings) : processor;
    by_lowest[lowest].processors.push_back(processor);
  }
  const std::vector<int> efficient = read_list(root / "sys/devices/cpu_atom/cpus");
  std::vector<std::pair<double, CpuCore>> cores;
  for (auto& [lowest, core] : by_lowest) {
    const double speed = speed_of(root, core.processors.front(), efficient);
    cores.emplace_back(speed, std::move(core));
  }
  std::ranges::stable_sort(cores, std::ranges::greater(), [](const auto& core) { return core.first; });
  std::vector<CpuCore> sorted;
  double fastest_of_kind = cores.front().first;
  int kind = 0;
  for (auto& [speed, core] : cores) {
    if (speed < fastest_of_kind * kSameKind) {
      fastest_of_kind = speed;
      ++kind;
    }
    core.kind = kind;
    sorted.push_back(std::move(core));
  }
  return sorted;
}

// Processors' worth of time that one control group allows; none: no limit.
std::optional<double> quota_of(const fs::path& group) {
  if (const auto text = read(group / "cpu.max")) {  // version 2: "200000 100000" or "max 100000"
    std::string_view rest = *text;
    const auto quota = take_number(rest);
    if (!quota || !rest.starts_with(' ')) return std::nullopt;
    rest.remove_prefix(1);
    const auto period = take_number(rest);
    if (!period || *period <= 0) return std::nullopt;
    return static_cast<double>(*quota) / static_cast<double>(*period);
  }
  const auto quota = read_number(group / "cpu.cfs_quota_us"), period = read_number(group / "cpu.cfs_period_us");
  if (!quota || *quota <= 0 || !period || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// The smallest quota of this process's group and those above it. Inside a container the path may name folders that are
// only outside; then the root of what is mounted counts.
std::optional<double> quota_along(const fs::path& mount, fs::path path) {
  std::optional<double> smallest;
  for (path = path.relative_path();; path = path.parent_path()) {
    if (const auto quota = quota_of(mount / path); quota && (!smallest || *quota < *smallest)) smallest = quota;
    if (path.empty()) return smallest;
  }
}

// Lines of /proc/self/cgroup are "id:controllers:path"; version 2 has no controllers there.
std::optional<double> read_quota(const fs::path& root) {
  std::optional<double> smallest;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    const fs::path mount = root / "sys/fs/cgroup" / (controllers.empty() ? "" : "cpu");
    const auto quota = quota_along(mount, line.substr(second + 1));
    if (quota && (!smallest || *quota < *smallest)) smallest = quota;
  }
  return smallest;
}

std::string read_model(const fs::path& root) {
  std::ifstream file(root / "proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return read(root / "proc/device-tree/model").value_or("");
}

uint64_t read_cache_bytes(const fs::path& root, int processor) {
  uint64_t largest = 0;
  for (int i = 0; i < 8; ++i) {
    const auto text = read(folder_of(root, processor) / "cache" / ("index" + std::to_string(i)) / "size");
    if (!text) continue;
    std::string_view rest = *text;
    const auto number = take_number(rest);
    if (!number || *number < 0 || *number > 1 << 30) continue;
    largest = std::max(largest, static_cast<uint64_t>(*number) << (rest == "M" ? 20 : rest == "K" ? 10 : 0));
  }
  return largest;
}

}  // namespace

CpuTopology read_cpu_topology(const fs::path& root, std::span<const int> allowed) {
  std::vector<int> processors(allowed.begin(), allowed.end());
  if (processors.empty()) processors = read_list(root / "sys/devices/system/cpu/online");
  if (processors.empty()) processors = {0};
  std::ranges::sort(processors);
  CpuTopology topology;
  topology.cores = read_cores(root, processors);
  topology.threads = static_cast<int>(topology.cores.size());
  if (const auto quota = read_quota(root); quota && *quota < topology.threads) {
    topology.threads = std::max(1, static_cast<int>(*quota));
  }
  topology.model = read_model(root);
  topology.cache_bytes = read_cache_bytes(root, topology.cores.front().processors.front());
  return topology;
}

std::vector<int> allowed_processors() {
  std::vector<int> processors;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  return processors;
}

std::vector<std::vector<int>> thread_places(const CpuTopology& topology, int threads) {
  if (!topology.uneven() || static_cast<size_t>(threads) > topology.cores.size()) return {};
  std::vector<std::vector<int>> places;
  for (int i = 0; i < threads; ++i) {
    std::vector<int>& place = places.emplace_back();
    for (const CpuCore& core : topology.cores) {
      if (core.kind > topology.cores[static_cast<size_t>(i)].kind) break;
      place.insert(place.end(), core.processors.begin(), core.processors.end());
    }
  }
  return places;
}

}  // namespace nanomind
