// SPDX-License-Identifier: Apache-2.0
#include "device/sim/sim_device.h"

#include <array>
#include <utility>

namespace nanomind {
namespace {

// The script and how often each kind of call was made; shared by a device and its executables.
struct Script {
  SimScript script;
  ScriptedClock* clock = nullptr;
  std::array<int64_t, 3> calls{};

  // Counts a call; its scripted error, if any.
  Result<void> enter(SimFault::At at) {
    const int64_t call = calls[static_cast<size_t>(at)]++;
    for (const SimFault& fault : script.faults) {
      if (fault.at == at && fault.call == call) return std::unexpected(fault.error);
    }
    return {};
  }
};

class SimExecutable final : public Executable {
 public:
  SimExecutable(std::unique_ptr<Executable> inner, std::shared_ptr<Script> script)
      : inner_(std::move(inner)), script_(std::move(script)) {}

  Result<OutputRows> run(const Step& step) override {
    TRY(script_->enter(SimFault::At::run));
    if (script_->clock != nullptr) {
      script_->clock->advance_ns(script_->script.step_ns +
                                 script_->script.token_ns * static_cast<int64_t>(step.tokens.size()));
    }
    return inner_->run(step);
  }
  Result<void> rotate_keys(Buffer& kv_cache, std::span<const int32_t> blocks, int64_t by) override {
    return inner_->rotate_keys(kv_cache, blocks, by);
  }
  size_t kv_block_bytes() const override { return inner_->kv_block_bytes(); }
  size_t state_bytes() const override { return inner_->state_bytes(); }
  size_t activation_bytes() const override { return inner_->activation_bytes(); }

 private:
  std::unique_ptr<Executable> inner_;
  std::shared_ptr<Script> script_;
};

class SimDevice final : public Device {
 public:
  SimDevice(std::unique_ptr<Device> inner, std::shared_ptr<Script> script)
      : inner_(std::move(inner)), script_(std::move(script)) {
    info_ = inner_->info();
    info_.name = "sim:" + info_.name;
    info_.description = "simulated, on " + info_.description;
  }

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override {
    TRY(script_->enter(SimFault::At::allocate));
    return inner_->allocate(bytes);
  }
  double measure_peak() override { return inner_->measure_peak(); }
  void rest() override { inner_->rest(); }
  int64_t step_tokens(const Program& program) const override { return inner_->step_tokens(program); }
  Result<std::unique_ptr<Executable>> compile(const Program& program, const CompileOptions& options) override {
    TRY(script_->enter(SimFault::At::compile));
    return std::make_unique<SimExecutable>(TRY(inner_->compile(program, options)), script_);
  }

 private:
  std::unique_ptr<Device> inner_;
  std::shared_ptr<Script> script_;
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Device> simulate(std::unique_ptr<Device> inner, SimScript script, ScriptedClock* clock) {
  auto shared = std::make_shared<Script>(Script{.script = std::move(script), .clock = clock, .calls = {}});
  return std::make_unique<SimDevice>(std::move(inner), std::move(shared));
}

}  // namespace nanomind
