// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/mapped_file.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[8] = {'N', 'M', 'P', 'I', 'C', 'R', 'O', 'W'};
constexpr uint64_t kVersion = 3;  // of this layout, and of what the bricks compute
constexpr std::string_view kEnding = ".rows";

struct Header {
  char magic[8];
  uint64_t version;
  Sha256Digest made_of;
  uint64_t floats;
  Sha256Digest checksum;  // of the fields above and the floats that follow
};
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == 8 + 8 + 32 + 8 + 32);

Header header_of(const Sha256Digest& made_of, std::span<const std::byte> content) {
  Header header{
      .magic = {}, .version = kVersion, .made_of = made_of, .floats = content.size() / sizeof(float), .checksum = {}};
  std::ranges::copy(kMagic, header.magic);
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)));
  hash.update(content);
  header.checksum = hash.finish();
  return header;
}

template <typename T>
void update(Sha256& hash, std::span<const T> values) {
  const uint64_t count = values.size();
  hash.update(std::as_bytes(std::span(&count, 1)));
  hash.update(std::as_bytes(values));
}

// Whether a name is one of the cache's, or that of one that was being written.
bool is_ours(const fs::path& path) {
  const std::string name = path.filename().string();
  const size_t digits = name.find_first_not_of("0123456789abcdef");
  return digits == 2 * sizeof(Sha256Digest) && std::string_view(name).substr(digits).starts_with(kEnding);
}

struct StoredFile {
  fs::file_time_type used;
  uint64_t bytes = 0;
  fs::path path;
};

std::vector<StoredFile> stored_files(const fs::path& folder) {
  std::vector<StoredFile> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (!is_ours(it->path()) || !it->is_regular_file(gone)) continue;
    StoredFile file{.used = it->last_write_time(gone), .bytes = it->file_size(gone), .path = it->path()};
    if (!gone) files.push_back(std::move(file));
  }
  return files;
}

// Empty when the file is not what it should be.
std::vector<float> read(const fs::path& path, const Sha256Digest& made_of, size_t floats) {
  std::ifstream file(path, std::ios::binary);
  Header header{};
  std::vector<float> rows(floats);
  const std::span<char> content(reinterpret_cast<char*>(rows.data()), floats * sizeof(float));
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file) return {};
  const Header expected = header_of(made_of, std::as_bytes(content));
  return std::memcmp(&header, &expected, sizeof(Header)) == 0 ? rows : std::vector<float>();
}

}  // namespace

Sha256Digest rows_digest(const CutPicture& cut, const Sha256Digest& encoder) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(encoder)));
  for (const Image& tile : cut.tiles) {
    const int32_t size[] = {tile.size.width, tile.size.height};
    update(hash, std::span<const int32_t>(size));
    update(hash, std::span<const uint8_t>(tile.pixels));
  }
  for (const CutPicture::Part& part : cut.parts) {
    update(hash, std::span<const int32_t>(&part.tile, 1));
    update(hash, std::span<const BlendedRow>(part.blended));
  }
  return hash.finish();
}

fs::path PictureCache::path_of(const Sha256Digest& made_of) const {
  return options_.folder / (hex(made_of) + std::string(kEnding));
}

std::vector<float> PictureCache::find(const Sha256Digest& made_of, size_t floats) const {
  const fs::path path = path_of(made_of);
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) return {};
  std::vector<float> rows;
  if (bytes == sizeof(Header) + floats * sizeof(float)) rows = read(path, made_of, floats);
  if (rows.empty())
    fs::remove(path, error);
  else
    fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return rows;
}

void PictureCache::make_room(uint64_t bytes) const {
  std::vector<StoredFile> files = stored_files(options_.folder);
  std::ranges::sort(files, {}, &StoredFile::used);
  uint64_t total = bytes;
  for (const StoredFile& file : files) total += file.bytes;
  for (const StoredFile& file : files) {
    if (total <= options_.most_bytes) return;
    std::error_code ignored;
    fs::remove(file.path, ignored);
    total -= file.bytes;
  }
}

Result<void> PictureCache::write(const Sha256Digest& made_of, std::span<const float> rows) const {
  std::error_code error;
  if (fs::create_directories(options_.folder, error)) fs::permissions(options_.folder, fs::perms::owner_all, error);
  if (error)
    return fail(ErrorCode::io,
                fmt::format("Cannot make the folder {}: {}.", options_.folder.string(), error.message()));
  const std::span<const std::byte> content = std::as_bytes(rows);
  make_room(sizeof(Header) + content.size());
  const Header header = header_of(made_of, content);
  AtomicFile file = TRY(AtomicFile::create(path_of(made_of)));
  TRY(file.reserve(sizeof(Header) + content.size()));
  TRY(file.write_at(0, std::as_bytes(std::span(&header, 1))));
  TRY(file.write_at(sizeof(Header), content));
  return file.publish();
}

void PictureCache::store(const Sha256Digest& made_of, std::span<const float> rows) {
  if (sizeof(Header) + rows.size_bytes() > options_.most_bytes) return;
  const auto written = write(made_of, rows);
  if (written || std::exchange(warned_, true)) return;
  options_.log.warning(written.error().message +
                       " Pictures are read anew each time (--no-picture-cache does so, too).");
}

}  // namespace nanomind
