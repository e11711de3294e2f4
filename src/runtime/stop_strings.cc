// SPDX-License-Identifier: Apache-2.0
#include "runtime/stop_strings.h"

#include <algorithm>
#include <utility>

namespace nanomind {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& string : strings_) longest_ = std::max(longest_, string.size());
}

size_t StopStrings::beginning() const {
  const size_t first = held_.size() - std::min(held_.size(), longest_ == 0 ? 0 : longest_ - 1);
  for (size_t i = first; i < held_.size(); ++i) {
    const std::string_view end = std::string_view(held_).substr(i);
    if (std::ranges::any_of(strings_, [&](const std::string& string) { return string.starts_with(end); })) return i;
  }
  return held_.size();
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t end = std::string::npos;
  for (const std::string& string : strings_) end = std::min(end, held_.find(string));
  stopped_ = end != std::string::npos;
  if (!stopped_) end = beginning();
  std::string certain = held_.substr(0, end);
  held_.erase(0, end);
  if (stopped_) held_.clear();
  return certain;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace nanomind
