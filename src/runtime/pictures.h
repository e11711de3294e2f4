// SPDX-License-Identifier: Apache-2.0
// Pictures that an engine has seen: the tokens that stand for their rows in prompts, and those rows that are kept. Such
// tokens are below 0 and no two pictures share one, so that prefixes with pictures are told apart as those of text are.
// The pictures shown last are known; one that was forgotten gets other tokens when it comes again.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "models/vision.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace nanomind {

struct PictureKey {
  Sha256Digest file{};
  PictureDetail detail;
  auto operator<=>(const PictureKey&) const = default;
};

struct Picture {
  PictureKey source;
  Size size;                              // of the original, upright
  TokenId first = 0;                      // its row i has token first - i
  int64_t count = 0;                      // rows
  std::shared_ptr<const CutPicture> cut;  // null once its rows are kept,
  std::vector<std::byte> file;            // from which it is cut again when they had to go; empty: so had this
  std::vector<TilePlace> places;          // of its tiles
  Sha256Digest made_of{};                 // names its rows in a PictureCache
  uint64_t shown = 0;                     // when: counted in pictures that were shown
  PicturePrompt prompt;
  std::vector<PatchGrid> grids;  // of the rows of each part, where they are those of a tile

  // Where a row stands from the first of its part, and how far the part reaches.
  struct Spot {
    int32_t down = 0, across = 0, reach = 0;
    bool last = false;  // of its part
  };
  Spot spot(TokenId token) const;

  TokenId last() const { return first - static_cast<TokenId>(count) + 1; }
};

struct PictureLimits {
  size_t row_bytes = size_t{64} << 20;   // of the rows used last: of hundreds of pictures, or of tens for large models
  size_t file_bytes = size_t{16} << 20;  // of files of the pictures shown last
  size_t count = 1024;                   // of those pictures
};

// The error for a token of a picture that is not known any more.
std::unexpected<Error> picture_forgotten();

class Pictures {
 public:
  Pictures(int64_t width, const PictureLimits& limits) : width_(width), limits_(limits) {}

  // Null for one that is not known.
  const Picture* find(const PictureKey& source) const;
  // The same, shown once more.
  const Picture* show(const PictureKey& source, std::span<const std::byte> file);
  // The picture that a token stands for, null for none.
  const Picture* of(TokenId token) const;
  // One that is not known. `part_rows` are the rows of each part, as a grid or in one line.
  const Picture& add(const PictureKey& source, std::span<const std::byte> file, Size size,
                     std::shared_ptr<const CutPicture> cut, std::span<const PatchGrid> part_rows,
                     const Sha256Digest& made_of = {});

  // Keeps rows [n, width] of a picture that is known from row `begin` on; rows come in order.
  void keep(TokenId first, int64_t begin, std::span<const float> rows);
  // Null when the row is not kept.
  const float* row(TokenId token) const;
  bool has_rows(const Picture& picture) const;
  // Those of a picture that are all kept, which counts as a use; empty for others.
  std::span<const float> rows(const Picture& picture);

 private:
  struct Kept {
    TokenId first = 0;
    std::vector<float> rows;
  };
  void hold(Picture& picture, std::span<const std::byte> file);
  void make_room();
  void forget_oldest();

  int64_t width_;
  PictureLimits limits_;
  size_t row_bytes_ = 0, file_bytes_ = 0;
  uint64_t shown_ = 0;
  std::map<TokenId, Picture> pictures_;                   // by the last token of each
  std::map<PictureKey, TokenId> sources_;                 // -> last token
  std::list<Kept> kept_;                                  // the one used last first
  std::map<TokenId, std::list<Kept>::iterator> kept_of_;  // by the first token
  TokenId next_ = -1;
};

}  // namespace nanomind
