// SPDX-License-Identifier: Apache-2.0
// Models that see: a tower, which turns patches of a picture into states, and a projector, which turns those into rows
// that stand between a language model's token embeddings. Files are those of llama.cpp ("mmproj", arch "clip"); each
// kind of projector is one file of models/vision/, one line in its registry.cc.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "format/gguf.h"
#include "media/image.h"
#include "media/patches.h"
#include "media/tile.h"
#include "ops/program.h"

namespace nanomind {

// A row that is made of up to four rows of the tiles, counted through all of them, or of none: a mark that the model
// learned (VisionModel::mark).
struct BlendedRow {
  std::array<int32_t, 4> rows{-1, -1, -1, -1};  // -1: none
  std::array<float, 4> weights{};
};

// In a marker this stands for the number of the picture in its prompt, from 0.
inline constexpr std::string_view kPictureNumber("\0number\0", 8);

// A picture as a model takes it: tiles that the tower reads one by one, and what stands for it in the prompt.
struct CutPicture {
  struct Part {
    std::string text;                 // markers: text with control tokens,
    int32_t tile = -1;                // or all rows of a tile,
    std::vector<BlendedRow> blended;  // or rows of several
  };
  std::vector<Image> tiles;  // sides are multiples of the patch
  std::vector<TilePlace> places;
  std::vector<Part> parts;  // in the order of the prompt

  void add_text(std::string text) { parts.push_back({.text = std::move(text), .tile = -1, .blended = {}}); }
  // A tile without a part of its own.
  void add_image(Image tile, const TilePlace& place) {
    tiles.push_back(std::move(tile));
    places.push_back(place);
  }
  void add_tile(Image tile, const TilePlace& place) {
    parts.push_back({.text = {}, .tile = static_cast<int32_t>(tiles.size()), .blended = {}});
    add_image(std::move(tile), place);
  }
  void add_rows(std::vector<BlendedRow> rows) { parts.push_back({.text = {}, .tile = -1, .blended = std::move(rows)}); }
};

// Patches of a tile.
struct PatchGrid {
  int64_t rows = 0, columns = 0;
  int64_t count() const { return rows * columns; }
};

// How the patches of a tile go through the stages.
struct TileLayout {
  std::vector<int32_t> patches;       // [T] the patch, row by row of the grid, that is row t of the first stage
  std::vector<int32_t> places;        // [T] Step::places; empty: the patches in order
  std::vector<RowCoordinates> where;  // [T] Step::where; may be empty
  std::vector<int32_t> windows;       // Step::groups of the first stage; may be empty
  std::vector<float> added;           // [T, C] columns that follow each patch's samples; may be empty
  std::vector<int32_t> results;       // [R] rows of the last stage that are the tile's, in order
};

// A brick of the chain from patches to rows. The first stages are the tower, the last is the projector.
struct VisionStage {
  Program program;          // input [T, C] -> [T, C']
  int64_t merge = 1;        // so many neighbouring rows of the stage before, joined, are one row of the input
  std::vector<float> lead;  // [C] a row before those of the stage before; may be empty
};

struct VisionModel {
  std::string projector_type;
  int64_t patch_size = 0;    // pixels of a side
  int64_t most_patches = 0;  // of a tile
  int64_t width = 0;         // floats of a row: E of the language model, or several times that (VisionModel::levels)
  int64_t levels = 1;        // layers of the language model that get a part of each row
  Normalization normalization;
  std::vector<VisionStage> stages;
  std::vector<float> mark;  // [E] of BlendedRow; empty where there is none
  bool whole = false;       // rows of one tile see each other in the language model
  // Texts of `cut` that are one token each in the language models that this was made for.
  std::vector<std::string> markers;
  int64_t joined_side = 0;  // above 0: rows stand in the plane (Step::where) in the language model; patches of a row
  std::function<CutPicture(const Image& picture, const PictureDetail& detail)> cut;
  std::function<TileLayout(PatchGrid grid)> layout;

  // Rows of the input of a stage for the largest tile.
  int64_t most_rows(size_t stage) const {
    int64_t rows = most_patches;
    for (size_t i = 0; i <= stage; ++i) rows = rows / stages[i].merge + (stages[i].lead.empty() ? 0 : 1);
    return rows;
  }
};

// Of a file that has a vision model alone or beside a language model. Reads parameters, checks all weights and records
// all stages; failures as for build_model. The result does not refer to the file.
Result<VisionModel> build_vision(const GgufFile& file);

}  // namespace nanomind
