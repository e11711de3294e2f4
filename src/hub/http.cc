// SPDX-License-Identifier: Apache-2.0
#include "hub/http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "hub/http_exchange.h"
#include "hub/http_url.h"

namespace nanomind {
namespace {

using std::chrono::milliseconds;

constexpr int kMaxRedirects = 8;
constexpr milliseconds kFirstWait{1000};
constexpr milliseconds kLongestOwnWait{16000};

// One request, following where it is sent.
HttpAttempt follow(const HttpOptions& options, const HttpRequest& request, const HttpBody& body,
                   const std::stop_token& stop) {
  std::string url = request.url;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    const bool show_token = is_protected(url) && same_origin(url, request.url);
    HttpAttempt attempt = exchange(options, body, url, show_token ? request.token : std::string(), stop);
    if (attempt.outcome != HttpOutcome::redirected) return attempt;
    if (auto allowed = check_redirect(url, attempt.location); !allowed)
      return failed_attempt(std::move(allowed).error());
    url = std::move(attempt.location);
  }
  return failed_attempt({ErrorCode::network, fmt::format("{} leads in circles (more than {} redirects).",
                                                         public_url(request.url), kMaxRedirects)});
}

// Repeats a request that may succeed later.
Result<void> repeat(const HttpOptions& options, const HttpRequest& request, const HttpBody& body,
                    std::stop_token stop) {
  // Explicitly here, because the implicit initialisation is not safe with several threads.
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (initialised != CURLE_OK) return fail(ErrorCode::io, "The HTTP library cannot be started.");
  bool reached = false;
  for (int failures = 0;;) {
    const uint64_t before = body.position();
    HttpAttempt attempt = follow(options, request, body, stop);
    if (attempt.outcome == HttpOutcome::done) return {};
    const bool progressed = body.position() > before;
    reached = reached || progressed;
    if (attempt.outcome == HttpOutcome::failed || (attempt.outcome == HttpOutcome::unreachable && !reached))
      return std::unexpected(std::move(attempt.error));
    failures = progressed ? 1 : failures + 1;
    if (failures >= options.max_attempts) return std::unexpected(std::move(attempt.error));
    const milliseconds own = std::min(kFirstWait * (1 << std::min(failures - 1, 10)), kLongestOwnWait);
    const milliseconds wait = std::max(attempt.retry_after.value_or(own), milliseconds(0));
    if (wait > options.longest_wait) {
      return fail(ErrorCode::network,
                  fmt::format("{} It asks to wait for {} s.", attempt.error.message, wait.count() / 1000));
    }
    options.sleep(wait, stop);
    if (stop.stop_requested()) return fail(ErrorCode::cancelled, "Stopped on request; what has come is kept.");
  }
}

Result<void> refuse_page(const HttpHead& head, std::string_view url) {
  if (!head.content_type.starts_with("text/html")) return {};
  return fail(
      ErrorCode::network,
      fmt::format("{} answered with a web page instead of a file. Is it the address of a page, or does this network "
                  "want a login first?",
                  public_url(url)));
}

}  // namespace

void sleep_for(milliseconds duration, std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_for(lock, stop, duration, [] { return false; });
}

HttpClient::HttpClient(HttpOptions options) : options_(std::move(options)) {}

Result<void> HttpClient::download(const HttpRequest& request, PartialFile& file, const HttpProgressFunction& progress,
                                  std::stop_token stop) const {
  uint64_t total = 0;
  // Without a validator nobody can say whether the kept bytes belong to the same file.
  const auto position = [&] { return file.etag().empty() ? 0 : file.size(); };
  HttpBody body;
  body.position = position;
  body.etag = [&] { return file.etag(); };
  body.forget = [&] { return file.restart(""); };
  body.begin = [&](const HttpHead& head) -> Result<HttpBegin> {
    TRY(refuse_page(head, request.url));
    const uint64_t promised = head.length ? head.range_start.value_or(0) + *head.length : 0;
    if (request.expected_bytes != 0 && promised != 0 && promised != request.expected_bytes) {
      return fail(ErrorCode::corrupt, fmt::format("{} has {} bytes where {} were expected: it is another file.",
                                                  public_url(request.url), promised, request.expected_bytes));
    }
    const bool same_file = head.etag.empty() || head.etag == file.etag();
    if (head.status == 206 && same_file && head.range_start == position()) {
      total = promised;
      return HttpBegin::go;
    }
    TRY(file.restart(head.etag));
    total = head.length.value_or(0);
    // The rest of another file is of no use.
    return head.status == 206 ? HttpBegin::again : HttpBegin::go;
  };
  body.write = [&](std::span<const std::byte> bytes) { return file.append(bytes); };
  body.tick = [&] {
    if (progress) progress({.done = file.size(), .total = total});
  };
  return repeat(options_, request, body, stop);
}

Result<std::string> HttpClient::get_text(const HttpRequest& request, uint64_t limit, std::stop_token stop) const {
  std::string text;
  HttpBody body;
  body.position = [] { return uint64_t{0}; };
  body.etag = [] { return std::string(); };
  body.forget = []() -> Result<void> { return {}; };
  body.begin = [&](const HttpHead& head) -> Result<HttpBegin> {
    text.clear();
    TRY(refuse_page(head, request.url));
    return HttpBegin::go;
  };
  body.write = [&](std::span<const std::byte> bytes) -> Result<void> {
    if (text.size() + bytes.size() > limit) {
      return fail(ErrorCode::network, fmt::format("{} sent more than {} bytes.", public_url(request.url), limit));
    }
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  };
  body.tick = [] {};
  TRY(repeat(options_, request, body, stop));
  return text;
}

}  // namespace nanomind
