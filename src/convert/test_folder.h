// SPDX-License-Identifier: Apache-2.0
// A folder for one test, gone after it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace nanomind {

class TestFolder {
 public:
  TestFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    const std::string name = std::string("convert-") + test->name() + "-" + std::to_string(::getpid()) + "-";
    for (int i = 0; path_.empty() || !std::filesystem::create_directories(path_); ++i)
      path_ = std::filesystem::path(testing::TempDir()) / (name + std::to_string(i));
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace nanomind
