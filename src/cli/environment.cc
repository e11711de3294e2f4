// SPDX-License-Identifier: Apache-2.0
#include "cli/environment.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace nanomind {
namespace {

std::filesystem::path home_folder() {
  if (const std::string home = environment("HOME"); !home.empty()) return home;
  const passwd* entry = getpwuid(getuid());
  return entry != nullptr && entry->pw_dir != nullptr ? entry->pw_dir : "";
}

// The XDG specification says that relative paths are to be ignored.
std::filesystem::path xdg_folder(const char* variable, const std::filesystem::path& home, const char* below_home) {
  const std::filesystem::path set = environment(variable);
  if (set.is_absolute()) return set / "nanomind";
  return home.empty() ? home : home / below_home / "nanomind";
}

}  // namespace

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

UserFolders user_folders() {
  const std::filesystem::path home = home_folder();
  return {.home = home,
          .config = xdg_folder("XDG_CONFIG_HOME", home, ".config"),
          .state = xdg_folder("XDG_STATE_HOME", home, ".local/state"),
          .cache = xdg_folder("XDG_CACHE_HOME", home, ".cache")};
}

std::filesystem::path expand_home(const std::string& text, const std::filesystem::path& home) {
  if (home.empty() || !text.starts_with('~')) return text;
  if (text.size() == 1) return home;
  return text[1] == '/' ? home / text.substr(2) : std::filesystem::path(text);
}

}  // namespace nanomind
