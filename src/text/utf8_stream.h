// SPDX-License-Identifier: Apache-2.0
// Turns a stream of bytes (tokens end anywhere) into valid UTF-8: a sequence is held back until it is complete, and
// each maximal subpart of an ill-formed sequence becomes one U+FFFD, as the W3C encoding standard decodes.
#pragma once

#include <string>
#include <string_view>

namespace nanomind {

class Utf8Stream {
 public:
  // Everything that is certain after these bytes; at most three bytes are held back.
  std::string push(std::string_view bytes);

  // The end of the stream: U+FFFD when a sequence was left incomplete, otherwise nothing. The stream starts anew.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace nanomind
