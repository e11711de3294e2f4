// SPDX-License-Identifier: Apache-2.0
// Failure as a value: Result<T> is std::expected<T, Error>, TRY passes an error up, CHECK stops on a broken invariant.
// CHECK is for our own mistakes only; whatever comes from a file, a user or the network is an Error.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <expected>
#include <string>
#include <utility>

namespace nanomind {

enum class ErrorCode {
  invalid_argument,  // the caller asked for something that cannot be
  not_found,         // file, model, tensor or key is missing
  corrupt,           // bytes are not what their format promises
  unsupported,       // well-formed, but we cannot do it
  out_of_memory,     // would not fit in the memory budget
  no_space,          // disk full or quota reached
  io,                // the operating system refused a read or write
  network,           // peer lost, refused, or answered badly
  cancelled,         // stopped on request
  context_full,      // the context window has no room for more tokens
};

// What went wrong, and in `message` what the user can do about it. One or more full sentences, no trailing newline.
struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string message;
};

template <typename T>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> fail(ErrorCode code, std::string message) {
  return std::unexpected<Error>(Error{code, std::move(message)});
}

namespace detail {
template <typename T>
T take(std::expected<T, Error>&& result) {
  return *std::move(result);
}
inline void take(std::expected<void, Error>&&) {}
}  // namespace detail

}  // namespace nanomind

// Evaluates to the value of a Result, or returns its error from the enclosing function.
#define TRY(expression)                                                          \
  ({                                                                             \
    auto try_result_ = (expression);                                             \
    if (!try_result_) [[unlikely]]                                               \
      return std::unexpected<::nanomind::Error>(std::move(try_result_).error()); \
    ::nanomind::detail::take(std::move(try_result_));                            \
  })

#define CHECK(condition)                                                                     \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
