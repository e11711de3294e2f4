// SPDX-License-Identifier: Apache-2.0
#include "convert/sentencepiece_model.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

namespace nanomind {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kPieces = 1, kTrainer = 2, kNormalizer = 3;  // of ModelProto
constexpr uint64_t kPiece = 1, kScore = 2, kType = 3;           // of ModelProto.SentencePiece
constexpr uint64_t kModelType = 3;                              // of TrainerSpec
constexpr uint64_t kAddDummyPrefix = 3;                         // of NormalizerSpec

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // of a number, as it stands
  std::string_view bytes;  // of text and messages
};

// The fields of one message, from front to back.
class Message {
 public:
  explicit Message(std::string_view bytes) : left_(bytes) {}

  bool done() const { return left_.empty(); }

  // Nothing when the bytes are no field.
  std::optional<Field> next() {
    const auto tag = varint();
    if (!tag) return std::nullopt;
    Field field{.number = *tag >> 3};
    switch (*tag & 7) {
      case 0: {
        const auto value = varint();
        if (!value) return std::nullopt;
        field.value = *value;
        return field;
      }
      case 1: return fixed(field, 8);
      case 2: {
        const auto size = varint();
        if (!size || *size > left_.size()) return std::nullopt;
        field.bytes = left_.substr(0, *size);
        left_.remove_prefix(*size);
        return field;
      }
      case 5: return fixed(field, 4);
      default: return std::nullopt;
    }
  }

 private:
  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (size_t i = 0; i < left_.size() && i < 10; ++i) {
      const auto byte = static_cast<uint8_t>(left_[i]);
      value |= uint64_t{byte & 0x7FU} << (7 * i);
      if (byte < 0x80) {
        left_.remove_prefix(i + 1);
        return value;
      }
    }
    return std::nullopt;
  }

  std::optional<Field> fixed(Field field, size_t size) {
    if (left_.size() < size) return std::nullopt;
    std::memcpy(&field.value, left_.data(), size);
    left_.remove_prefix(size);
    return field;
  }

  std::string_view left_;
};

bool read_piece(std::string_view bytes, TokenList& list) {
  std::string spelling;
  float score = 0;
  uint64_t type = 1;
  for (Message message(bytes); !message.done();) {
    const auto field = message.next();
    if (!field) return false;
    if (field->number == kPiece) spelling = field->bytes;
    if (field->number == kScore) std::memcpy(&score, &field->value, sizeof score);
    if (field->number == kType) type = field->value;
  }
  if (type < 1 || type > 6) return false;
  list.tokens.push_back(std::move(spelling));
  list.scores.push_back(score);
  list.types.push_back(static_cast<TokenType>(type));  // GGUF took its numbers from here
  return true;
}

// The last value of a number among a message's fields.
std::optional<uint64_t> find_number(std::string_view bytes, uint64_t number) {
  std::optional<uint64_t> value;
  for (Message message(bytes); !message.done();) {
    const auto field = message.next();
    if (!field) return value;
    if (field->number == number) value = field->value;
  }
  return value;
}

}  // namespace

Result<SentencePieceModel> read_sentencepiece_model(std::string_view bytes, std::string_view subject) {
  const auto damaged = [&] {
    return fail(ErrorCode::corrupt, fmt::format("{} is no SentencePiece model. Download it again.", subject));
  };
  SentencePieceModel model;
  for (Message message(bytes); !message.done();) {
    const auto field = message.next();
    if (!field) return damaged();
    if (field->number == kPieces && !read_piece(field->bytes, model.pieces)) return damaged();
    if (field->number == kTrainer) {
      const uint64_t kind = find_number(field->bytes, kModelType).value_or(1);
      if (kind < 1 || kind > 4) return damaged();
      model.kind = static_cast<SentencePieceModel::Kind>(kind);
    }
    if (field->number == kNormalizer)
      model.adds_space_prefix = find_number(field->bytes, kAddDummyPrefix).value_or(1) != 0;
  }
  if (model.pieces.tokens.empty()) return damaged();
  return model;
}

}  // namespace nanomind
