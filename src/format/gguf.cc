// SPDX-License-Identifier: Apache-2.0
#include "format/gguf.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "format/gguf_parser.h"

namespace nanomind {
namespace {

template <typename T>
T element(std::span<const std::byte> bytes, uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof value);
  return value;
}

// Calls f with element i in its own type.
template <typename F>
auto with_element(const GgufArray& array, uint64_t i, F f) {
  CHECK(i < array.count && array.element != GgufType::string && array.element != GgufType::array);
  switch (array.element) {
    case GgufType::i8: return f(element<int8_t>(array.bytes, i));
    case GgufType::u16: return f(element<uint16_t>(array.bytes, i));
    case GgufType::i16: return f(element<int16_t>(array.bytes, i));
    case GgufType::u32: return f(element<uint32_t>(array.bytes, i));
    case GgufType::i32: return f(element<int32_t>(array.bytes, i));
    case GgufType::f32: return f(element<float>(array.bytes, i));
    case GgufType::u64: return f(element<uint64_t>(array.bytes, i));
    case GgufType::i64: return f(element<int64_t>(array.bytes, i));
    case GgufType::f64: return f(element<double>(array.bytes, i));
    default: return f(element<uint8_t>(array.bytes, i));  // u8, boolean
  }
}

constexpr double kTwo63 = 0x1p63;

std::string kind_of(const GgufValue& value) {
  struct Names {
    std::string operator()(bool) const { return "a boolean"; }
    std::string operator()(int64_t v) const { return "the integer " + std::to_string(v); }
    std::string operator()(uint64_t v) const { return "the integer " + std::to_string(v); }
    std::string operator()(double v) const { return "the number " + std::to_string(v); }
    std::string operator()(std::string_view) const { return "a string"; }
    std::string operator()(const GgufArray& a) const {
      return "an array of " + std::string(gguf_type_label(a.element));
    }
  };
  return std::visit(Names{}, value);
}

std::unexpected<Error> missing(const GgufFile& file, std::string_view key) {
  return fail(ErrorCode::not_found, file.subject() + " has no metadata key " + std::string(key) +
                                        ", which this kind of model needs. Use another conversion of the model.");
}

std::unexpected<Error> wrong_type(const GgufFile& file, std::string_view key, const GgufValue& value,
                                  std::string_view wanted) {
  return fail(ErrorCode::corrupt, "Metadata key " + std::string(key) + " of " + file.subject() + " is " +
                                      kind_of(value) + " instead of " + std::string(wanted) +
                                      ". Use another conversion of the model.");
}

}  // namespace

double GgufArray::number(uint64_t i) const {
  return with_element(*this, i, [](auto value) { return static_cast<double>(value); });
}

int64_t GgufArray::integer(uint64_t i) const {
  return with_element(*this, i, [](auto value) -> int64_t {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      if (std::isnan(value)) return 0;
      if (value >= kTwo63) return kMost;
      if (value < -kTwo63) return std::numeric_limits<int64_t>::min();
    } else if constexpr (std::is_same_v<decltype(value), uint64_t>) {
      if (value > static_cast<uint64_t>(kMost)) return kMost;
    }
    return static_cast<int64_t>(value);
  });
}

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return fail(ErrorCode::invalid_argument,
                path.string() + " is a directory. Give the path of the .gguf file, not of its folder.");
  }
  MappedFile map = TRY(MappedFile::open(path));
  const GgufPart whole{.offset = 0, .bytes = map.bytes()};
  GgufFile file = TRY(parse_parts({&whole, 1}, map.bytes().size(), path.string()));
  file.file_.emplace(std::move(map));
  if (const uint64_t parts = file.get_uint("split.count").value_or(1); parts > 1) {
    return fail(ErrorCode::unsupported, path.string() + " is one of " + std::to_string(parts) +
                                            " parts of a split model. Pull the model with `nanomind pull`, which joins "
                                            "them, or join them with `gguf-split --merge`.");
  }
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes) {
  const GgufPart whole{.offset = 0, .bytes = bytes};
  return parse_parts({&whole, 1}, bytes.size(), "The model in memory");
}

Result<GgufFile> GgufFile::parse_parts(std::span<const GgufPart> parts, uint64_t size_bytes, std::string subject) {
  return GgufParser(parts, size_bytes, std::move(subject)).parse();
}

void GgufFile::release(std::span<const std::byte> range) const {
  // Only pages of a file mapping come back when they are touched again; other memory would lose its contents.
  if (!file_) return;
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t first = (address + page - 1) / page * page;
  const uintptr_t last = (address + range.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &metadata_[found->second].second;
}

std::span<const std::byte> GgufFile::metadata_bytes(size_t i) const {
  const auto start_of = [this](size_t entry) -> uint64_t {
    if (entry == metadata_.size()) return metadata_end_;
    const auto* key = reinterpret_cast<const std::byte*>(metadata_[entry].first.data());
    return static_cast<uint64_t>(key - bytes_.data()) - sizeof(uint64_t);
  };
  return bytes_.subspan(start_of(i), start_of(i + 1) - start_of(i));
}

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &tensors_[found->second];
}

Result<uint64_t> GgufFile::get_uint(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  if (const auto* number = std::get_if<uint64_t>(value)) return *number;
  if (const auto* number = std::get_if<int64_t>(value); number != nullptr && *number >= 0) {
    return static_cast<uint64_t>(*number);
  }
  return wrong_type(*this, key, *value, "a non-negative integer");
}

Result<double> GgufFile::get_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<int64_t>(value)) return static_cast<double>(*number);
  return wrong_type(*this, key, *value, "a number");
}

Result<bool> GgufFile::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  if (const auto* truth = std::get_if<bool>(value)) return *truth;
  return wrong_type(*this, key, *value, "a boolean");
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  if (const auto* text = std::get_if<std::string_view>(value)) return *text;
  return wrong_type(*this, key, *value, "a string");
}

Result<const GgufArray*> GgufFile::get_array(std::string_view key, GgufType element) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(*this, key);
  if (const auto* array = std::get_if<GgufArray>(value); array != nullptr && array->element == element) return array;
  return wrong_type(*this, key, *value, "an array of " + std::string(gguf_type_label(element)));
}

}  // namespace nanomind
