// SPDX-License-Identifier: Apache-2.0
// Strings across the C ABI of the Rust library; for the .cc files that wrap it.
#pragma once

#include <nanomind_rust.h>

#include <string>
#include <string_view>

namespace nanomind {

// Lends `text` for one call.
inline NanomindBytes lend(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Receives one text and releases it.
class RustText {
 public:
  RustText() = default;
  RustText(const RustText&) = delete;
  RustText& operator=(const RustText&) = delete;
  ~RustText() { nanomind_text_release(&text_); }

  // Where a call may put its text; for one call.
  NanomindText* slot() { return &text_; }

  std::string take() const {
    return text_.data == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(text_.data), text_.size);
  }

 private:
  NanomindText text_{};
};

}  // namespace nanomind
