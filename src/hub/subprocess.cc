// SPDX-License-Identifier: Apache-2.0
#include "hub/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include "hub/http.h"

namespace nanomind {
namespace {

constexpr std::chrono::milliseconds kTick{100};
constexpr int kTicksToEnd = 30;  // patience with a program that was asked to end

std::vector<std::string> make_environment(const std::vector<std::string>& changes) {
  const auto name_of = [](std::string_view variable) { return variable.substr(0, variable.find('=')); };
  std::vector<std::string> out;
  for (char** variable = environ; *variable; ++variable) {
    const bool changed =
        std::ranges::any_of(changes, [&](const std::string& c) { return name_of(c) == name_of(*variable); });
    if (!changed) out.emplace_back(*variable);
  }
  for (const std::string& change : changes) {
    if (change.find('=') != std::string::npos) out.push_back(change);
  }
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// 0 or an errno.
int spawn(const Command& command, pid_t* child) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, command.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, ordinary;
  sigemptyset(&none);
  sigemptyset(&ordinary);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGHUP}) sigaddset(&ordinary, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &ordinary);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> words = command.words;
  std::vector<std::string> environment = make_environment(command.environment);
  const int error = posix_spawnp(child, words.front().c_str(), &files, &attributes, pointers(words).data(),
                                 pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

}  // namespace

Result<std::optional<int>> run_command(const Command& command, const std::function<void()>& tick,
                                       std::stop_token stop) {
  pid_t child = -1;
  if (const int error = spawn(command, &child); error == ENOENT || error == EACCES || error == ENOTDIR) {
    return std::nullopt;
  } else if (error != 0) {
    return fail(ErrorCode::io,
                fmt::format("{} could not be started: {}.", command.words.front(), std::strerror(error)));
  }
  int status = 0;
  for (int ticks_stopping = 0;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR)
      return fail(ErrorCode::io, fmt::format("{} was lost: {}.", command.words.front(), std::strerror(errno)));
    if (stop.stop_requested()) {
      if (ticks_stopping == 0) ::kill(-child, SIGTERM);
      if (ticks_stopping == kTicksToEnd) ::kill(-child, SIGKILL);
      ++ticks_stopping;
      sleep_for(kTick, {});
      continue;
    }
    if (tick) tick();
    sleep_for(kTick, stop);
  }
  if (stop.stop_requested()) return fail(ErrorCode::cancelled, "Stopped on request; what has come is kept.");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace nanomind
