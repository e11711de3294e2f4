// SPDX-License-Identifier: Apache-2.0
// Restores any bytes as a saved session, with checksums that are right so that what they protect is read too; whatever
// is restored must be usable, and what is refused must leave the session as it was.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "runtime/engine.h"

using namespace nanomind;

namespace {

// As runtime/sequence_file.cc lays them out.
constexpr size_t kModel = 16, kContentDigest = 112, kHeaderDigest = 144, kHeaderBytes = 176;

Engine& engine() {
  static const std::unique_ptr<Engine> loaded = [] {
    EngineOptions options{.model = "tests/data/tiny-qwen35.gguf",
                          .packed_folder = std::filesystem::temp_directory_path()};
    options.threads = 1;
    options.context = 128;
    auto engine = Engine::load(options);
    CHECK(engine);
    return std::move(*engine);
  }();
  return *loaded;
}

void put_digest(std::vector<std::byte>& bytes, size_t at, std::span<const std::byte> of) {
  const Sha256Digest digest = sha256(of);
  std::memcpy(bytes.data() + at, digest.data(), digest.size());
}

// Magic, version and model of a file that would be accepted.
const std::vector<std::byte>& real_beginning(const Session& session) {
  static const std::vector<std::byte> beginning = [&] {
    const auto path = std::filesystem::temp_directory_path() / ("nanomind-fuzz." + std::to_string(getpid()));
    CHECK(session.save(path));
    std::vector<std::byte> bytes(kModel + sizeof(Sha256Digest));
    std::ifstream(path, std::ios::binary)
        .read(reinterpret_cast<char*>(bytes.data()), static_cast<int64_t>(bytes.size()));
    std::filesystem::remove(path);
    return bytes;
  }();
  return beginning;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto session = std::move(*engine().open_session());
  const std::vector<TokenId> before{1, 2, 3, 4, 5};
  CHECK(session->feed(before, nullptr));
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  if (size >= kHeaderBytes) {
    std::ranges::copy(real_beginning(*session), bytes.begin());
    put_digest(bytes, kContentDigest, std::span(bytes).subspan(kHeaderBytes));
    put_digest(bytes, kHeaderDigest, std::span(bytes).first(kHeaderDigest));
  }
  const int fd = memfd_create("session", 0);
  CHECK(fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  const auto restored = session->restore("/proc/self/fd/" + std::to_string(fd));
  close(fd);
  if (!restored) CHECK(restored.error().message.ends_with(".") && std::ranges::equal(session->tokens(), before));
  std::vector<TokenId> more(session->tokens().begin(), session->tokens().end());
  more.push_back(7);
  const auto fed = session->feed(more, nullptr);
  CHECK(fed || fed.error().code == ErrorCode::context_full);
  return 0;
}
