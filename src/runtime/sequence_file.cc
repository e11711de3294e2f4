// SPDX-License-Identifier: Apache-2.0
// Sequences as files: a header with checksums, then tokens, the pictures that those below 0 stand for, positions of
// snapshots, cache blocks, the state and the snapshots' states, all as they lie in memory (little endian, as everything
// that this program runs on).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "runtime/sequence.h"

namespace nanomind {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[8] = {'N', 'M', 'S', 'E', 'S', 'S', 'I', 'O'};
constexpr uint64_t kVersion = 2;  // of this layout and of what a cache block holds

struct Header {
  char magic[8];
  uint64_t version;
  Sha256Digest model;
  uint64_t tokens, keep, dropped;
  uint64_t pictures;
  uint64_t blocks, block_bytes;
  uint64_t snapshots, state_bytes;
  Sha256Digest content;  // SHA-256 of all that follows the header
  Sha256Digest header;   // and of the header before this field
};
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == 8 + 8 + 32 + 8 * 8 + 64);

// Of a picture: how to know it again, and the tokens that it had, which it may not have next time.
struct SavedPicture {
  Sha256Digest file;
  int64_t most_tiles;  // -1: absent
  int64_t company;
  Sha256Digest made_of;
  int64_t first, count;

  int64_t last() const { return first - count + 1; }
  // False only for what was made by hand.
  bool possible() const {
    constexpr int64_t kLeast = std::numeric_limits<TokenId>::min(), kMost = std::numeric_limits<TokenId>::max();
    return first < 0 && first >= kLeast && count > 0 && count <= kMost && last() >= kLeast && most_tiles <= kMost;
  }
};
static_assert(std::is_trivially_copyable_v<SavedPicture> && sizeof(SavedPicture) == 2 * 32 + 4 * 8);

SavedPicture saved(const Picture& picture) {
  return {.file = picture.source.file,
          .most_tiles = picture.source.detail.most_tiles.value_or(-1),
          .company = static_cast<int64_t>(picture.source.detail.company),
          .made_of = picture.made_of,
          .first = picture.first,
          .count = picture.count};
}

// Those that tokens stand for, by the last token of each, so from the youngest to the oldest.
Result<std::vector<SavedPicture>> pictures_of(std::span<const TokenId> tokens, const Sight* sight) {
  std::map<TokenId, SavedPicture> pictures;
  for (const TokenId token : tokens) {
    if (token >= 0) continue;
    const Picture* picture = sight->pictures().of(token);
    if (picture == nullptr) return picture_forgotten();
    pictures.try_emplace(picture->last(), saved(*picture));
  }
  std::vector<SavedPicture> list;
  for (const auto& [last, picture] : pictures) list.push_back(picture);
  return list;
}

// How far the tokens of each picture are from those that it has now; nothing when one has not been shown, or its rows
// would be others.
std::optional<std::vector<int64_t>> moves_of(std::span<const SavedPicture> pictures, const Sight* sight) {
  std::vector<int64_t> moves;
  for (const SavedPicture& old : pictures) {
    PictureKey key{.file = old.file, .detail = {.most_tiles = {}, .company = PictureDetail::Company(old.company)}};
    if (old.most_tiles >= 0) key.detail.most_tiles = static_cast<int>(old.most_tiles);
    const Picture* now = sight == nullptr ? nullptr : sight->pictures().find(key);
    if (now == nullptr || now->made_of != old.made_of || now->count != old.count) return std::nullopt;
    moves.push_back(now->first - old.first);
  }
  return moves;
}

// Which of `pictures` a token stands for; nothing for none.
std::optional<size_t> picture_of(TokenId token, std::span<const SavedPicture> pictures) {
  const auto found = std::ranges::find_if(
      pictures, [token](const SavedPicture& picture) { return picture.last() <= token && token <= picture.first; });
  if (found == pictures.end()) return std::nullopt;
  return static_cast<size_t>(found - pictures.begin());
}

Sha256Digest digest_of(const Header& header) {
  return sha256(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header)));
}

// The parts of a file's content in their order.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes(uint64_t count) {
    const auto part = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return part;
  }
  // Copies, as the bytes may be aligned for no type.
  template <typename T>
  std::vector<T> values(uint64_t count) {
    std::vector<T> part(count);
    if (count > 0) std::memcpy(part.data(), bytes(count * sizeof(T)).data(), count * sizeof(T));
    return part;
  }

 private:
  std::span<const std::byte> bytes_;
};

// Writes what it is given, one after another, and hashes it.
class Writer {
 public:
  explicit Writer(AtomicFile& file) : file_(file) {}
  Result<void> write(std::span<const std::byte> bytes) {
    hash_.update(bytes);
    TRY(file_.write_at(offset_, bytes));
    offset_ += bytes.size();
    return {};
  }
  Sha256Digest digest() { return hash_.finish(); }

 private:
  AtomicFile& file_;
  Sha256 hash_;
  uint64_t offset_ = sizeof(Header);
};

std::unexpected<Error> damaged(const std::filesystem::path& path) {
  return fail(ErrorCode::corrupt,
              fmt::format("{} is damaged or incomplete; delete it and save the session again.", path.string()));
}

// Bytes of the content, or nothing when they are more than any file has.
std::optional<uint64_t> content_bytes(const Header& h) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  uint64_t total = 0;
  for (const auto& [count, size] : {std::pair<uint64_t, uint64_t>{h.tokens, sizeof(TokenId)},
                                    {h.pictures, sizeof(SavedPicture)},
                                    {h.snapshots, sizeof(int64_t)},
                                    {h.blocks, h.block_bytes},
                                    {h.snapshots + 1, h.state_bytes}}) {
    if (count > kMost || (size > 0 && count > kMost / size)) return std::nullopt;
    total += count * size;
  }
  return total;
}

// Whether the numbers could be those of a sequence.
bool fits_together(const Header& h, std::span<const int64_t> positions) {
  const auto whole = [](uint64_t tokens) { return tokens % kKvBlockTokens == 0; };
  if (!whole(h.keep) || !whole(h.dropped) || h.dropped > h.tokens) return false;
  if (h.dropped > 0 && (h.keep > h.tokens || h.keep + h.dropped > h.tokens)) return false;
  if (h.blocks != (h.tokens - h.dropped + kKvBlockTokens - 1) / kKvBlockTokens) return false;
  return std::ranges::is_sorted(positions) &&
         (positions.empty() || (positions.front() > 0 && positions.back() <= static_cast<int64_t>(h.tokens)));
}

}  // namespace

Result<void> Sequence::save(const std::filesystem::path& path) const {
  const size_t block_bytes = host_.executable->kv_block_bytes();
  const std::vector<SavedPicture> pictures = TRY(pictures_of(tokens_, host_.sight));
  const auto snapshots = snapshots_.kept();
  Header header{.magic = {},
                .version = kVersion,
                .model = {},
                .tokens = tokens_.size(),
                .keep = static_cast<uint64_t>(keep_),
                .dropped = static_cast<uint64_t>(dropped_),
                .pictures = pictures.size(),
                .blocks = blocks_.size(),
                .block_bytes = block_bytes,
                .snapshots = snapshots.size(),
                .state_bytes = host_.executable->state_bytes(),
                .content = {},
                .header = {}};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::ranges::copy(host_.model_id, header.model.begin());

  AtomicFile file = TRY(AtomicFile::create(path, AtomicFile::Readers::owner));
  TRY(file.reserve(sizeof(Header) + *content_bytes(header)));
  Writer writer(file);
  TRY(writer.write(std::as_bytes(std::span(tokens_))));
  TRY(writer.write(std::as_bytes(std::span(pictures))));
  for (const Snapshots::Snapshot& snapshot : snapshots)
    TRY(writer.write(std::as_bytes(std::span(&snapshot.position, 1))));
  for (const int32_t block : blocks_)
    TRY(writer.write(host_.cache->buffer().bytes().subspan(static_cast<size_t>(block) * block_bytes, block_bytes)));
  TRY(writer.write(host_.states->slot(state_)));
  for (const Snapshots::Snapshot& snapshot : snapshots) TRY(writer.write(host_.states->slot(snapshot.slot)));
  header.content = writer.digest();
  header.header = digest_of(header);
  TRY(file.write_at(0, std::as_bytes(std::span(&header, 1))));
  return file.commit();
}

Result<void> Sequence::restore(const std::filesystem::path& path) {
  const MappedFile file = TRY(MappedFile::open(path));
  Header header;
  if (file.bytes().size() < sizeof header) return damaged(path);
  std::memcpy(&header, file.bytes().data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return fail(ErrorCode::corrupt, fmt::format("{} is not a saved session.", path.string()));
  if (header.version != kVersion)
    return fail(
        ErrorCode::unsupported,
        fmt::format("{} was saved by another version of nanomind; read the conversation again.", path.string()));
  const auto content = file.bytes().subspan(sizeof header);
  if (header.header != digest_of(header) || content_bytes(header) != content.size()) return damaged(path);
  const size_t block_bytes = host_.executable->kv_block_bytes(), state_bytes = host_.executable->state_bytes();
  if (!std::ranges::equal(header.model, host_.model_id))
    return fail(ErrorCode::invalid_argument, fmt::format("{} was saved with another model.", path.string()));
  if (header.block_bytes != block_bytes || header.state_bytes != state_bytes)
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} was saved with another --kv-type; use the same one.", path.string()));
  if (header.content != sha256(content)) return damaged(path);

  Cursor rest(content);
  auto tokens = rest.values<TokenId>(header.tokens);
  const auto pictures = rest.values<SavedPicture>(header.pictures);
  const auto positions = rest.values<int64_t>(header.snapshots);
  // Its checksum is right, but it may have been made by hand.
  const auto known = [&](TokenId id) { return id < 0 ? picture_of(id, pictures).has_value() : id < host_.vocabulary; };
  if (!std::ranges::all_of(pictures, &SavedPicture::possible) || !std::ranges::all_of(tokens, known) ||
      !fits_together(header, positions))
    return damaged(path);
  const auto moves = moves_of(pictures, host_.sight);
  if (!moves)
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} is about pictures that this model has not been shown, or not by this vision file; show "
                            "them first.",
                            path.string()));
  for (TokenId& id : tokens)
    if (const auto at = picture_of(id, pictures)) id += static_cast<TokenId>((*moves)[*at]);
  const uint64_t cached = header.tokens - header.dropped;
  if (cached > static_cast<uint64_t>(host_.capacity))
    return fail(ErrorCode::context_full,
                fmt::format("{} holds {} tokens, but the context is {}; choose a larger --ctx.", path.string(), cached,
                            host_.capacity));
  if (header.blocks > host_.cache->free_blocks() + blocks_.size())
    return fail(ErrorCode::out_of_memory, "Other sessions leave too little of the cache; end one.");

  rewind(0);
  if (header.dropped > 0) keep_ = static_cast<int64_t>(header.keep);
  dropped_ = static_cast<int64_t>(header.dropped);
  tokens_.assign(tokens.begin(), tokens.end());
  for (uint64_t i = 0; i < header.blocks; ++i) {
    blocks_.push_back(*host_.cache->acquire());
    std::ranges::copy(rest.bytes(block_bytes),
                      host_.cache->buffer().bytes().data() + static_cast<size_t>(blocks_.back()) * block_bytes);
  }
  const auto state = rest.bytes(state_bytes);
  for (const int64_t position : positions) {
    std::ranges::copy(rest.bytes(state_bytes), host_.states->slot(state_).data());
    snapshots_.take(state_, position);
  }
  std::ranges::copy(state, host_.states->slot(state_).data());
  return {};
}

}  // namespace nanomind
