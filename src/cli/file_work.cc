// SPDX-License-Identifier: Apache-2.0
#include "cli/file_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <system_error>

#include "base/cpu_topology.h"
#include "cli/interrupt.h"

namespace nanomind {

Result<void> run_file_work(const Context& context, std::string_view label, int threads,
                           const std::function<Result<void>(const WriteOptions&)>& work) {
  if (threads <= 0) threads = context.settings.threads;
  if (threads <= 0) threads = read_cpu_topology("/", allowed_processors()).threads;
  ThreadPool pool(threads);
  const StoppingInterrupt interrupt;
  const auto progress = [&](uint64_t done, uint64_t total) { context.console.progress(label, done, total); };
  const auto result = work({.pool = pool, .progress = progress, .stop = interrupt.token()});
  context.console.end_progress();
  return result;
}

Result<DType> parse_dtype(std::string_view text) {
  std::string known;
  for (const DType dtype : kDTypes) {
    std::string name(traits(dtype).name);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
    if (std::ranges::equal(name, text, same)) return dtype;
    known += known.empty() ? name : ", " + name;
  }
  return fail(ErrorCode::invalid_argument, fmt::format("There is no type '{}'; types are {}.", text, known));
}

Result<void> check_target(const std::filesystem::path& source, const std::filesystem::path& target) {
  std::error_code error;
  if (target.extension() != ".gguf") {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' does not end in .gguf, which is what will be written.", target.string()));
  }
  if (std::filesystem::is_directory(target, error))
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is a folder.", target.string()));
  if (std::filesystem::equivalent(source, target, error)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' cannot be read and replaced at once. Choose another name.", target.string()));
  }
  return {};
}

}  // namespace nanomind
