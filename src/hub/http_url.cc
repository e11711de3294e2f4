// SPDX-License-Identifier: Apache-2.0
#include "hub/http_url.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <memory>

namespace nanomind {
namespace {

struct UrlFree {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlFree>;

Url parse_url(std::string_view text) {
  Url url(curl_url());
  if (!url || curl_url_set(url.get(), CURLUPART_URL, std::string(text).c_str(), 0) != CURLUE_OK) return nullptr;
  return url;
}

std::string url_part(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (!url || curl_url_get(url.get(), part, &text, flags) != CURLUE_OK || !text) return {};
  std::string out(text);
  curl_free(text);
  return out;
}

std::string origin(std::string_view text) {
  const Url url = parse_url(text);
  return fmt::format("{}://{}:{}", url_part(url, CURLUPART_SCHEME), url_part(url, CURLUPART_HOST),
                     url_part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

}  // namespace

bool same_origin(std::string_view a, std::string_view b) { return origin(a) == origin(b); }

bool is_this_machine(std::string_view url) {
  const std::string host = url_part(parse_url(url), CURLUPART_HOST);
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

bool is_protected(std::string_view url) {
  return url_part(parse_url(url), CURLUPART_SCHEME) == "https" || is_this_machine(url);
}

Result<void> check_redirect(std::string_view from, std::string_view to) {
  const std::string old_scheme = url_part(parse_url(from), CURLUPART_SCHEME);
  const std::string new_scheme = url_part(parse_url(to), CURLUPART_SCHEME);
  if (new_scheme == "https" || (new_scheme == "http" && old_scheme == "http")) return {};
  if (new_scheme == "http") {
    return fail(ErrorCode::network, fmt::format("{} leads from HTTPS to the unprotected {}; that is not followed.",
                                                public_url(from), public_url(to)));
  }
  return fail(
      ErrorCode::network,
      fmt::format("{} leads to something that is neither HTTP nor HTTPS; that is not followed.", public_url(from)));
}

std::string public_url(std::string_view text) {
  const Url url = parse_url(text);
  if (!url) return "(an address that cannot be read)";
  for (const CURLUPart part :
       {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS, CURLUPART_QUERY, CURLUPART_FRAGMENT}) {
    curl_url_set(url.get(), part, nullptr, 0);
  }
  return url_part(url, CURLUPART_URL);
}

}  // namespace nanomind
