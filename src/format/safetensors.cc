// SPDX-License-Identifier: Apache-2.0
#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

#include "base/json.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the safetensors library's own limit
constexpr uint64_t kMostIndexBytes = 64 << 20;
constexpr size_t kMostDimensions = 8;

struct TypeInfo {
  SafetensorsType type;
  std::string_view name;
  uint64_t bytes;
};
constexpr TypeInfo kTypes[] = {
    {SafetensorsType::f64, "F64", 8},         {SafetensorsType::f32, "F32", 4},
    {SafetensorsType::f16, "F16", 2},         {SafetensorsType::bf16, "BF16", 2},
    {SafetensorsType::i64, "I64", 8},         {SafetensorsType::i32, "I32", 4},
    {SafetensorsType::i16, "I16", 2},         {SafetensorsType::i8, "I8", 1},
    {SafetensorsType::u64, "U64", 8},         {SafetensorsType::u32, "U32", 4},
    {SafetensorsType::u16, "U16", 2},         {SafetensorsType::u8, "U8", 1},
    {SafetensorsType::boolean, "BOOL", 1},    {SafetensorsType::f8_e4m3, "F8_E4M3", 1},
    {SafetensorsType::f8_e5m2, "F8_E5M2", 1},
};

std::unexpected<Error> corrupt(std::string_view subject, std::string_view what) {
  return fail(ErrorCode::corrupt,
              fmt::format("{} is no valid safetensors file: {}. Download it again.", subject, what));
}

// `name` for a message: cut, and without what terminals obey.
std::string shown(std::string_view name) {
  std::string out(name.substr(0, 80));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return out;
}

std::optional<std::vector<int64_t>> read_shape(const Json& item) {
  const Json* list = json_member(item, "shape");
  if (!list || !list->is_array() || list->size() > kMostDimensions) return std::nullopt;
  std::vector<int64_t> shape;
  for (const Json& dimension : *list) {
    if (!dimension.is_number_unsigned()) return std::nullopt;
    const auto size = dimension.get<uint64_t>();
    if (size == 0 || size > uint64_t{1} << 40) return std::nullopt;
    shape.push_back(static_cast<int64_t>(size));
  }
  return shape;
}

// The bytes that a tensor of this type and shape has; nothing when there is no such number.
std::optional<uint64_t> size_of(const TypeInfo& type, std::span<const int64_t> shape) {
  uint64_t bytes = type.bytes;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<SafetensorsTensor> read_tensor(const std::string& name, const Json& item, std::span<const std::byte> data,
                                      std::string_view subject) {
  const auto wrong = [&](std::string_view what) {
    return corrupt(subject, fmt::format("tensor '{}' {}", shown(name), what));
  };
  const std::string type_name = json_text(item, "dtype").value_or("");
  const auto* type = std::ranges::find(kTypes, std::string_view(type_name), &TypeInfo::name);
  if (type == std::end(kTypes)) {
    return fail(ErrorCode::unsupported, fmt::format("{}: tensor '{}' has the type '{}', which is not supported.",
                                                    subject, shown(name), shown(type_name)));
  }
  auto shape = read_shape(item);
  if (!shape) return wrong("has no shape of positive numbers");
  const Json* offsets = json_member(item, "data_offsets");
  if (!offsets || !offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return wrong("has no pair of data offsets");
  }
  const auto begin = (*offsets)[0].get<uint64_t>(), end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > data.size()) return wrong("lies outside the file, which may be cut short");
  const auto bytes = size_of(*type, *shape);
  if (!bytes || *bytes != end - begin) return wrong("has another number of bytes than its shape says");
  return SafetensorsTensor{
      .name = name, .type = type->type, .shape = *std::move(shape), .data = data.subspan(begin, end - begin)};
}

Result<std::string> read_text(const fs::path& path, uint64_t limit) {
  std::error_code error;
  if (fs::file_size(path, error) > limit && !error)
    return fail(ErrorCode::corrupt, fmt::format("{} is too large to be an index.", path.string()));
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) return fail(ErrorCode::io, fmt::format("{} cannot be read.", path.string()));
  return std::move(text).str();
}

}  // namespace

std::string_view to_string(SafetensorsType type) { return std::ranges::find(kTypes, type, &TypeInfo::type)->name; }

int64_t SafetensorsTensor::elements() const {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

Result<SafetensorsFile> SafetensorsFile::open(const fs::path& path) {
  MappedFile file = TRY(MappedFile::open(path));
  SafetensorsFile parsed = TRY(parse(file.bytes(), path.string()));
  parsed.file_ = std::move(file);
  return parsed;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, std::string_view subject) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) return corrupt(subject, "it is too short");
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMostHeaderBytes || header_bytes > bytes.size() - sizeof header_bytes)
    return corrupt(subject, "its header does not fit in it");
  const auto* text = reinterpret_cast<const char*>(bytes.data() + sizeof header_bytes);
  const auto header = parse_json(std::string_view(text, header_bytes));
  if (!header || !header->is_object()) return corrupt(subject, "its header is no JSON object");
  const auto data = bytes.subspan(sizeof header_bytes + header_bytes);
  SafetensorsFile file;
  for (const auto& [name, item] : header->items()) {
    if (name != "__metadata__") file.tensors_.push_back(TRY(read_tensor(name, item, data, subject)));
  }
  std::ranges::sort(file.tensors_, {}, [](const SafetensorsTensor& t) { return t.data.data(); });
  const std::byte* position = data.data();
  for (const SafetensorsTensor& tensor : file.tensors_) {
    if (tensor.data.data() != position)
      return corrupt(subject, fmt::format("there is a gap or an overlap before tensor '{}'", shown(tensor.name)));
    position += tensor.data.size();
  }
  if (position != data.data() + data.size()) return corrupt(subject, "it has bytes that belong to no tensor");
  return file;
}

Result<SafetensorsModel> SafetensorsModel::open(const fs::path& path) {
  SafetensorsModel model;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (path.extension() == ".json")
      TRY(model.open_index(path));
    else
      TRY(model.add(path));
  } else if (const fs::path index = path / "model.safetensors.index.json"; fs::exists(index, error)) {
    TRY(model.open_index(index));
  } else if (const fs::path single = path / "model.safetensors"; fs::exists(single, error)) {
    TRY(model.add(single));
  } else {
    return fail(ErrorCode::not_found,
                fmt::format("{} has no model.safetensors and no model.safetensors.index.json. Weights in other formats "
                            "(pytorch_model.bin) are not read.",
                            path.string()));
  }
  return model;
}

const SafetensorsTensor* SafetensorsModel::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Result<void> SafetensorsModel::add(const fs::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(TRY(SafetensorsFile::open(path))));
  for (const SafetensorsTensor& tensor : files_.back()->tensors()) {
    if (!by_name_.emplace(tensor.name, &tensor).second) {
      return fail(ErrorCode::corrupt, fmt::format("{} has the tensor '{}', which another file of the model has too.",
                                                  path.string(), shown(tensor.name)));
    }
  }
  return {};
}

Result<void> SafetensorsModel::open_index(const fs::path& path) {
  const auto index = parse_json(TRY(read_text(path, kMostIndexBytes)));
  const Json* map = index ? json_member(*index, "weight_map") : nullptr;
  if (!map || !map->is_object() || map->empty())
    return fail(ErrorCode::corrupt, fmt::format("{} has no \"weight_map\".", path.string()));
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) {
      return fail(ErrorCode::corrupt,
                  fmt::format("{} names '{}', which is no file beside it.", path.string(), shown(name)));
    }
    names.insert(name);
  }
  for (const std::string& name : names) TRY(add(path.parent_path() / name));
  for (const auto& [tensor, file] : map->items()) {
    if (!by_name_.contains(tensor)) {
      return fail(ErrorCode::corrupt,
                  fmt::format("{} promises the tensor '{}', which {} does not have. Download the model again.",
                              path.string(), shown(tensor), file.get<std::string>()));
    }
  }
  return {};
}

}  // namespace nanomind
