// SPDX-License-Identifier: Apache-2.0
#include "media/camera/video_system.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

namespace nanomind {
namespace {

class LinuxVideo final : public VideoSystem {
 public:
  std::vector<std::string> devices() override {
    std::vector<int> numbers;
    std::error_code error;
    for (std::filesystem::directory_iterator entry("/dev", error); !error && entry != end(entry);
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      int number = 0;
      const auto [end, failure] =
          std::from_chars(name.data() + std::min<size_t>(5, name.size()), name.data() + name.size(), number);
      if (name.starts_with("video") && failure == std::errc() && end == name.data() + name.size())
        numbers.push_back(number);
    }
    std::ranges::sort(numbers);
    std::vector<std::string> paths;
    for (const int number : numbers) paths.push_back("/dev/video" + std::to_string(number));
    return paths;
  }

  int open(const std::string& path, int& fd) override {
    fd = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? errno : 0;
  }

  void close(int fd) override { ::close(fd); }

  int control(int fd, unsigned long request, void* argument) override {
    while (ioctl(fd, request, argument) != 0)
      if (errno != EINTR) return errno;
    return 0;
  }

  int wait(int fd, int timeout_ms) override {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const int count = poll(&ready, 1, timeout_ms);
    if (count < 0) return errno;
    return count == 0 ? ETIMEDOUT : 0;
  }

  int map(int fd, size_t bytes, uint32_t offset, std::span<std::byte>& memory) override {
    void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (address == MAP_FAILED) return errno;
    memory = {static_cast<std::byte*>(address), bytes};
    return 0;
  }

  void unmap(std::span<std::byte> memory) override { munmap(memory.data(), memory.size()); }
};

}  // namespace

std::unique_ptr<VideoSystem> linux_video() { return std::make_unique<LinuxVideo>(); }

}  // namespace nanomind
