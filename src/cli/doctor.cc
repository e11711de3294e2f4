// SPDX-License-Identifier: Apache-2.0
// nanomind doctor: what this machine has, what will be used, what is missing, and what to do about it.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/commands.h"
#include "cli/models.h"
#include "cli/quantity.h"
#include "device/registry.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

enum class Verdict { good, advice, problem };

struct Finding {
  std::string subject;
  Verdict verdict = Verdict::good;
  std::string text;
};

// Processor flags that matter for kernels.
constexpr std::array kCpuFlags = {"avx2",     "fma",      "f16c",  "avx512f", "avx512_vnni", "avx512_bf16",
                                  "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm",        "sve"};

// Value of the first line "key : value" of a file in /proc.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != key) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

Finding check_processor() {
  std::string model = proc_value("/proc/cpuinfo", "model name");
  if (model.empty()) model = "unknown model";
  std::string flags = proc_value("/proc/cpuinfo", "flags");
  if (flags.empty()) flags = proc_value("/proc/cpuinfo", "Features");
  std::vector<std::string> present;
  std::istringstream words(flags);
  for (std::string word; words >> word;) {
    if (std::ranges::find(kCpuFlags, word) != kCpuFlags.end()) present.push_back(word);
  }
  return {"processor", Verdict::good,
          fmt::format("{}, {} cores; {}", model, std::thread::hardware_concurrency(), fmt::join(present, " "))};
}

Finding check_kernels(const Context& context) {
  const Settings& settings = context.settings;
  const auto device = open_device(settings.device, {.threads = settings.threads,
                                                    .decode_threads = settings.decode_threads,
                                                    .prefill_threads = settings.prefill_threads,
                                                    .state_folder = context.folders.state,
                                                    .isa = settings.isa});
  if (!device) return {"kernels", Verdict::problem, device.error().message};
  return {"kernels", Verdict::good,
          fmt::format("{} run here; {} will be used ({}; threads {})", fmt::join(device_isas(), ", "),
                      (*device)->info().isa, (*device)->info().description, (*device)->info().threads_reason)};
}

Finding check_memory() {
  const std::string text = proc_value("/proc/meminfo", "MemAvailable");
  const uint64_t available = std::strtoull(text.c_str(), nullptr, 10) * 1024;
  if (available < (uint64_t{700} << 20)) {
    return {"memory", Verdict::advice,
            fmt::format("{} are available; choose a small model such as smollm2-135m, or close programs",
                        format_bytes(available))};
  }
  return {"memory", Verdict::good, fmt::format("{} are available", format_bytes(available))};
}

// The folder itself or the nearest one above it that exists.
fs::path existing_folder(fs::path path) {
  std::error_code error;
  while (!path.empty() && !fs::exists(path, error) && path != path.parent_path()) path = path.parent_path();
  return path.empty() ? fs::path(".") : path;
}

Finding check_folder(const std::string& subject, const fs::path& folder, uint64_t wanted, const std::string& advice) {
  const fs::path existing = existing_folder(folder);
  std::error_code error;
  const uint64_t room = fs::space(existing, error).available;
  if (access(existing.c_str(), W_OK) != 0)
    return {subject, Verdict::problem, fmt::format("{} cannot be written; {}", folder.string(), advice)};
  if (!error && room < wanted) {
    return {subject, Verdict::advice,
            fmt::format("{} has only {} free; {}", folder.string(), format_bytes(room), advice)};
  }
  return {subject, Verdict::good, fmt::format("{}, {} free", folder.string(), format_bytes(room))};
}

// Runs a command without input and output; whether it succeeded.
bool succeeds(std::vector<const char*> arguments) {
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, nullptr, const_cast<char* const*>(arguments.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  return failed == 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Finding check_pip() {
  if (succeeds({"python3", "-m", "pip", "--version"}))
    return {"pip", Verdict::good, "python3 -m pip; `pull` can use Python packages as a source"};
  if (succeeds({"pip3", "--version"}) || succeeds({"pip", "--version"}))
    return {"pip", Verdict::good, "found; `pull` can use Python packages as a source"};
  return {"pip", Verdict::advice,
          "not found, so `pull` can only use the hub; apt-get install python3-pip adds the other source"};
}

Finding check_settings(const Context& context) {
  const fs::path file = context.folders.config / "config.toml";
  std::error_code error;
  if (context.folders.config.empty())
    return {"settings", Verdict::advice, "there is no home folder, so no config.toml; set HOME"};
  return {"settings", Verdict::good,
          fs::exists(file, error) ? file.string() : file.string() + " (not there; defaults are used)"};
}

std::vector<Finding> check_models(const Context& context) {
  const auto store = open_store(context);
  if (!store) return {{"models", Verdict::problem, store.error().message}};
  const std::string elsewhere = "set NANOMIND_MODELS to a folder that has room and can be written";
  std::vector<Finding> findings = {
      check_folder("models", store->root(), uint64_t{1} << 30, elsewhere),
      check_folder(
          "packed",
          context.settings.packed_folder.empty() ? store->packed_dir() : fs::path(context.settings.packed_folder),
          uint64_t{1} << 29, "weights will be packed in memory at every start; " + elsewhere)};
  const auto stored = store->list();
  if (!stored) return {{"stored", Verdict::problem, stored.error().message}};
  std::vector<std::string> names;
  for (const StoredModel& model : *stored)
    names.push_back(fmt::format("{} ({})", model.name, format_bytes(model.bytes)));
  findings.push_back({"stored", names.empty() ? Verdict::advice : Verdict::good,
                      names.empty() ? "no model yet; `nanomind pull` fetches the default one"
                                    : fmt::format("{}", fmt::join(names, ", "))});
  const auto catalog = open_catalog(context);
  if (!catalog) {
    findings.push_back({"catalog", Verdict::problem, catalog.error().message});
  } else if (const CatalogEntry* entry = catalog->default_entry()) {
    findings.push_back({"default", Verdict::good,
                        context.settings.model.empty() ? entry->name : context.settings.model + " (your setting)"});
  }
  return findings;
}

const char* mark(Verdict verdict) {
  switch (verdict) {
    case Verdict::good: return "ok";
    case Verdict::advice: return "note";
    case Verdict::problem: return "PROBLEM";
  }
  return "";
}

Result<void> run(const Context& context, bool json) {
  std::vector<Finding> findings = {check_processor(), check_kernels(context), check_memory()};
  std::ranges::copy(check_models(context), std::back_inserter(findings));
  findings.push_back(check_pip());
  findings.push_back(check_settings(context));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::string text;
  for (const Finding& finding : findings) {
    list.push_back({{"subject", finding.subject}, {"verdict", mark(finding.verdict)}, {"text", finding.text}});
    text += fmt::format("{:<8} {:<10} {}\n", mark(finding.verdict), finding.subject, finding.text);
  }
  context.out.write(json ? list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n" : text);
  if (std::ranges::any_of(findings, [](const Finding& finding) { return finding.verdict == Verdict::problem; })) {
    return fail(ErrorCode::unsupported, "Something has to be set right before everything works; see PROBLEM above.");
  }
  return {};
}

}  // namespace

void add_doctor(CLI::App& app, Context& context, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("doctor", "Tell what this machine has, what will be used, and what is missing");
  command->add_flag("--json", *json, "print a JSON list");
  command->callback([&context, &action, json] { action = [&context, json] { return run(context, *json); }; });
}

}  // namespace nanomind
