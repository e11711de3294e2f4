// SPDX-License-Identifier: Apache-2.0
// SHA-256 of bytes that arrive in pieces (libcrypto does the work, with the CPU's instructions for it).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace nanomind {

using Sha256Digest = std::array<uint8_t, 32>;

// One hash in progress. Not for several threads at once.
class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  // The digest of everything so far; ends the hash, so neither function may be called afterwards.
  Sha256Digest finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);

// 64 lower-case hexadecimal digits, as sha256sum prints them.
std::string hex(const Sha256Digest& digest);

}  // namespace nanomind
