// SPDX-License-Identifier: Apache-2.0
#include "cli/input.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace nanomind {
namespace {

constexpr int kPatienceMs = 2000;
// More than any model's context by far; a mistyped redirection should not fill the memory.
constexpr size_t kInputBytesMax = size_t{256} << 20;

}  // namespace

bool input_is_terminal() { return isatty(STDIN_FILENO) == 1; }

Result<std::string> read_all_input() {
  std::string text;
  char block[1 << 16];
  for (;;) {
    const ssize_t n = read(STDIN_FILENO, block, sizeof block);
    if (n == 0) return text;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(ErrorCode::io, fmt::format("Cannot read standard input: {}.", std::strerror(errno)));
    text.append(block, static_cast<size_t>(n));
    if (text.size() > kInputBytesMax) {
      return fail(ErrorCode::invalid_argument, "Standard input has more than 256 MiB; give less text.");
    }
  }
}

Result<std::optional<std::string>> read_piped_input(const Context& context) {
  struct stat info{};
  if (fstat(STDIN_FILENO, &info) != 0 || S_ISCHR(info.st_mode) || S_ISDIR(info.st_mode)) return std::nullopt;
  pollfd waiting{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, kPatienceMs) == 0) {
    context.console.note("Waiting for the text on standard input. Without one, add </dev/null to the command.");
  }
  return TRY(read_all_input());
}

}  // namespace nanomind
