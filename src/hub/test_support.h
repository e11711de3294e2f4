// SPDX-License-Identifier: Apache-2.0
// For tests of this folder: a temporary folder, files, a wheel, a stand-in for pip, a model's bytes.
#pragma once

#include <stdlib.h>
#include <zip.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"

namespace nanomind::test {

// Removed with all that is in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nanomind-hub-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline std::string sha256_of(std::string_view text) { return hex(sha256(std::as_bytes(std::span(text)))); }

// A GGUF v3 header without keys and tensors, then `bytes` bytes that do not repeat soon.
inline std::string model_bytes(size_t bytes) {
  std::string out("GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
  uint32_t state = 1;
  while (out.size() < 24 + bytes) {
    state = state * 1664525u + 1013904223u;
    out += static_cast<char>(state >> 24);
  }
  return out;
}

inline void write_wheel(const std::filesystem::path& path,
                        const std::vector<std::pair<std::string, std::string>>& members) {
  int error = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error);
  CHECK(archive != nullptr);
  for (const auto& [name, bytes] : members) {
    zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
    CHECK(source && zip_file_add(archive, name.c_str(), source, 0) >= 0);
  }
  CHECK(zip_close(archive) == 0);
}

// A program that answers `download ... -d FOLDER name==version` from `wheels`/name-version.whl, and notes each call in
// wheels/calls.
inline std::filesystem::path write_fake_pip(const std::filesystem::path& wheels) {
  const std::filesystem::path path = wheels / "fake-pip";
  write_file(path,
             "#!/bin/sh\n"
             "while [ $# -gt 1 ]; do [ \"$1\" = -d ] && folder=$2; shift; done\n"
             "wheel=$(echo \"$1\" | sed s/==/-/).whl\n"
             "echo \"$1\" >> '" +
                 wheels.string() +
                 "/calls'\n"
                 "if [ ! -f '" +
                 wheels.string() +
                 "'/\"$wheel\" ]; then\n"
                 "  echo \"ERROR: No matching distribution found for $1\" >&2; exit 1\n"
                 "fi\n"
                 "cp '" +
                 wheels.string() + "'/\"$wheel\" \"$folder\"/\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

}  // namespace nanomind::test
