// SPDX-License-Identifier: Apache-2.0
// What a person has chosen for good: config.toml, and NANOMIND_* variables over it. Flags of a command start from these
// values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "device/kv_type.h"
#include "runtime/picture.h"
#include "runtime/sampler_options.h"

namespace nanomind {

struct Settings {
  std::string model;          // used when no MODEL is given; empty: the catalog's default
  std::string models_folder;  // empty: the XDG data folder
  std::string packed_folder;  // empty: beside the models
  std::string device = "cpu";
  std::string isa;          // empty: the widest that runs
  int threads = 0;          // 0: as the two below
  int decode_threads = 0;   // 0: what suits the machine
  int prefill_threads = 0;  // the same
  int64_t context = 0;      // tokens; 0: the engine's choice
  KvType kv_type = KvType::f16;
  uint64_t memory_bytes = 0;                          // 0: the engine's choice
  uint64_t picture_cache_bytes = kPictureCacheBytes;  // on disk, of pictures that were seen; 0: none
  int64_t max_tokens = -1;                            // -1: until the model ends
  std::string system;                                 // system message; empty: the template's own
  int64_t think_budget = -1;                          // tokens of reasoning; -1: no bound
  SamplerOptions sampler;
};

// Names of the settings as they stand in config.toml; the variable of `top_k` is NANOMIND_TOP_K.
std::vector<std::string> setting_names();

// Sets one of them from text. Errors name the setting.
Result<void> apply_setting(Settings& settings, std::string_view name, std::string_view value);

// Reads TOML text over `settings`; `origin` names it in errors. Unknown keys are reported to `log` and ignored.
Result<void> apply_toml(Settings& settings, std::string_view toml, std::string_view origin, const Log& log);

// config.toml of the folder, if there is one, then the variables that `variable` returns a value for.
Result<Settings> load_settings(const std::filesystem::path& config_file,
                               const std::function<std::string(const char*)>& variable, const Log& log);

}  // namespace nanomind
