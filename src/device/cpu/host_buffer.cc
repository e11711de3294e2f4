// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/host_buffer.h"

#include <sys/mman.h>

#include <string>

namespace nanomind {

Result<std::unique_ptr<HostBuffer>> HostBuffer::allocate(size_t bytes) {
  const size_t size = bytes == 0 ? 1 : bytes;
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::out_of_memory, "The system refused " + std::to_string(bytes >> 20) +
                                              " MB of memory; choose a shorter context (--ctx) or a smaller model.");
  }
  ::madvise(data, size, MADV_HUGEPAGE);  // advice only: small pages are as correct
  return std::unique_ptr<HostBuffer>(new HostBuffer(static_cast<std::byte*>(data), size));
}

HostBuffer::~HostBuffer() { ::munmap(data_, size_); }

}  // namespace nanomind
