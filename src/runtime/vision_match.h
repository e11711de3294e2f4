// SPDX-License-Identifier: Apache-2.0
// Whether a vision model was made for a language model. Rows of the right width alone say little: siblings share it.
// What is asked of the language model besides is what the rows need there: layers that read their parts, positions in
// the plane, and the control tokens between which they stand.
#pragma once

#include <string_view>

#include "base/result.h"
#include "format/gguf.h"
#include "models/registry.h"
#include "models/vision.h"
#include "text/tokenizer.h"

namespace nanomind {

// One of the two, with the name of its file for errors.
struct PictureReader {
  const Model& model;
  const Tokenizer& tokenizer;
  std::string_view file;
};
struct PictureWriter {
  const VisionModel& model;
  std::string_view file;
};

// invalid_argument, with all that does not match, unless the two belong together.
Result<void> check_match(const PictureReader& reader, const PictureWriter& writer);
// The same of two files. Errors besides: those of build_model, make_tokenizer and build_vision.
Result<void> check_match(const GgufFile& model, const GgufFile& vision);

}  // namespace nanomind
