// SPDX-License-Identifier: Apache-2.0
#include "cli/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "cli/quantity.h"

namespace nanomind {
namespace {

using Value = std::string_view;

struct Setting {
  const char* name;
  Result<void> (*set)(Settings& settings, Value value);
};

template <auto Field>
Result<void> set_text(Settings& settings, Value value) {
  settings.*Field = std::string(value);
  return {};
}

template <auto Field>
Result<void> set_threads(Settings& settings, Value value) {
  settings.*Field = static_cast<int>(TRY(parse_integer(value, 0, 1024)));
  return {};
}

template <auto Field>
Result<void> set_sampler_number(Settings& settings, Value value) {
  settings.sampler.*Field = TRY(parse_number(value));
  return {};
}

template <auto Part, auto Field>
Result<void> set_number(Settings& settings, Value value) {
  (settings.sampler.*Part).*Field = TRY(parse_number(value));
  return {};
}

template <auto Part, auto Field>
Result<void> set_count(Settings& settings, Value value) {
  (settings.sampler.*Part).*Field = static_cast<int>(TRY(parse_integer(value, 0, kMostWindow)));
  return {};
}

constexpr std::array kSettings = {
    Setting{"model", set_text<&Settings::model>},
    Setting{"models", set_text<&Settings::models_folder>},
    Setting{"packed", set_text<&Settings::packed_folder>},
    Setting{"device", set_text<&Settings::device>},
    Setting{"isa", set_text<&Settings::isa>},
    Setting{"threads", set_threads<&Settings::threads>},
    Setting{"threads_decode", set_threads<&Settings::decode_threads>},
    Setting{"threads_prefill", set_threads<&Settings::prefill_threads>},
    Setting{"ctx",
            [](Settings& s, Value v) -> Result<void> {
              s.context = TRY(parse_integer(v, 0, int64_t{1} << 31));
              return {};
            }},
    Setting{"kv_type",
            [](Settings& s, Value v) -> Result<void> {
              s.kv_type = TRY(parse_kv_type(v));
              return {};
            }},
    Setting{"memory",
            [](Settings& s, Value v) -> Result<void> {
              s.memory_bytes = TRY(parse_bytes(v));
              return {};
            }},
    Setting{"picture_cache",
            [](Settings& s, Value v) -> Result<void> {
              s.picture_cache_bytes = v == "0" ? 0 : TRY(parse_bytes(v));
              return {};
            }},
    Setting{"max_tokens",
            [](Settings& s, Value v) -> Result<void> {
              s.max_tokens = TRY(parse_integer(v, -1, int64_t{1} << 31));
              return {};
            }},
    Setting{"system", set_text<&Settings::system>},
    Setting{"think_budget",
            [](Settings& s, Value v) -> Result<void> {
              s.think_budget = TRY(parse_integer(v, -1, int64_t{1} << 31));
              return {};
            }},
    Setting{"temp", set_sampler_number<&SamplerOptions::temperature>},
    Setting{"top_k",
            [](Settings& s, Value v) -> Result<void> {
              s.sampler.top_k = static_cast<int>(TRY(parse_integer(v, 0, 1 << 30)));
              return {};
            }},
    Setting{"top_p", set_sampler_number<&SamplerOptions::top_p>},
    Setting{"min_p", set_sampler_number<&SamplerOptions::min_p>},
    Setting{"typical_p", set_sampler_number<&SamplerOptions::typical_p>},
    Setting{"repeat_penalty", set_sampler_number<&SamplerOptions::repetition_penalty>},
    Setting{"presence_penalty", set_sampler_number<&SamplerOptions::presence_penalty>},
    Setting{"frequency_penalty", set_sampler_number<&SamplerOptions::frequency_penalty>},
    Setting{"repeat_last",
            [](Settings& s, Value v) -> Result<void> {
              s.sampler.repetition_window = static_cast<int>(TRY(parse_integer(v, -1, kMostWindow)));
              return {};
            }},
    Setting{"dry", set_number<&SamplerOptions::dry, &DryOptions::multiplier>},
    Setting{"dry_base", set_number<&SamplerOptions::dry, &DryOptions::base>},
    Setting{"dry_length", set_count<&SamplerOptions::dry, &DryOptions::allowed_length>},
    Setting{"dry_window", set_count<&SamplerOptions::dry, &DryOptions::window>},
    Setting{"xtc", set_number<&SamplerOptions::xtc, &XtcOptions::probability>},
    Setting{"xtc_threshold", set_number<&SamplerOptions::xtc, &XtcOptions::threshold>},
    Setting{"mirostat",
            [](Settings& s, Value v) -> Result<void> {
              s.sampler.mirostat.tau = TRY(parse_number(v));
              const bool on = s.sampler.mirostat.tau > 0;
              s.sampler.mirostat.version = on ? MirostatOptions::Version::v2 : MirostatOptions::Version::off;
              return {};
            }},
    Setting{"mirostat_rate", set_number<&SamplerOptions::mirostat, &MirostatOptions::eta>},
    Setting{"seed",
            [](Settings& s, Value v) -> Result<void> {
              s.sampler.seed = static_cast<uint64_t>(TRY(parse_integer(v, 0, INT64_MAX)));
              return {};
            }},
};

std::string variable_of(const char* name) {
  std::string variable = "NANOMIND_";
  for (const char* c = name; *c != '\0'; ++c)
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
  return variable;
}

std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return std::to_string(integer->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  return std::nullopt;
}

Result<std::optional<std::string>> read_if_there(const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) {
    return fail(ErrorCode::io,
                fmt::format("Cannot read {}: {}. Make it readable or remove it.", path.string(), std::strerror(errno)));
  }
  return text;
}

}  // namespace

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const Setting& setting : kSettings) names.emplace_back(setting.name);
  return names;
}

Result<void> apply_setting(Settings& settings, std::string_view name, std::string_view value) {
  for (const Setting& setting : kSettings) {
    if (name != setting.name) continue;
    if (auto done = setting.set(settings, value); !done) {
      return fail(ErrorCode::invalid_argument, fmt::format("{}: {}", name, done.error().message));
    }
    return {};
  }
  return fail(ErrorCode::not_found,
              fmt::format("There is no setting '{}'; there are {}.", name, fmt::join(setting_names(), ", ")));
}

Result<void> apply_toml(Settings& settings, std::string_view toml, std::string_view origin, const Log& log) {
  toml::table table;
  try {
    table = toml::parse(toml);
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::invalid_argument, fmt::format("{}, line {}: {}. Correct that line.", origin,
                                                         error.source().begin.line, error.description()));
  }
  for (const auto& [key, node] : table) {
    const auto text = text_of(node);
    if (!text) {
      return fail(ErrorCode::invalid_argument, fmt::format("{}: {} must be a text or a number.", origin, key.str()));
    }
    auto done = apply_setting(settings, key.str(), *text);
    if (done) continue;
    if (done.error().code != ErrorCode::not_found) {
      return fail(ErrorCode::invalid_argument, fmt::format("{}: {}", origin, done.error().message));
    }
    log.warning(fmt::format("{}: {}", origin, done.error().message));
  }
  return {};
}

Result<Settings> load_settings(const std::filesystem::path& config_file,
                               const std::function<std::string(const char*)>& variable, const Log& log) {
  Settings settings;
  if (const auto toml = TRY(read_if_there(config_file))) TRY(apply_toml(settings, *toml, config_file.string(), log));
  for (const Setting& setting : kSettings) {
    const std::string name = variable_of(setting.name);
    const std::string value = variable(name.c_str());
    if (value.empty()) continue;
    if (auto done = setting.set(settings, value); !done) {
      return fail(ErrorCode::invalid_argument, fmt::format("Environment variable {}: {}", name, done.error().message));
    }
  }
  return settings;
}

}  // namespace nanomind
