// SPDX-License-Identifier: Apache-2.0
// Devices by name.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace nanomind {

struct DeviceOptions {
  int threads = 0;                     // 0: as the two below
  int decode_threads = 0;              // 0: what a measurement of this machine says, see device/cpu/calibration.h
  int prefill_threads = 0;             // the same
  std::filesystem::path state_folder;  // where that measurement is kept; empty: not measured, one thread per core
  std::string isa;                     // forces a kernel table of the CPU; empty: the widest that runs
};

std::vector<std::string> device_names();

// Values of DeviceOptions::isa that run here, from the narrowest to the widest.
std::vector<std::string> device_isas();

// "cpu", or "sim:cpu" for the CPU behind the simulated device. The error lists the known names.
Result<std::unique_ptr<Device>> open_device(std::string_view name, const DeviceOptions& options);

}  // namespace nanomind
