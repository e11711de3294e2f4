// SPDX-License-Identifier: Apache-2.0
#include "cli/settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

namespace nanomind {
namespace {

TEST(Settings, TomlSetsEveryKindOfValue) {
  Settings settings;
  ASSERT_TRUE(apply_toml(settings,
                         "model = 'a'\nthreads = 3\ntemp = 0.5\nmemory = '2G'\ntop_k=7\nseed=9\nkv_type='q8_0'\n",
                         "c.toml", Log()));
  EXPECT_EQ(settings.model, "a");
  EXPECT_EQ(settings.threads, 3);
  EXPECT_EQ(settings.sampler.temperature, 0.5);
  EXPECT_EQ(settings.sampler.top_k, 7);
  EXPECT_EQ(settings.sampler.seed, 9u);
  EXPECT_EQ(settings.memory_bytes, 2147483648u);
  EXPECT_EQ(settings.kv_type, KvType::q8_0);
}

TEST(Settings, EverySamplerOptionCanBeSet) {
  Settings settings;
  ASSERT_TRUE(apply_toml(settings,
                         "typical_p=0.9\npresence_penalty=0.1\nfrequency_penalty=0.2\nrepeat_last=-1\ndry=0.8\n"
                         "dry_base=2\ndry_length=3\ndry_window=99\nxtc=0.5\nxtc_threshold=0.2\nmirostat=3\n"
                         "mirostat_rate=0.3\n",
                         "c.toml", Log()));
  const SamplerOptions& o = settings.sampler;
  EXPECT_EQ(o.typical_p, 0.9);
  EXPECT_EQ(o.presence_penalty, 0.1);
  EXPECT_EQ(o.frequency_penalty, 0.2);
  EXPECT_EQ(o.repetition_window, -1);
  EXPECT_EQ(o.dry.multiplier, 0.8);
  EXPECT_EQ(o.dry.base, 2);
  EXPECT_EQ(o.dry.allowed_length, 3);
  EXPECT_EQ(o.dry.window, 99);
  EXPECT_EQ(o.xtc.probability, 0.5);
  EXPECT_EQ(o.xtc.threshold, 0.2);
  EXPECT_EQ(o.mirostat.version, MirostatOptions::Version::v2);
  EXPECT_EQ(o.mirostat.tau, 3);
  EXPECT_EQ(o.mirostat.eta, 0.3);
  ASSERT_TRUE(apply_setting(settings, "mirostat", "0"));
  EXPECT_EQ(o.mirostat.version, MirostatOptions::Version::off);
}

TEST(Settings, WrongTomlSaysWhere) {
  Settings settings;
  auto broken = apply_toml(settings, "model = 'a'\nthreads = = 3\n", "c.toml", Log());
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("c.toml, line 2"), std::string::npos) << broken.error().message;
  auto table = apply_toml(settings, "[threads]\na = 1\n", "c.toml", Log());
  ASSERT_FALSE(table);
  EXPECT_NE(table.error().message.find("threads must be"), std::string::npos);
  auto range = apply_toml(settings, "threads = -1\n", "c.toml", Log());
  ASSERT_FALSE(range);
  EXPECT_NE(range.error().message.find("threads: '-1' is not a whole number"), std::string::npos)
      << range.error().message;
}

TEST(Settings, UnknownKeyIsReportedAndIgnored) {
  Settings settings;
  std::string heard;
  const Log log([&](LogLevel level, std::string_view message) {
    EXPECT_EQ(level, LogLevel::warning);
    heard = message;
  });
  ASSERT_TRUE(apply_toml(settings, "colour = 'red'\nthreads = 2\n", "c.toml", log));
  EXPECT_EQ(settings.threads, 2);
  EXPECT_NE(heard.find("'colour'"), std::string::npos);
}

TEST(Settings, VariablesOverrideTheFile) {
  const auto path = std::filesystem::path(testing::TempDir()) / "nanomind_settings_test.toml";
  std::ofstream(path) << "threads = 2\nctx = 100\n";
  const std::map<std::string, std::string> variables = {{"NANOMIND_THREADS", "5"}, {"NANOMIND_TOP_K", "1"}};
  const auto lookup = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  };
  const auto settings = load_settings(path, lookup, Log());
  std::filesystem::remove(path);
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->threads, 5);
  EXPECT_EQ(settings->context, 100);
  EXPECT_EQ(settings->sampler.top_k, 1);
}

TEST(Settings, BadVariableIsNamed) {
  const auto settings = load_settings(
      "", [](const char* name) { return std::string_view(name) == "NANOMIND_TEMP" ? "warm" : ""; }, Log());
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(settings.error().message.find("NANOMIND_TEMP: 'warm' is not a number"), std::string::npos);
}

}  // namespace
}  // namespace nanomind
