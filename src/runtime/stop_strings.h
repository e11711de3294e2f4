// SPDX-License-Identifier: Apache-2.0
// Ends a stream of text before the first of some strings, wherever the pieces of the stream are cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nanomind {

class StopStrings {
 public:
  // Each is UTF-8 and not empty.
  explicit StopStrings(std::vector<std::string> strings);

  // Whole characters in, whole characters out: what cannot be the beginning of a stop string any more. Text that may be
  // is held back. After a stop string nothing comes.
  std::string push(std::string_view text);
  // The end of the stream: what was held back.
  std::string finish();

  bool stopped() const { return stopped_; }

 private:
  // Where the longest end of `held_` begins that is the beginning of a stop string.
  size_t beginning() const;

  std::vector<std::string> strings_;
  size_t longest_ = 0;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace nanomind
