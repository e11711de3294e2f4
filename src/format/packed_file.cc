// SPDX-License-Identifier: Apache-2.0
#include "format/packed_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/mapped_file.h"
#include "format/block_writer.h"
#include "tensor/packed.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

// Zeroed memory from the system, in huge pages where it has them.
class AnonymousMemory {
 public:
  static Result<std::shared_ptr<AnonymousMemory>> create(size_t size) {
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      return fail(ErrorCode::out_of_memory, "There is no memory for " + std::to_string(size >> 20) +
                                                " MB of packed weights. Use a smaller model, or give a directory with "
                                                "room for them.");
    }
    ::madvise(data, size, MADV_HUGEPAGE);
    return std::make_shared<AnonymousMemory>(static_cast<std::byte*>(data), size);
  }
  AnonymousMemory(std::byte* data, size_t size) : data_(data), size_(size) {}
  AnonymousMemory(const AnonymousMemory&) = delete;
  AnonymousMemory& operator=(const AnonymousMemory&) = delete;
  ~AnonymousMemory() { ::munmap(data_, size_); }

  std::span<std::byte> bytes() { return {data_, size_}; }
  void protect() { ::mprotect(data_, size_, PROT_READ); }

 private:
  std::byte* data_;
  size_t size_;
};

// Held while one process packs a source, so that others wait and then map its side file. The source itself is locked:
// nothing is left behind, and the system frees the lock of a process that dies. Without locks (some network file
// systems) several may pack at once, which costs time but no harm, as side files appear by rename.
class SourceLock {
 public:
  explicit SourceLock(const fs::path& source) : fd_(::open(source.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) return;
    int result = 0;
    do {
      result = ::flock(fd_, LOCK_EX);
    } while (result != 0 && errno == EINTR);
    held_ = result == 0;
  }
  SourceLock(const SourceLock&) = delete;
  SourceLock& operator=(const SourceLock&) = delete;
  ~SourceLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool held() const { return held_; }

 private:
  int fd_;
  bool held_ = false;
};

int64_t modification_time_ns(const fs::path& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

void tell(const PackOptions& options, LogLevel level, const std::string& message) {
  if (options.log != nullptr) options.log->write(level, message);
}

// The side file of one source: where it is and what must be in it.
struct SideFile {
  const GgufFile& gguf;
  fs::path source;
  fs::path path;
  std::vector<PackedEntry> entries;
  PackedHeader header;  // only what identifies the source
};

bool belongs_to(const PackedImage& image, const SideFile& side) {
  if (image.header.source_bytes != side.gguf.size_bytes() ||
      image.header.source_mtime_ns != side.header.source_mtime_ns ||
      image.header.source_sample != side.header.source_sample || image.entries != side.entries) {
    return false;
  }
  const auto stored = image.data(image.entries.front());
  const uint64_t header_bytes = std::min<uint64_t>(side.gguf.data_offset(), stored.size());
  return std::memcmp(stored.data(), side.gguf.bytes().data(), header_bytes) == 0;
}

Result<PackedWeights> open_side_file(const SideFile& side) {
  auto map = std::make_shared<MappedFile>(TRY(MappedFile::open(side.path)));
  PackedImage image = TRY(parse_image(map->bytes(), side.path.string()));
  if (!belongs_to(image, side)) {
    return fail(ErrorCode::corrupt,
                side.path.string() + " was made from another version of " + side.source.string() + ".");
  }
  return PackedWeights::bind(std::move(image), side.gguf, PackedStorage::side_file, std::move(map));
}

// Temporary files of processes that died while packing. Only to be called by the holder of the source's lock.
void remove_leftovers(const fs::path& target) {
  constexpr size_t kSuffix = 7;  // "." and the six characters that AtomicFile appends
  const std::string start = target.filename().string() + ".";
  std::error_code ignored;
  for (fs::directory_iterator i(target.parent_path(), ignored), end; i != end; i.increment(ignored)) {
    const std::string name = i->path().filename().string();
    if (name.starts_with(start) && name.size() == target.filename().string().size() + kSuffix) {
      fs::remove(i->path(), ignored);
    }
  }
}

Result<PackedWeights> pack_to_side_file(const SideFile& side, const PackOptions& options) {
  std::error_code failure;
  fs::create_directories(side.path.parent_path(), failure);
  if (failure) {
    return fail(ErrorCode::io, "Cannot create " + side.path.parent_path().string() + ": " + failure.message() + ".");
  }
  const SourceLock lock(side.source);
  if (auto made_meanwhile = open_side_file(side)) return made_meanwhile;
  if (lock.held()) remove_leftovers(side.path);

  tell(options, LogLevel::info, "Packing " + side.source.string() + " once; later loads take milliseconds.");
  AtomicFile file = TRY(AtomicFile::create(side.path));
  const uint64_t bytes = image_bytes(side.entries);
  TRY(file.reserve(bytes));
  BlockWriter blocks(bytes,
                     [&](uint64_t offset, std::span<const std::byte> block) { return file.write_at(offset, block); });
  TRY(build_image(side.gguf, side.entries, side.header, options.pool,
                  [&](uint64_t offset, std::span<const std::byte> piece) { return blocks.put(offset, piece); }));
  TRY(blocks.finish());
  TRY(file.commit());
  return open_side_file(side);
}

Result<PackedWeights> pack_in_memory(const SideFile& side, const PackOptions& options) {
  const auto memory = TRY(AnonymousMemory::create(image_bytes(side.entries)));
  TRY(build_image(side.gguf, side.entries, side.header, options.pool,
                  [&](uint64_t offset, std::span<const std::byte> piece) -> Result<void> {
                    std::memcpy(memory->bytes().data() + offset, piece.data(), piece.size());
                    return {};
                  }));
  memory->protect();
  PackedImage image = TRY(parse_image(memory->bytes(), "The packed image in memory"));
  return PackedWeights::bind(std::move(image), side.gguf, PackedStorage::memory, memory);
}

}  // namespace

const PackedMatrix* PackedWeights::find(std::string_view name) const {
  const auto found = names_.find(std::string(name));
  return found == names_.end() ? nullptr : &matrices_[found->second];
}

Result<PackedWeights> PackedWeights::bind(PackedImage image, const GgufFile& gguf, PackedStorage storage,
                                          std::shared_ptr<const void> owner) {
  std::unordered_map<uint64_t, const GgufTensor*> by_offset;
  for (const GgufTensor& tensor : gguf.tensors()) {
    if (tensor.size_bytes > 0) by_offset.emplace(tensor.offset, &tensor);
  }
  PackedWeights weights;
  for (const PackedEntry& e : image.entries) {
    if (!e.is_matrix()) continue;
    const auto found = by_offset.find(e.source_offset);
    const auto shape = found == by_offset.end() ? std::nullopt : packed_shape(*found->second);
    if (!shape || found->second->dtype != e.dtype() || shape->rows() != e.rows || shape->columns() != e.columns) {
      return fail(ErrorCode::corrupt, "The packed weights and the header of " + gguf.subject() +
                                          " do not agree. Pack or download the model again.");
    }
    const std::string name(found->second->name);
    weights.names_.emplace(name, weights.matrices_.size());
    weights.matrices_.push_back(
        {.name = name, .dtype = e.dtype(), .rows = e.rows, .columns = e.columns, .bytes = image.data(e)});
  }
  weights.image_ = std::move(image);
  weights.storage_ = storage;
  weights.owner_ = std::move(owner);
  return weights;
}

fs::path packed_path(const fs::path& source, const fs::path& directory) {
  std::error_code ignored;
  fs::path absolute = fs::weakly_canonical(source, ignored);
  if (absolute.empty()) absolute = source;
  const std::string place = absolute.string();
  return (directory.empty() ? fs::path(".") : directory) /
         (absolute.filename().string() + "." + hex(sha256(std::as_bytes(std::span(place)))).substr(0, 12) + ".packed");
}

Result<PackedWeights> open_or_pack(const GgufFile& gguf, const fs::path& source, const PackOptions& options) {
  if (gguf.bytes().size() != gguf.size_bytes()) {
    return fail(ErrorCode::invalid_argument, gguf.subject() + " is not a whole GGUF file. Open it with open_packed.");
  }
  SideFile side{.gguf = gguf,
                .source = source,
                .path = packed_path(source, options.directory),
                .entries = plan_entries(gguf),
                .header = {}};
  side.header.source_mtime_ns = modification_time_ns(source);
  side.header.source_sample = sample_digest(gguf);
  if (options.storage == PackedStorage::memory) return pack_in_memory(side, options);

  auto ready = open_side_file(side);
  if (ready) return ready;
  if (ready.error().code != ErrorCode::not_found) tell(options, LogLevel::info, ready.error().message);
  auto packed = pack_to_side_file(side, options);
  if (packed) return packed;
  tell(options, LogLevel::warning,
       packed.error().message + " The packed weights of " + source.string() +
           " stay in memory, and are made again at the next start.");
  return pack_in_memory(side, options);
}

Result<PackedModel> open_packed(const fs::path& side_file) {
  auto map = std::make_shared<MappedFile>(TRY(MappedFile::open(side_file)));
  PackedImage image = TRY(parse_image(map->bytes(), side_file.string()));
  const std::vector<GgufPart> parts = image.verbatim_parts();
  GgufFile gguf = TRY(GgufFile::parse_parts(parts, image.header.source_bytes, side_file.string()));
  PackedWeights weights = TRY(PackedWeights::bind(std::move(image), gguf, PackedStorage::side_file, std::move(map)));
  return PackedModel{.weights = std::move(weights), .gguf = std::move(gguf)};
}

Result<void> write_gguf(const PackedWeights& weights, const fs::path& target) {
  AtomicFile file = TRY(AtomicFile::create(target));
  TRY(file.reserve(weights.source_bytes()));
  TRY(restore_source(weights.image(),
                     [&](uint64_t offset, std::span<const std::byte> piece) { return file.write_at(offset, piece); }));
  return file.commit();
}

Result<void> verify(const PackedWeights& weights) {
  return restore_source(weights.image(), [](uint64_t, std::span<const std::byte>) { return Result<void>{}; });
}

}  // namespace nanomind
