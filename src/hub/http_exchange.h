// SPDX-License-Identifier: Apache-2.0
// One HTTP request to one server, by libcurl, and what its outcome means. Neither follows redirects nor tries again:
// http.cc does.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "hub/http.h"

namespace nanomind {

// What the server said before the body.
struct HttpHead {
  long status = 0;
  std::string etag;
  std::string content_type;  // in lower case
  std::string location;
  std::optional<uint64_t> range_start;
  std::optional<uint64_t> length;
  std::optional<std::chrono::milliseconds> retry_after;
};

enum class HttpBegin { go, again };  // again: this reply does not fit what is here; ask anew

// Where the body of a good reply goes.
struct HttpBody {
  std::function<uint64_t()> position;                       // bytes that are here already
  std::function<std::string()> etag;                        // their validator
  std::function<Result<HttpBegin>(const HttpHead&)> begin;  // before the first byte
  std::function<Result<void>()> forget;                     // what is here does not fit the server's file
  std::function<Result<void>(std::span<const std::byte>)> write;
  std::function<void()> tick;  // now and then while bytes come
};

// unreachable: worth another attempt only if there was a connection before.
enum class HttpOutcome { done, redirected, retry, unreachable, failed };

struct HttpAttempt {
  HttpOutcome outcome = HttpOutcome::failed;
  Error error = {};                                           // unless done or redirected
  std::string location = {};                                  // when redirected
  std::optional<std::chrono::milliseconds> retry_after = {};  // as the server asked
};

// Asks `url` for what `body` lacks. `token` may be empty. Stopped: failed with the error cancelled.
HttpAttempt exchange(const HttpOptions& options, const HttpBody& body, const std::string& url, const std::string& token,
                     const std::stop_token& stop);

HttpAttempt failed_attempt(Error error);

}  // namespace nanomind
