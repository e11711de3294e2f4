// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tensor/packed.h"

namespace nanomind {
namespace {

constexpr uint64_t kMegabyte = uint64_t{1} << 20;
constexpr uint64_t kMinReserve = 128 * kMegabyte;
constexpr int64_t kContextStep = 256;  // suggestions are multiples of this

uint64_t meminfo_available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  uint64_t kilobytes = 0;
  while (file >> key >> kilobytes >> unit) {
    if (key == "MemAvailable:") return kilobytes * 1024;
  }
  return std::numeric_limits<uint64_t>::max();
}

// What the control group of this process still allows (cgroup v2 as containers and systemd mount it).
uint64_t cgroup_available() {
  std::ifstream limit_file("/sys/fs/cgroup/memory.max"), used_file("/sys/fs/cgroup/memory.current");
  uint64_t limit = 0, used = 0;
  if (!(limit_file >> limit) || !(used_file >> used)) return std::numeric_limits<uint64_t>::max();
  return limit > used ? limit - used : 0;
}

}  // namespace

uint64_t available_memory() {
  const uint64_t available = std::min(meminfo_available(), cgroup_available());
  const uint64_t reserve = std::max(kMinReserve, available / 16);
  return available > reserve ? available - reserve : 0;
}

void for_each_product(const Program& program, const std::function<void(const WeightInfo&, double part, Rows)>& f) {
  const auto weight = [&](WeightId id) -> const WeightInfo& { return program.weights[static_cast<size_t>(id)]; };
  for (const Op& op : program.ops) {
    if (const auto* product = std::get_if<op::MatMul>(&op)) {
      f(weight(product->weight), 1.0, program.values[static_cast<size_t>(product->x)].rows);
    } else if (const auto* experts = std::get_if<op::Experts>(&op)) {
      for (const WeightId id : {experts->gate, experts->up, experts->down}) {
        f(weight(id), experts->routing.used / static_cast<double>(weight(id).shape[0]), Rows::tokens);
      }
    }
  }
}

uint64_t matrix_bytes(const Program& program) {
  std::set<const WeightInfo*> counted;
  uint64_t bytes = 0;
  for_each_product(program, [&](const WeightInfo& info, double, Rows) {
    if (counted.insert(&info).second) bytes += packed_bytes(info.dtype, info.shape.rows(), info.shape.columns());
  });
  return bytes;
}

uint64_t kv_bytes_per_token(const Program& program, KvType type) {
  uint64_t bytes = 0;
  const std::vector<KvTypes> types = kv_layer_types(program, type);
  for (size_t i = 0; i < types.size(); ++i) {
    const KvLayerInfo& layer = program.kv_layers[i];
    bytes += static_cast<uint64_t>(layer.kv_heads) *
             (kv_row_bytes(types[i].keys, layer.head_dim) + kv_row_bytes(types[i].values, layer.head_dim));
  }
  return bytes;
}

Result<void> check_memory(const MemoryNeed& need, uint64_t budget_bytes) {
  const uint64_t total = need.weight_bytes + need.kv_bytes;
  if (total <= budget_bytes) return {};
  std::string advice = "Choose a smaller model.";
  if (need.weight_bytes < budget_bytes && need.kv_bytes > 0) {
    const double per_token = static_cast<double>(need.kv_bytes) / static_cast<double>(need.context);
    const auto fitting = static_cast<int64_t>(static_cast<double>(budget_bytes - need.weight_bytes) / per_token) /
                         kContextStep * kContextStep;
    if (fitting > 0) advice = fmt::format("A context of {} tokens would fit (--ctx {}).", fitting, fitting);
  }
  return fail(
      ErrorCode::out_of_memory,
      fmt::format("The model needs {} MB (weights {} MB, cache for {} tokens {} MB), but {} MB are available. {}",
                  total / kMegabyte, need.weight_bytes / kMegabyte, need.context, need.kv_bytes / kMegabyte,
                  budget_bytes / kMegabyte, advice));
}

}  // namespace nanomind
