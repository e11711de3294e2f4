// SPDX-License-Identifier: Apache-2.0
// Rows of pictures on disk, so that a picture that was seen before needs no bricks: one file for each, named by a hash
// of what its rows are made of. A file is believed only if its checksum is right; one that is not is removed. Those
// used last stay. Several programs may use one folder. Of one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/sha256.h"
#include "models/vision.h"
#include "runtime/picture.h"

namespace nanomind {

struct PictureCacheOptions {
  std::filesystem::path folder;  // made when the first picture is stored; only its owner may read it
  uint64_t most_bytes = kPictureCacheBytes;
  Log log;
};

// Hash of what the rows of a picture are made of: its tiles and the encoder, so that any change of how pictures are cut
// makes them others. `encoder` stands for everything that rows depend on besides the tiles.
Sha256Digest rows_digest(const CutPicture& cut, const Sha256Digest& encoder);

class PictureCache {
 public:
  explicit PictureCache(PictureCacheOptions options) : options_(std::move(options)) {}

  // The `floats` numbers that were stored for it, which counts as a use; empty when there are none.
  std::vector<float> find(const Sha256Digest& made_of, size_t floats) const;
  // Makes room and stores them. Failures are warned of, once.
  void store(const Sha256Digest& made_of, std::span<const float> rows);

 private:
  std::filesystem::path path_of(const Sha256Digest& made_of) const;
  void make_room(uint64_t bytes) const;
  Result<void> write(const Sha256Digest& made_of, std::span<const float> rows) const;

  PictureCacheOptions options_;
  bool warned_ = false;
};

}  // namespace nanomind
