// SPDX-License-Identifier: Apache-2.0
#include "format/gguf_split.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/mapped_file.h"
#include "format/gguf.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

// "-00002-of-00003.gguf": two numbers of five digits.
constexpr std::string_view kOf = "-of-";
constexpr std::string_view kSuffix = ".gguf";
constexpr size_t kDigits = 5;
constexpr size_t kTailBytes = 1 + kDigits + kOf.size() + kDigits + kSuffix.size();

std::optional<unsigned> number(std::string_view digits) {
  unsigned value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc() || result.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::string five_digits(unsigned value) {
  const std::string digits = std::to_string(value);
  return std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

// How many parts the name speaks of; null when it is not the name of a part.
std::optional<unsigned> part_count(std::string_view name) {
  if (name.size() <= kTailBytes || !name.ends_with(kSuffix)) return std::nullopt;
  const std::string_view tail = name.substr(name.size() - kTailBytes);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const auto index = number(tail.substr(1, kDigits));
  const auto count = number(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (!index || !count || *index < 1 || *index > *count) return std::nullopt;
  return count;
}

struct Part {
  MappedFile map;
  GgufFile gguf;
};

// Does not use GgufFile::open, which refuses parts.
Result<Part> open_part(const fs::path& path) {
  MappedFile map = TRY(MappedFile::open(path));
  const GgufPart whole{.offset = 0, .bytes = map.bytes()};
  GgufFile gguf = TRY(GgufFile::parse_parts({&whole, 1}, map.bytes().size(), path.string()));
  return Part{std::move(map), std::move(gguf)};
}

Result<std::vector<Part>> open_parts(std::span<const fs::path> paths) {
  std::vector<Part> parts;
  std::unordered_set<std::string_view> names;
  for (const fs::path& path : paths) {
    parts.push_back(TRY(open_part(path)));
    const GgufFile& gguf = parts.back().gguf;
    const uint64_t index = TRY(gguf.get_uint("split.no"));
    const uint64_t count = TRY(gguf.get_uint("split.count"));
    if (index != parts.size() - 1 || count != paths.size()) {
      return fail(ErrorCode::corrupt, path.string() + " says that it is part " + std::to_string(index + 1) + " of " +
                                          std::to_string(count) + ", but stands as part " +
                                          std::to_string(parts.size()) + " of " + std::to_string(paths.size()) +
                                          ". Download the parts again, from one place.");
    }
    for (const GgufTensor& tensor : gguf.tensors()) {
      if (tensor.size_bytes == 0) {
        return fail(ErrorCode::unsupported, path.string() + " has tensors of the unknown type " +
                                                std::to_string(tensor.type_number) + ". Update the program.");
      }
      if (!names.insert(tensor.name).second) {
        return fail(ErrorCode::corrupt,
                    "Two parts of " + path.string() + " have the same tensor. Download them again.");
      }
    }
  }
  return parts;
}

// Writes a file from front to back.
class Stream {
 public:
  explicit Stream(AtomicFile file) : file_(std::move(file)) {}

  Result<void> bytes(std::span<const std::byte> data) {
    TRY(file_.write_at(position_, data));
    position_ += data.size();
    return {};
  }
  template <typename T>
  Result<void> number(T value) {
    return bytes(std::as_bytes(std::span(&value, 1)));
  }
  Result<void> pad_to(uint64_t alignment) {
    const std::vector<std::byte> zeros((alignment - position_ % alignment) % alignment);
    return bytes(zeros);
  }
  Result<void> commit() { return file_.commit(); }

 private:
  AtomicFile file_;
  uint64_t position_ = 0;
};

Result<void> write_metadata(const GgufFile& first, uint64_t tensor_count, Stream& out) {
  std::vector<size_t> kept;
  for (size_t i = 0; i < first.metadata().size(); ++i) {
    if (!first.metadata()[i].first.starts_with("split.")) kept.push_back(i);
  }
  TRY(out.bytes(std::as_bytes(std::span("GGUF", 4))));
  TRY(out.number(first.version()));
  TRY(out.number(tensor_count));
  TRY(out.number<uint64_t>(kept.size()));
  for (const size_t i : kept) TRY(out.bytes(first.metadata_bytes(i)));
  return {};
}

Result<void> write_tensor_info(const GgufTensor& tensor, uint64_t offset, Stream& out) {
  TRY(out.number<uint64_t>(tensor.name.size()));
  TRY(out.bytes(std::as_bytes(std::span(tensor.name))));
  TRY(out.number(static_cast<uint32_t>(tensor.shape.rank)));
  for (int i = tensor.shape.rank - 1; i >= 0; --i) TRY(out.number(static_cast<uint64_t>(tensor.shape[i])));
  TRY(out.number(tensor.type_number));
  return out.number(offset);
}

}  // namespace

std::vector<fs::path> part_names(const fs::path& path) {
  const std::string name = path.filename().string();
  const auto count = part_count(name);
  if (!count) return {path};
  const std::string start = name.substr(0, name.size() - kTailBytes);
  std::vector<fs::path> names;
  for (unsigned i = 1; i <= *count; ++i) {
    std::string part = start + "-";
    part.append(five_digits(i)).append(kOf).append(five_digits(*count)).append(kSuffix);
    names.push_back(path.parent_path() / part);
  }
  return names;
}

Result<std::vector<fs::path>> find_parts(const fs::path& path) {
  std::vector<fs::path> parts = part_names(path);
  std::string missing;
  std::error_code ignored;
  for (const fs::path& part : parts) {
    if (!fs::exists(part, ignored)) missing += (missing.empty() ? "" : ", ") + part.filename().string();
  }
  if (missing.empty()) return parts;
  return fail(ErrorCode::not_found, "Of the model " + path.string() + " these files are missing: " + missing +
                                        ". Download them into the same folder.");
}

Result<void> join_parts(std::span<const fs::path> paths, const fs::path& target) {
  if (paths.empty()) return fail(ErrorCode::invalid_argument, "There are no parts to join.");
  const std::vector<Part> parts = TRY(open_parts(paths));
  const GgufFile& first = parts.front().gguf;
  uint64_t count = 0;
  for (const Part& part : parts) count += part.gguf.tensors().size();

  Stream out(TRY(AtomicFile::create(target)));
  TRY(write_metadata(first, count, out));
  uint64_t offset = 0;
  for (const Part& part : parts) {
    for (const GgufTensor& tensor : part.gguf.tensors()) {
      TRY(write_tensor_info(tensor, offset, out));
      offset = (offset + tensor.size_bytes + first.alignment() - 1) / first.alignment() * first.alignment();
    }
  }
  TRY(out.pad_to(first.alignment()));
  for (const Part& part : parts) {
    for (const GgufTensor& tensor : part.gguf.tensors()) {
      TRY(out.bytes(tensor.data));
      TRY(out.pad_to(first.alignment()));
    }
  }
  return out.commit();
}

}  // namespace nanomind
