// SPDX-License-Identifier: Apache-2.0
#include "convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "convert/checkpoint.h"
#include "convert/family.h"
#include "convert/vision_family.h"
#include "convert/vocabulary_files.h"

namespace nanomind {
namespace {

constexpr uint32_t kQuantizationVersion = 2;  // of the block layouts

bool is_bf16(const SafetensorsModel& weights) {
  uint64_t bf16 = 0, all = 0;
  for (const auto& [name, tensor] : weights.tensors()) {
    all += tensor->data.size();
    if (tensor->type == SafetensorsType::bf16) bf16 += tensor->data.size();
  }
  return bf16 * 2 > all;
}

// By block, then in the order in which layers use them as far as names sort so; what belongs to no block comes first.
int64_t block_of(const OutputTensor& tensor) {
  std::string_view name = tensor.name;
  if (name.starts_with("v.")) name.remove_prefix(2);
  if (!name.starts_with("blk.")) return -1;
  int64_t block = 0;
  for (const char c : name.substr(4)) {
    if (c < '0' || c > '9') break;
    block = block * 10 + (c - '0');
  }
  return block;
}

GgufTensorSpec spec_of(const OutputTensor& tensor, DType dtype) {
  if (tensor.precision == Precision::exact) dtype = DType::f32;
  if (tensor.precision == Precision::plain && dtype != DType::f16) dtype = DType::f32;
  const int64_t block = traits(dtype).block_columns;
  if (tensor.shape.columns() % block != 0) dtype = DType::f16;
  return {tensor.name, dtype, tensor.shape};
}

// The licence that the model's card names in its first lines, or nothing.
Result<std::string> read_licence(const std::filesystem::path& folder) {
  const std::string card = TRY(read_optional_text(folder / "README.md")).value_or("");
  const size_t end = card.find("\n---", 3);
  if (!card.starts_with("---") || end == std::string::npos) return std::string();
  constexpr std::string_view kKey = "\nlicense:";
  const size_t key = card.find(kKey);
  if (key == std::string::npos || key > end) return std::string();
  std::string value = card.substr(key + kKey.size(), card.find('\n', key + 1) - key - kKey.size());
  std::erase_if(value, [](unsigned char c) { return std::isspace(c) != 0 || c == '"' || c == '\''; });
  return value;
}

// Rows of the embedding, which every family has under this name.
Result<int64_t> vocabulary_rows(const std::vector<OutputTensor>& tensors) {
  const auto found = std::ranges::find(tensors, "token_embd.weight", &OutputTensor::name);
  if (found == tensors.end() || found->shape.rank != 2)
    return fail(ErrorCode::corrupt, "The model has no table of embeddings.");
  return found->shape.rows();
}

// A file that is to be written.
struct Draft {
  std::string architecture;
  GgufMetadata metadata;
  std::vector<OutputTensor> tensors;
  std::vector<GgufTensorSpec> specs;

  uint64_t data_bytes() const {
    uint64_t bytes = 0;
    for (const GgufTensorSpec& spec : specs) bytes += spec.size_bytes();
    return bytes;
  }
};

Result<Draft> begin_draft(const Checkpoint& checkpoint, std::string_view architecture, std::string_view type,
                          DType dtype) {
  Draft draft{.architecture = std::string(architecture), .metadata = {}, .tensors = {}, .specs = {}};
  draft.metadata.add("general.architecture", architecture).add("general.type", type);
  draft.metadata.add("general.name", checkpoint.name);
  if (const std::string licence = TRY(read_licence(checkpoint.folder)); !licence.empty())
    draft.metadata.add("general.license", licence);
  draft.metadata.add("general.file_type", gguf_file_type(dtype));
  draft.metadata.add("general.quantization_version", kQuantizationVersion);
  return draft;
}

void finish_draft(Draft& draft, DType dtype) {
  std::ranges::stable_sort(draft.tensors, {}, block_of);
  for (const OutputTensor& tensor : draft.tensors) draft.specs.push_back(spec_of(tensor, dtype));
}

Result<Draft> draft_text(const Checkpoint& checkpoint, const Family& family, DType dtype) {
  Draft draft = TRY(begin_draft(checkpoint, family.architecture, "model", dtype));
  FamilyKeys keys(draft.metadata, family.architecture);
  std::vector<OutputTensor> described;
  TRY(family.describe(checkpoint, keys, described));
  draft.tensors = TRY(map_tensors(checkpoint, family, std::move(described)));
  finish_draft(draft, dtype);
  const int64_t vocabulary = TRY(vocabulary_rows(draft.tensors));
  TRY(add_vocabulary(checkpoint, vocabulary, draft.metadata));
  if (const auto kinds = checkpoint.config.integer("type_vocab_size"))
    draft.metadata.add("tokenizer.ggml.token_type_count", static_cast<uint32_t>(*kinds));
  return draft;
}

Result<Draft> draft_vision(const Checkpoint& checkpoint, const VisionFamily& family, DType dtype) {
  Draft draft = TRY(begin_draft(checkpoint, "clip", "mmproj", dtype));
  const VisionHalf half = TRY(VisionHalf::open(checkpoint, family.class_settings));
  draft.tensors = TRY(describe_vision(half, family, draft.metadata));
  finish_draft(draft, dtype);
  return draft;
}

// The vision half of all that is to be written: nothing where the model has none, or none that is known.
Result<std::optional<Draft>> draft_sight(const Checkpoint& checkpoint, DType dtype,
                                         std::vector<std::string>& warnings) {
  if (!has_vision(checkpoint)) return std::nullopt;
  const auto family = find_vision_family(checkpoint);
  if (family) return TRY(draft_vision(checkpoint, **family, dtype));
  warnings.push_back(family.error().message + " The language model is.");
  return std::nullopt;
}

Result<std::vector<Draft>> draft_files(Checkpoint& checkpoint, Halves halves, DType dtype,
                                       std::vector<std::string>& warnings) {
  const auto family = find_family(checkpoint.model_type);
  if (family && checkpoint.is_nested()) checkpoint.config = checkpoint.config.over((*family)->class_settings);
  std::vector<Draft> drafts;
  if (halves == Halves::vision) {
    if (!has_vision(checkpoint)) {
      return fail(ErrorCode::unsupported, fmt::format("{} describes no model that sees.", checkpoint.whole.subject()));
    }
    const VisionFamily* sight = TRY(find_vision_family(checkpoint));
    drafts.push_back(TRY(draft_vision(checkpoint, *sight, dtype)));
    return drafts;
  }
  if (!family) return std::unexpected(family.error());
  drafts.push_back(TRY(draft_text(checkpoint, **family, dtype)));
  if (halves == Halves::text) return drafts;
  if (auto sight = TRY(draft_sight(checkpoint, dtype, warnings))) drafts.push_back(*std::move(sight));
  return drafts;
}

// `done`: bytes of this and the files before it, of `total`.
Result<void> write_tensors(const Draft& draft, GgufWriter& writer, const WriteOptions& options, uint64_t& done,
                           uint64_t total) {
  for (size_t i = 0; i < draft.tensors.size(); ++i) {
    const OutputTensor& tensor = draft.tensors[i];
    const ReadRows read = [&tensor](int64_t first, int64_t count, std::span<float> out) {
      // A vector is one row of the file, but as many rows of one column to its source.
      if (tensor.is_vector()) return tensor.read(0, tensor.rows(), out);
      tensor.read(first, count, out);
    };
    TRY(write_rows(writer, i, draft.specs[i], read, options));
    done += draft.specs[i].size_bytes();
    if (options.progress) options.progress(done, total);
  }
  return {};
}

}  // namespace

uint32_t gguf_file_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return 0;
    case DType::f16: return 1;
    case DType::q4_0: return 2;
    case DType::q4_1: return 3;
    case DType::q8_0: return 7;
    case DType::q5_0: return 8;
    case DType::q5_1: return 9;
    case DType::q2_k: return 10;
    case DType::q3_k: return 12;
    case DType::q4_k: return 15;
    case DType::q5_k: return 17;
    case DType::q6_k: return 18;
    case DType::iq4_nl: return 25;
    case DType::iq4_xs: return 30;
    case DType::bf16: return 32;
    case DType::mxfp4: return 38;
  }
  return 1024;  // "guessed"
}

std::filesystem::path vision_path(const std::filesystem::path& target) {
  return target.parent_path() / ("mmproj-" + target.filename().string());
}

Result<Converted> convert_checkpoint(const std::filesystem::path& source, const std::filesystem::path& target,
                                     const ConvertChoice& choice, const WriteOptions& options) {
  Checkpoint checkpoint = TRY(Checkpoint::open(source));
  const DType dtype = choice.dtype ? *choice.dtype : is_bf16(checkpoint.weights) ? DType::bf16 : DType::f16;
  Converted made{.name = checkpoint.name, .dtype = dtype, .files = {}, .warnings = {}};
  const std::vector<Draft> drafts = TRY(draft_files(checkpoint, choice.halves, dtype, made.warnings));
  std::vector<GgufWriter> writers;
  uint64_t done = 0, total = 0;
  for (const Draft& draft : drafts) {
    const auto path = writers.empty() ? target : vision_path(target);
    writers.push_back(TRY(GgufWriter::create(path, draft.metadata, draft.specs)));
    total += draft.data_bytes();
    made.files.push_back({.path = path,
                          .architecture = draft.architecture,
                          .tensors = draft.tensors.size(),
                          .bytes = writers.back().file_bytes()});
  }
  for (size_t i = 0; i < drafts.size(); ++i) TRY(write_tensors(drafts[i], writers[i], options, done, total));
  for (GgufWriter& writer : writers) TRY(writer.finish());
  return made;
}

}  // namespace nanomind
