// SPDX-License-Identifier: Apache-2.0
#include "runtime/vision_match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace nanomind {
namespace {

bool has_planes(const Program& program) {
  return std::ranges::any_of(program.ropes, [](const RopeInfo& rope) { return !rope.axes.empty(); });
}

bool is_token(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> ids = tokenizer.encode(text, ControlTokens::recognise, Beginning::omit);
  return ids.size() == 1 && tokenizer.piece(ids[0]) == text;
}

}  // namespace

Result<void> check_match(const PictureReader& reader, const PictureWriter& writer) {
  const Model& model = reader.model;
  const VisionModel& vision = writer.model;
  std::vector<std::string> reasons;
  if (vision.width != model.width * vision.levels)
    reasons.push_back(fmt::format("{} makes rows of {} numbers, but {} reads rows of {}.", writer.file,
                                  vision.width / vision.levels, reader.file, model.width));
  if (vision.levels != model.picture_levels)
    reasons.push_back(fmt::format("{} makes rows for {} layers, but {} reads those of pictures in {}.", writer.file,
                                  vision.levels, reader.file, model.picture_levels));
  if (vision.joined_side > 0 && !has_planes(model.program))
    reasons.push_back(
        fmt::format("{} places rows in a plane, but {} knows positions in a line only.", writer.file, reader.file));
  for (const std::string& marker : vision.markers) {
    if (!is_token(reader.tokenizer, marker))
      reasons.push_back(
          fmt::format("{} puts rows beside {}, which is no token of {}.", writer.file, marker, reader.file));
  }
  if (reasons.empty()) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("{} They do not belong together (projector type {}, architecture {}). Use the file that was "
                          "published with the language model (--mmproj FILE), or none (--no-mmproj).",
                          fmt::join(reasons, " "), vision.projector_type, model.architecture));
}

Result<void> check_match(const GgufFile& model_file, const GgufFile& vision_file) {
  const Model model = TRY(build_model(model_file));
  const std::unique_ptr<Tokenizer> tokenizer = TRY(make_tokenizer(model_file));
  const VisionModel vision = TRY(build_vision(vision_file));
  return check_match({.model = model, .tokenizer = *tokenizer, .file = model_file.subject()},
                     {.model = vision, .file = vision_file.subject()});
}

}  // namespace nanomind
