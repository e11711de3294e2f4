// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: one kernel table, one thread pool.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/device.h"
#include "device/registry.h"

namespace nanomind {

Result<std::unique_ptr<Device>> open_cpu_device(const DeviceOptions& options);

}  // namespace nanomind
