// SPDX-License-Identifier: Apache-2.0
// What the program takes from its surroundings: environment variables and the folders that they mean (XDG base
// directories).
#pragma once

#include <filesystem>
#include <string>

namespace nanomind {

// Value of an environment variable; unset and empty are the same.
std::string environment(const char* name);

// The user's folders. An empty path means that there is none (no HOME and no entry in the user database).
struct UserFolders {
  std::filesystem::path home;
  std::filesystem::path config;  // .../nanomind in XDG_CONFIG_HOME
  std::filesystem::path state;   // .../nanomind in XDG_STATE_HOME
  std::filesystem::path cache;   // .../nanomind in XDG_CACHE_HOME: what may be lost
};

UserFolders user_folders();

// A leading "~" or "~/" replaced by `home`, for names that no shell has seen.
std::filesystem::path expand_home(const std::string& text, const std::filesystem::path& home);

}  // namespace nanomind
