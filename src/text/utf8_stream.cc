// SPDX-License-Identifier: Apache-2.0
#include "text/utf8_stream.h"

#include "text/utf8.h"

namespace nanomind {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  const std::string text = pending_.append(bytes);
  pending_.clear();
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const Utf8Step step = next_utf8(text, position);
    if (step.kind == Utf8Kind::incomplete) {
      pending_ = text.substr(position);
      break;
    }
    if (step.kind == Utf8Kind::valid) {
      out.append(text, position, step.length);
    } else {
      out += kReplacement;
    }
    position += step.length;
  }
  return out;
}

std::string Utf8Stream::finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return std::string(cut ? kReplacement : std::string_view());
}

}  // namespace nanomind
