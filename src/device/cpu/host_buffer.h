// SPDX-License-Identifier: Apache-2.0
// Zeroed, page-aligned memory of the host, in huge pages where the system grants them.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "device/device.h"

namespace nanomind {

class HostBuffer final : public Buffer {
 public:
  static Result<std::unique_ptr<HostBuffer>> allocate(size_t bytes);
  ~HostBuffer() override;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  std::span<std::byte> bytes() override { return {data_, size_}; }

 private:
  HostBuffer(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data_;
  size_t size_;
};

}  // namespace nanomind
