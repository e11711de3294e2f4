// SPDX-License-Identifier: Apache-2.0
// What a camera asks of the operating system, as an interface, so that tests can script devices that nobody has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace nanomind {

// Functions that return int give 0 or an errno.
class VideoSystem {
 public:
  virtual ~VideoSystem() = default;
  // Paths of video devices of any kind, in the order of their numbers.
  virtual std::vector<std::string> devices() = 0;
  virtual int open(const std::string& path, int& fd) = 0;
  virtual void close(int fd) = 0;
  // An ioctl; interrupted ones are made again.
  virtual int control(int fd, unsigned long request, void* argument) = 0;
  // Until a frame is there: ETIMEDOUT when none comes in time, EINTR after a signal.
  virtual int wait(int fd, int timeout_ms) = 0;
  virtual int map(int fd, size_t bytes, uint32_t offset, std::span<std::byte>& memory) = 0;
  virtual void unmap(std::span<std::byte> memory) = 0;
};

// Video4Linux.
std::unique_ptr<VideoSystem> linux_video();

}  // namespace nanomind
