// SPDX-License-Identifier: Apache-2.0
#include "format/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "format/gguf_impostor.h"

namespace nanomind {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place, as little-endian");

// The least that one entry takes in a file: key length, one byte, type, value; name length, one byte, rank, dimension,
// type, offset.
constexpr uint64_t kLeastKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr uint64_t kLongestName = 65535;  // of a key, says the GGUF specification
constexpr uint64_t kMostElements = uint64_t{1} << 48;
constexpr uint64_t kLargestHeader = uint64_t{1} << 40;  // a header that claims more lies; one that claims less was cut

struct BlockSize {
  uint32_t number;
  uint32_t columns;
  uint32_t bytes;
};

// Types that we cannot run but whose size is known, so that their place in the file can be checked (source: the
// GGUF/ggml type definitions).
constexpr BlockSize kOtherTypes[] = {
    {9, 32, 36},    {15, 256, 292}, {16, 256, 66}, {17, 256, 74}, {18, 256, 98}, {19, 256, 50},
    {21, 256, 110}, {22, 256, 82},  {24, 1, 1},    {25, 1, 2},    {26, 1, 4},    {27, 1, 8},
    {28, 1, 8},     {29, 256, 56},  {34, 256, 54}, {35, 256, 66}, {40, 64, 36},  {41, 128, 18},
};

std::optional<BlockSize> block_size(const GgufTensor& tensor) {
  if (tensor.dtype)
    return BlockSize{tensor.type_number, traits(*tensor.dtype).block_columns, traits(*tensor.dtype).block_bytes};
  for (const BlockSize& b : kOtherTypes) {
    if (b.number == tensor.type_number) return b;
  }
  return std::nullopt;
}

// 0 for strings and arrays, whose size is in the file.
uint64_t element_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64: return 8;
    case GgufType::string:
    case GgufType::array: return 0;
  }
  return 0;
}

uint64_t round_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

std::string quoted(std::string_view name) {
  std::string text = "\"";
  return text.append(printable(name)).append("\"");
}

}  // namespace

std::string_view gguf_type_label(GgufType type) {
  constexpr std::string_view kLabels[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                          "bool", "string", "array", "u64", "i64", "f64"};
  const auto number = static_cast<uint32_t>(type);
  return number < std::size(kLabels) ? kLabels[number] : "unknown";
}

GgufParser::GgufParser(std::span<const GgufPart> parts, uint64_t size_bytes, std::string subject) : parts_(parts) {
  CHECK(!parts.empty() && parts[0].offset == 0 && parts[0].bytes.size() <= size_bytes);
  bytes_ = parts[0].bytes;
  file_.subject_ = std::move(subject);
  file_.bytes_ = bytes_;
  file_.size_bytes_ = size_bytes;
}

Result<GgufFile> GgufParser::parse() {
  if (auto impostor = find_impostor(bytes_, file_.subject_)) return std::unexpected(*std::move(impostor));
  TRY(read_counts());
  TRY(read_metadata());
  TRY(read_alignment());
  TRY(read_tensor_infos());
  TRY(place_tensors());
  return std::move(file_);
}

std::unexpected<Error> GgufParser::cut_short() const {
  return fail(ErrorCode::corrupt, file_.subject_ + " is cut short: it ends after " + std::to_string(bytes_.size()) +
                                      " bytes, within " + reading_ + ". Download it again.");
}

std::unexpected<Error> GgufParser::damaged(const std::string& what) const {
  return fail(ErrorCode::corrupt, file_.subject_ + " is damaged: " + what + ". Download it again.");
}

template <typename T>
Result<T> GgufParser::read() {
  if (left() < sizeof(T)) return cut_short();
  T value;
  std::memcpy(&value, bytes_.data() + position_, sizeof value);
  position_ += sizeof value;
  return value;
}

Result<void> GgufParser::check_fits(uint64_t count, uint64_t least_bytes, std::string_view what) {
  if (count <= left() / least_bytes) return {};
  const std::string claim = std::to_string(count) + " " + std::string(what);
  if (count > kLargestHeader / least_bytes) return damaged(reading_ + " claims " + claim);
  reading_ += ", which lists " + claim;
  return cut_short();
}

Result<std::string_view> GgufParser::read_string() {
  const auto length = TRY(read<uint64_t>());
  TRY(check_fits(length, 1, "bytes of text"));
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + position_, length);
  position_ += length;
  return text;
}

Result<void> GgufParser::read_counts() {
  position_ = 4;
  file_.version_ = TRY(read<uint32_t>());
  tensor_count_ = TRY(read<uint64_t>());
  key_count_ = TRY(read<uint64_t>());
  TRY(check_fits(key_count_, kLeastKeyBytes, "metadata keys"));
  TRY(check_fits(tensor_count_, kLeastTensorBytes, "tensors"));
  return {};
}

Result<void> GgufParser::read_metadata() {
  for (uint64_t i = 0; i < key_count_; ++i) {
    reading_ = "metadata key " + std::to_string(i + 1) + " of " + std::to_string(key_count_);
    const std::string_view key = TRY(read_string());
    if (key.empty() || key.size() > kLongestName) {
      return damaged("the name of " + reading_ + " has " + std::to_string(key.size()) +
                     " bytes (1 to 65535 are possible)");
    }
    reading_ = "metadata key " + quoted(key);
    if (!file_.keys_.emplace(key, file_.metadata_.size()).second) return damaged(reading_ + " appears twice");
    const auto type = static_cast<GgufType>(TRY(read<uint32_t>()));
    file_.metadata_.emplace_back(key, TRY(read_value(type, key)));
  }
  file_.metadata_end_ = position_;
  return {};
}

Result<GgufValue> GgufParser::read_value(GgufType type, std::string_view key) {
  switch (type) {
    case GgufType::u8: return uint64_t{TRY(read<uint8_t>())};
    case GgufType::i8: return int64_t{TRY(read<int8_t>())};
    case GgufType::u16: return uint64_t{TRY(read<uint16_t>())};
    case GgufType::i16: return int64_t{TRY(read<int16_t>())};
    case GgufType::u32: return uint64_t{TRY(read<uint32_t>())};
    case GgufType::i32: return int64_t{TRY(read<int32_t>())};
    case GgufType::u64: return uint64_t{TRY(read<uint64_t>())};
    case GgufType::i64: return int64_t{TRY(read<int64_t>())};
    case GgufType::f32: return double{TRY(read<float>())};
    case GgufType::f64: return double{TRY(read<double>())};
    case GgufType::boolean: {
      const auto truth = TRY(read<uint8_t>());
      if (truth > 1) return damaged(reading_ + " is a boolean with the value " + std::to_string(truth));
      return truth == 1;
    }
    case GgufType::string: return TRY(read_string());
    case GgufType::array: return TRY(read_array(key));
  }
  return damaged(reading_ + " has the unknown type " + std::to_string(static_cast<uint32_t>(type)));
}

Result<GgufArray> GgufParser::read_array(std::string_view key) {
  GgufArray array;
  const auto number = TRY(read<uint32_t>());
  array.element = static_cast<GgufType>(number);
  array.count = TRY(read<uint64_t>());
  if (array.element == GgufType::array) {
    return fail(ErrorCode::unsupported, "Metadata key " + quoted(key) + " of " + file_.subject_ +
                                            " is an array of arrays, which is not supported. Use another conversion of "
                                            "the model.");
  }
  if (number > static_cast<uint32_t>(GgufType::f64)) {
    return damaged(reading_ + " is an array of the unknown type " + std::to_string(number));
  }
  const uint64_t least = array.element == GgufType::string ? 8 : element_bytes(array.element);
  TRY(check_fits(array.count, least, "elements"));
  if (array.element == GgufType::string) {
    array.strings.reserve(array.count);
    for (uint64_t i = 0; i < array.count; ++i) array.strings.push_back(TRY(read_string()));
  } else {
    array.bytes = bytes_.subspan(position_, array.count * least);
    position_ += array.bytes.size();
  }
  return array;
}

Result<void> GgufParser::read_alignment() {
  if (file_.find("general.alignment") == nullptr) return {};
  file_.alignment_ = TRY(file_.get_uint("general.alignment"));
  if (!std::has_single_bit(file_.alignment_) || file_.alignment_ > (1u << 24)) {
    return damaged("general.alignment is " + std::to_string(file_.alignment_) +
                   ", which is not a power of two up to 16 MiB");
  }
  return {};
}

Result<void> GgufParser::read_tensor_infos() {
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    reading_ = "the entry of tensor " + std::to_string(i + 1) + " of " + std::to_string(tensor_count_);
    GgufTensor tensor = TRY(read_tensor_info());
    if (!file_.names_.emplace(tensor.name, file_.tensors_.size()).second) return damaged(reading_ + " appears twice");
    file_.tensors_.push_back(std::move(tensor));
  }
  return {};
}

Result<GgufTensor> GgufParser::read_tensor_info() {
  GgufTensor tensor;
  tensor.name = TRY(read_string());
  if (tensor.name.empty() || tensor.name.size() > kLongestName) {
    return damaged("the name in " + reading_ + " has " + std::to_string(tensor.name.size()) +
                   " bytes (1 to 65535 are possible)");
  }
  reading_ = "tensor " + quoted(tensor.name);
  TRY(read_shape(tensor));
  tensor.type_number = TRY(read<uint32_t>());
  tensor.dtype = dtype_from_gguf(tensor.type_number);
  tensor.offset = TRY(read<uint64_t>());
  TRY(check_size(tensor));
  if (tensor.offset % file_.alignment_ != 0) {
    return damaged(reading_ + " lies at offset " + std::to_string(tensor.offset) + ", which is not a multiple of " +
                   std::to_string(file_.alignment_));
  }
  return tensor;
}

Result<void> GgufParser::read_shape(GgufTensor& tensor) {
  const auto rank = TRY(read<uint32_t>());
  if (rank < 1 || rank > kMaxDims) {
    return damaged(reading_ + " has " + std::to_string(rank) + " dimensions (1 to 4 are possible)");
  }
  tensor.shape.rank = static_cast<int>(rank);
  uint64_t elements = 1;
  for (int i = tensor.shape.rank - 1; i >= 0; --i) {  // the file lists the innermost dimension first
    const auto dim = TRY(read<uint64_t>());
    if (dim == 0) return damaged(reading_ + " has a dimension of 0");
    if (dim > kMostElements || __builtin_mul_overflow(elements, dim, &elements) || elements > kMostElements) {
      return damaged(reading_ + " claims more elements than any file can hold");
    }
    tensor.shape.dims[static_cast<size_t>(i)] = static_cast<int64_t>(dim);
  }
  return {};
}

Result<void> GgufParser::check_size(GgufTensor& tensor) {
  const auto block = block_size(tensor);
  if (!block) return {};
  const auto columns = static_cast<uint64_t>(tensor.shape.columns());
  if (columns % block->columns != 0) {
    return damaged(reading_ + " has rows of " + std::to_string(columns) + " elements, which is not a multiple of the " +
                   std::to_string(block->columns) + " of a block of its type " +
                   std::string(gguf_type_name(tensor.type_number)));
  }
  tensor.size_bytes = static_cast<uint64_t>(tensor.shape.elements()) / block->columns * block->bytes;
  return {};
}

// Turns offsets into positions in the file and checks that tensors lie inside it, one after the other.
Result<void> GgufParser::place_tensors() {
  file_.data_offset_ = round_up(position_, file_.alignment_);
  if (file_.tensors_.empty()) file_.data_offset_ = std::min(file_.data_offset_, file_.size_bytes_);
  uint64_t needed = file_.data_offset_;
  std::vector<GgufTensor*> order;
  order.reserve(file_.tensors_.size());
  for (GgufTensor& tensor : file_.tensors_) {
    uint64_t end = 0;
    if (__builtin_add_overflow(tensor.offset, file_.data_offset_, &tensor.offset) ||
        __builtin_add_overflow(tensor.offset, tensor.size_bytes, &end)) {
      return damaged("tensor " + quoted(tensor.name) + " lies at an impossible offset");
    }
    needed = std::max(needed, end);
    order.push_back(&tensor);
  }
  if (needed > file_.size_bytes_) {
    return fail(ErrorCode::corrupt, file_.subject_ + " is cut short: it has " + std::to_string(file_.size_bytes_) +
                                        " of " + std::to_string(needed) + " bytes. Download it again.");
  }
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->size_bytes > order[i]->offset) {
      return damaged("tensors " + quoted(order[i - 1]->name) + " and " + quoted(order[i]->name) + " overlap");
    }
  }
  for (GgufTensor& tensor : file_.tensors_) tensor.data = present(tensor.offset, tensor.size_bytes);
  return {};
}

std::span<const std::byte> GgufParser::present(uint64_t offset, uint64_t size) const {
  auto after = std::upper_bound(parts_.begin(), parts_.end(), offset,
                                [](uint64_t value, const GgufPart& part) { return value < part.offset; });
  if (after == parts_.begin()) return {};
  const GgufPart& part = *--after;
  const uint64_t start = offset - part.offset;
  if (start > part.bytes.size() || size > part.bytes.size() - start) return {};
  return part.bytes.subspan(start, size);
}

}  // namespace nanomind
