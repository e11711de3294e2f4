// SPDX-License-Identifier: Apache-2.0
#include "hub/http_exchange.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <ctime>
#include <utility>

#include "hub/http_url.h"

namespace nanomind {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct EasyFree {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct MultiFree {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
std::optional<uint64_t> parse_count(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::optional<milliseconds> parse_retry_after(std::string_view value) {
  if (const auto seconds = parse_count(value)) return std::chrono::seconds(std::min<uint64_t>(*seconds, 1'000'000));
  const time_t when = curl_getdate(std::string(value).c_str(), nullptr);
  if (when < 0) return std::nullopt;
  return std::chrono::seconds(std::max<time_t>(when - ::time(nullptr), 0));
}

void read_header(HttpHead& head, std::string_view line) {
  if (line.starts_with("HTTP/")) {  // a new reply; what an interim one or a proxy said is over
    head = {};
    const size_t space = line.find(' ');
    if (space != std::string_view::npos)
      head.status = static_cast<long>(parse_count(line.substr(space + 1)).value_or(0));
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = trim(line.substr(colon + 1));
  if (same_word(name, "etag")) {
    if (!value.starts_with("W/")) head.etag = value;  // a weak one does not promise the same bytes
  } else if (same_word(name, "content-type")) {
    head.content_type = value;
    std::ranges::transform(head.content_type, head.content_type.begin(),
                           [](unsigned char c) { return std::tolower(c); });
  } else if (same_word(name, "content-length")) {
    head.length = parse_count(value);
  } else if (same_word(name, "location")) {
    head.location = value;
  } else if (same_word(name, "retry-after")) {
    head.retry_after = parse_retry_after(value);
  } else if (same_word(name, "content-range") && value.starts_with("bytes ")) {
    head.range_start = parse_count(value.substr(6));
  }
}

// State of one transfer, shared with libcurl's callbacks.
struct Transfer {
  HttpHead head;
  const HttpBody* body = nullptr;
  bool begun = false;
  bool again = false;
  std::optional<Error> sink_error;
  Clock::time_point last_sign = Clock::now();

  bool good() const { return head.status == 200 || head.status == 206; }
  Result<void> begin() {
    if (std::exchange(begun, true)) return {};
    again = TRY(body->begin(head)) == HttpBegin::again;
    return {};
  }
};

size_t on_header(char* data, size_t size, size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  transfer.last_sign = Clock::now();
  read_header(transfer.head, {data, size * count});
  return size * count;
}

size_t on_body(char* data, size_t size, size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  transfer.last_sign = Clock::now();
  if (!transfer.good()) return size * count;  // an error's page is of no interest
  auto result = transfer.begin();
  if (transfer.again) return CURL_WRITEFUNC_ERROR;
  if (result) result = transfer.body->write(std::as_bytes(std::span(data, size * count)));
  if (result) return size * count;
  transfer.sink_error = std::move(result).error();
  return CURL_WRITEFUNC_ERROR;
}

HttpAttempt explain_status(const HttpHead& head, const std::string& place, bool had_token) {
  const long status = head.status;
  const auto say = [&](HttpOutcome outcome, ErrorCode code, std::string message) {
    return HttpAttempt{
        .outcome = outcome, .error = {code, std::move(message)}, .location = {}, .retry_after = head.retry_after};
  };
  if (status == 401 || status == 403) {
    return say(HttpOutcome::failed, ErrorCode::network,
               had_token ? fmt::format("{} refused access ({}) although a token was sent. Check that the token in "
                                       "HF_TOKEN may read this model "
                                       "and that you accepted the model's terms on its page.",
                                       place, status)
                         : fmt::format("{} refused access ({}): the model is gated, private, or not there. Accept its "
                                       "terms on its page, then "
                                       "set HF_TOKEN to a token that may read it.",
                                       place, status));
  }
  if (status == 404 || status == 410) {
    return say(HttpOutcome::failed, ErrorCode::not_found,
               fmt::format("{} does not exist ({}). Check the name.", place, status));
  }
  if (status == 407) {
    return say(HttpOutcome::failed, ErrorCode::network,
               fmt::format("The proxy wants a name and password (407) for {}. Put them into https_proxy.", place));
  }
  if (status == 408 || status == 425 || status == 429 || status == 500 || (status >= 502 && status <= 504)) {
    return say(HttpOutcome::retry, ErrorCode::network,
               fmt::format("{} is too busy ({}). Try again later.", place, status));
  }
  return say(HttpOutcome::failed, ErrorCode::network, fmt::format("{} answered with status {}.", place, status));
}

HttpAttempt changed(const std::string& place) {
  return {.outcome = HttpOutcome::retry,
          .error = {ErrorCode::network, fmt::format("{} changed while it was fetched. Try again.", place)},
          .location = {},
          .retry_after = milliseconds(0)};
}

HttpAttempt explain_curl(CURLcode code, const std::string& place, const char* detail) {
  const auto say = [&](HttpOutcome outcome, std::string message) {
    return HttpAttempt{
        .outcome = outcome, .error = {ErrorCode::network, std::move(message)}, .location = {}, .retry_after = {}};
  };
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return say(HttpOutcome::unreachable,
                 fmt::format("{} is not known to the name server. Is this machine online?", place));
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
      return say(
          HttpOutcome::unreachable,
          fmt::format("{} cannot be reached. Is this machine online, or does it need a proxy (https_proxy)?", place));
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return say(
          HttpOutcome::failed,
          fmt::format("The certificate of {} is not trusted. Check this machine's date, and that ca-certificates is "
                      "installed.",
                      place));
    case CURLE_SSL_CONNECT_ERROR:
      return say(HttpOutcome::unreachable,
                 fmt::format("No secure connection to {} could be made ({}).", place, detail));
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
      return say(HttpOutcome::failed, fmt::format("'{}' is no address that can be fetched.", place));
    default:
      return say(HttpOutcome::retry, fmt::format("The connection to {} broke ({}). Try again: what has come is kept.",
                                                 place, detail[0] ? detail : curl_easy_strerror(code)));
  }
}

using Headers = std::unique_ptr<curl_slist, ListFree>;

Headers make_headers(const HttpBody& body, const std::string& token) {
  Headers headers;
  const auto header = [&](const std::string& line) {
    headers.reset(curl_slist_append(headers.release(), line.c_str()));
  };
  if (!token.empty()) header("Authorization: Bearer " + token);
  if (const uint64_t position = body.position(); position > 0) {
    header(fmt::format("Range: bytes={}-", position));
    header("If-Range: " + body.etag());
  }
  return headers;
}

void prepare(CURL* easy, const HttpOptions& options, const std::string& url, const Headers& headers, Transfer& transfer,
             char* detail) {
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_USERAGENT, options.user_agent.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, detail);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
  // A proxy of the environment cannot reach servers of this machine.
  if (is_this_machine(url)) curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
}

// Runs the transfer to its end; nothing when it was stopped or fell silent.
std::optional<CURLcode> drive(CURLM* multi, CURL* easy, const HttpOptions& options, Transfer& transfer,
                              const std::stop_token& stop) {
  curl_multi_add_handle(multi, easy);
  std::optional<CURLcode> code;
  for (int running = 1;;) {
    curl_multi_perform(multi, &running);
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
      if (message->msg == CURLMSG_DONE) code = message->data.result;
    }
    if (transfer.begun) transfer.body->tick();
    if (code || running == 0 || stop.stop_requested()) break;
    const auto silence = Clock::now() - transfer.last_sign;
    // Making the connection has its own limit.
    if (silence > options.stall_timeout + (transfer.head.status == 0 ? options.connect_timeout : milliseconds(0)))
      break;
    curl_multi_poll(multi, nullptr, 0, 100, nullptr);
  }
  curl_multi_remove_handle(multi, easy);
  return code;
}

}  // namespace

HttpAttempt failed_attempt(Error error) {
  return {.outcome = HttpOutcome::failed, .error = std::move(error), .location = {}, .retry_after = {}};
}

HttpAttempt exchange(const HttpOptions& options, const HttpBody& body, const std::string& url, const std::string& token,
                     const std::stop_token& stop) {
  const std::string place = public_url(url);
  std::unique_ptr<CURLM, MultiFree> multi(curl_multi_init());
  std::unique_ptr<CURL, EasyFree> easy(curl_easy_init());
  if (!multi || !easy) return failed_attempt({ErrorCode::io, "There is no memory for a connection."});
  Transfer transfer{.head = {}, .body = &body, .begun = false, .again = false, .sink_error = {}};
  char detail[CURL_ERROR_SIZE] = {};
  const Headers headers = make_headers(body, token);
  prepare(easy.get(), options, url, headers, transfer, detail);

  const std::optional<CURLcode> code = drive(multi.get(), easy.get(), options, transfer, stop);
  if (stop.stop_requested())
    return failed_attempt({ErrorCode::cancelled, "Stopped on request; what has come is kept."});
  if (transfer.sink_error) return failed_attempt(*std::move(transfer.sink_error));
  if (transfer.again) return changed(place);
  if (!code) {
    return {.outcome = HttpOutcome::retry,
            .error = {ErrorCode::network, fmt::format("{} sent nothing for {} s. Try again: what has come is kept.",
                                                      place, options.stall_timeout.count() / 1000.0)},
            .location = {},
            .retry_after = {}};
  }
  if (*code != CURLE_OK) return explain_curl(*code, place, detail);
  if (transfer.head.status >= 300 && transfer.head.status < 400 && !transfer.head.location.empty()) {
    char* target = nullptr;
    curl_easy_getinfo(easy.get(), CURLINFO_REDIRECT_URL, &target);
    return {.outcome = HttpOutcome::redirected,
            .error = {},
            .location = target ? target : transfer.head.location,
            .retry_after = {}};
  }
  if (transfer.head.status == 416) {
    if (auto forgotten = body.forget(); !forgotten) return failed_attempt(std::move(forgotten).error());
    return changed(place);
  }
  if (!transfer.good()) return explain_status(transfer.head, place, !token.empty());
  if (auto begun = transfer.begin(); !begun) return failed_attempt(std::move(begun).error());
  if (transfer.again) return changed(place);
  return {.outcome = HttpOutcome::done, .error = {}, .location = {}, .retry_after = {}};
}

}  // namespace nanomind
