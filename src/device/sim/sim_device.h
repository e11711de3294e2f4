// SPDX-License-Identifier: Apache-2.0
// A device that computes through another one, but whose time and faults are scripted: for tests of everything above the
// seam, and for trying placements without hardware.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "device/device.h"

namespace nanomind {

// Time that only moves when told. Thread-compatible.
class ScriptedClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  void advance_ns(int64_t ns) { now_ns_ += ns; }

 private:
  int64_t now_ns_ = 0;
};

struct SimFault {
  enum class At { allocate, compile, run } at = At::run;
  int64_t call = 0;  // the how-manieth call of that kind fails, from 0
  Error error;
};

struct SimScript {
  int64_t step_ns = 0;   // what a step costs on the clock
  int64_t token_ns = 0;  // and each of its tokens
  std::vector<SimFault> faults;
};

// `clock`, where given, outlives the device and is advanced by each run.
std::unique_ptr<Device> simulate(std::unique_ptr<Device> inner, SimScript script, ScriptedClock* clock);

}  // namespace nanomind
