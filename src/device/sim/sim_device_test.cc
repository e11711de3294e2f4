// SPDX-License-Identifier: Apache-2.0
// The simulated device: its name, its scripted time and its scripted faults, after which it works again.
#include "device/sim/sim_device.h"

#include <gtest/gtest.h>

#include "device/registry.h"
#include "ops/recorder.h"
#include "tests/support/program_weights.h"

namespace nanomind {
namespace {

TEST(SimDevice, ScriptsTimeAndFaultsAndRecovers) {
  testing::ProgramWeights weights(17);
  Recorder rec;
  const Value x = rec.embed(weights.matrix(rec, DType::q8_0, 8, 32, 1.0F));
  const Value y = rec.matmul(rec.select_outputs(x), weights.matrix(rec, DType::q8_0, 16, 32, 0.2F));
  const Program program = std::move(rec).finish(y);
  const auto views = weights.views();

  ScriptedClock clock;
  SimScript script{.step_ns = 1000, .token_ns = 10, .faults = {}};
  script.faults.push_back({.at = SimFault::At::allocate, .call = 1, .error = {ErrorCode::out_of_memory, "No memory."}});
  script.faults.push_back({.at = SimFault::At::run, .call = 1, .error = {ErrorCode::io, "The device was lost."}});
  const auto device = simulate(std::move(*open_device("cpu", {.threads = 1, .isa = ""})), script, &clock);
  EXPECT_EQ(device->info().name, "sim:cpu");
  const auto executable = std::move(*device->compile(program, {.weights = views, .max_tokens = 4, .max_outputs = 1}));
  const auto cache = std::move(*device->allocate(64));
  EXPECT_FALSE(device->allocate(64));
  const std::vector<int32_t> block{0}, ids{1, 2, 3}, row{2};
  const SequenceRows rows{.blocks = block, .past = 0, .rows = 3};
  const Step step{.tokens = ids, .sequences = {&rows, 1}, .outputs = row, .kv_cache = cache.get()};
  ASSERT_TRUE(executable->run(step));
  EXPECT_EQ(clock.now_ns(), 1030);
  const auto lost = executable->run(step);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().message, "The device was lost.");
  EXPECT_TRUE(executable->run(step));
  EXPECT_EQ(clock.now_ns(), 2060);
}

}  // namespace
}  // namespace nanomind
