// SPDX-License-Identifier: Apache-2.0
// What tests of engines share: a tiny model of tests/data, loaded on the CPU device, and what tests/golden says of it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "tests/support/golden.h"

namespace nanomind::testing {

// GetParam() is the name in tests/data/tiny-<name>.gguf.
class TinyEngineTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("nanomind-engine-test-" + std::to_string(::getpid()));
    golden_ = golden("tiny-" + GetParam());
    ids_ = golden_["ids"].get<std::vector<TokenId>>();
    engine_ = load({});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Engine> load(EngineOptions options) {
    options.model = "tests/data/tiny-" + GetParam() + ".gguf";
    options.packed_folder = folder_;
    if (options.threads == 0) options.threads = 2;
    if (options.context == 0) options.context = 128;
    Result<std::unique_ptr<Engine>> engine = Engine::load(options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  std::unique_ptr<Session> open() { return std::move(*engine_->open_session()); }

  std::filesystem::path folder_;
  nlohmann::json golden_;
  std::vector<TokenId> ids_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace nanomind::testing
