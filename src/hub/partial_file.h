// SPDX-License-Identifier: Apache-2.0
// A download on its way: `<target>.partial` with `<target>.partial.json` beside it, which says where the bytes came
// from, so that a later attempt can go on. The bytes are hashed as they are written; the target's name appears only
// when they are right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/sha256.h"

namespace nanomind {

// One thread at a time; the caller holds the target's StoreLock.
class PartialFile {
 public:
  // Takes up what is there if it came from `source`; the bytes of another source stay untouched until restart.
  static Result<PartialFile> open(const std::filesystem::path& target, std::string_view source);
  PartialFile(PartialFile&& other) noexcept;
  ~PartialFile();

  uint64_t size() const { return size_; }              // bytes that are kept from `source`
  const std::string& etag() const { return etag_; }    // strong validator of those bytes, or empty
  uint64_t parts_done() const { return parts_done_; }  // whole parts among them, for sources in parts

  // Forgets all bytes; the following ones carry `etag`.
  Result<void> restart(std::string_view etag);
  // no_space when the disk is full; the bytes before are kept.
  Result<void> append(std::span<const std::byte> bytes);
  // All bytes so far are `parts` whole parts; a later open cuts the file back to here. Call it with 0 after restart.
  Result<void> complete_part(uint64_t parts);
  // Hex digest of all bytes; nothing is appended afterwards.
  Result<std::string> sha256();
  // Syncs the bytes and gives them the target's name.
  Result<void> publish();
  // Removes the bytes and what is known about them.
  void discard();

 private:
  PartialFile(std::filesystem::path target, std::string source);
  Result<void> open_for_append();
  Result<void> save_state() const;

  std::filesystem::path target_;
  std::filesystem::path path_;
  std::filesystem::path state_path_;
  std::string source_;
  std::string etag_;
  uint64_t size_ = 0;
  uint64_t parts_done_ = 0;
  bool in_parts_ = false;  // only whole parts survive an interruption
  int fd_ = -1;
  std::unique_ptr<Sha256> hash_;  // null until the kept bytes have been read
};

// Deletes the unfinished bytes of `target`, if any; the number of bytes set free.
uint64_t discard_partial(const std::filesystem::path& target);

}  // namespace nanomind
