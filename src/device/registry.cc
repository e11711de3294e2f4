// SPDX-License-Identifier: Apache-2.0
#include "device/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "device/cpu/cpu_device.h"
#include "device/sim/sim_device.h"
#include "kernels/cpu/select.h"

namespace nanomind {
namespace {

Result<std::unique_ptr<Device>> open_simulated_cpu(const DeviceOptions& options) {
  return simulate(TRY(open_cpu_device(options)), {}, nullptr);
}

struct Entry {
  std::string_view name;
  Result<std::unique_ptr<Device>> (*open)(const DeviceOptions&);
};

constexpr Entry kDevices[] = {
    {"cpu", open_cpu_device},
    {"sim:cpu", open_simulated_cpu},
};

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kDevices) names.emplace_back(entry.name);
  return names;
}

std::vector<std::string> device_isas() { return runnable_isas(); }

Result<std::unique_ptr<Device>> open_device(std::string_view name, const DeviceOptions& options) {
  for (const Entry& entry : kDevices) {
    if (entry.name == name) return entry.open(options);
  }
  return fail(ErrorCode::not_found,
              fmt::format("There is no device '{}'; known are {}.", name, fmt::join(device_names(), ", ")));
}

}  // namespace nanomind
