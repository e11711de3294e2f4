// SPDX-License-Identifier: Apache-2.0
// HTTP and HTTPS for downloads, by libcurl: proxies of the environment, redirects that never leave HTTPS, ranges to go
// on where a transfer broke, patience with busy servers. Messages never contain tokens, nor the query or password part
// of an address.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/partial_file.h"

namespace nanomind {

// Waits that long, less when a stop is requested. Replaced in tests.
using Sleeper = std::function<void(std::chrono::milliseconds, std::stop_token)>;
void sleep_for(std::chrono::milliseconds duration, std::stop_token stop);

struct HttpOptions {
  std::string user_agent = "nanomind";
  std::chrono::milliseconds connect_timeout{15000};
  std::chrono::milliseconds stall_timeout{
      30000};            // no byte for that long breaks the transfer; there is no limit on the whole
  int max_attempts = 5;  // without progress; a new byte starts the count again
  std::chrono::milliseconds longest_wait{60000};  // a server that asks for more patience than that is given up
  Sleeper sleep = sleep_for;
};

struct HttpRequest {
  std::string url;
  std::string token = {};       // sent as bearer token to the first host only, and only over HTTPS or to this machine
  uint64_t expected_bytes = 0;  // a download of another size is refused (corrupt) before it starts; 0: any
};

struct HttpProgress {
  uint64_t done = 0;   // bytes of the whole file that are here
  uint64_t total = 0;  // 0: not said
};
using HttpProgressFunction = std::function<void(const HttpProgress&)>;

// Threads: a const HttpClient may be used from several at once.
class HttpClient {
 public:
  explicit HttpClient(HttpOptions options = {});

  // Brings the rest of the file. Goes on from what `file` has if the server agrees that it is the same, else starts
  // again. A reply that is a web page is an error; so is one shorter than promised, after all attempts. Errors:
  // network, not_found (404), cancelled, and those of the file.
  Result<void> download(const HttpRequest& request, PartialFile& file, const HttpProgressFunction& progress,
                        std::stop_token stop) const;

  // A small reply as text; more than `limit` bytes is an error.
  Result<std::string> get_text(const HttpRequest& request, uint64_t limit, std::stop_token stop) const;

 private:
  HttpOptions options_;
};

}  // namespace nanomind
