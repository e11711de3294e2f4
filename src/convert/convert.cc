// SPDX-License-Identifier: Apache-2.0
#include "convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "convert/checkpoint.h"
#include "convert/family.h"
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
  if (!tensor.name.starts_with("blk.")) return -1;
  int64_t block = 0;
  for (const char c : std::string_view(tensor.name).substr(4)) {
    if (c < '0' || c > '9') break;
    block = block * 10 + (c - '0');
  }
  return block;
}

GgufTensorSpec spec_of(const OutputTensor& tensor, DType dtype) {
  if (tensor.precision == Precision::exact) dtype = DType::f32;
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

Result<Converted> convert_checkpoint(const std::filesystem::path& source, const std::filesystem::path& target,
                                     std::optional<DType> dtype, const WriteOptions& options) {
  const Checkpoint checkpoint = TRY(Checkpoint::open(source));
  const Family* family = TRY(find_family(checkpoint.model_type));
  const DType chosen = dtype ? *dtype : is_bf16(checkpoint.weights) ? DType::bf16 : DType::f16;

  GgufMetadata metadata;
  metadata.add("general.architecture", family->architecture).add("general.type", "model");
  metadata.add("general.name", checkpoint.name);
  if (const std::string licence = TRY(read_licence(checkpoint.folder)); !licence.empty())
    metadata.add("general.license", licence);
  metadata.add("general.file_type", gguf_file_type(chosen));
  metadata.add("general.quantization_version", kQuantizationVersion);
  FamilyKeys keys(metadata, family->architecture);
  std::vector<OutputTensor> tensors;
  TRY(family->describe(checkpoint, keys, tensors));
  tensors = TRY(map_tensors(checkpoint, *family, std::move(tensors)));
  std::ranges::stable_sort(tensors, {}, block_of);
  const int64_t vocabulary = TRY(vocabulary_rows(tensors));
  TRY(add_vocabulary(checkpoint, vocabulary, metadata));
  if (const auto kinds = checkpoint.config.integer("type_vocab_size"))
    metadata.add("tokenizer.ggml.token_type_count", static_cast<uint32_t>(*kinds));

  std::vector<GgufTensorSpec> specs;
  for (const OutputTensor& tensor : tensors) specs.push_back(spec_of(tensor, chosen));
  GgufWriter writer = TRY(GgufWriter::create(target, metadata, specs));
  uint64_t done = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const OutputTensor& tensor = tensors[i];
    const ReadRows read = [&tensor](int64_t first, int64_t count, std::span<float> out) {
      // A vector is one row of the file, but as many rows of one column to its source.
      if (tensor.is_vector()) return tensor.read(0, tensor.rows(), out);
      tensor.read(first, count, out);
    };
    TRY(write_rows(writer, i, specs[i], read, options));
    done += specs[i].size_bytes();
    if (options.progress) options.progress(done, writer.file_bytes());
  }
  TRY(writer.finish());
  return Converted{.architecture = std::string(family->architecture),
                   .name = checkpoint.name,
                   .dtype = chosen,
                   .tensors = tensors.size(),
                   .bytes = writer.file_bytes()};
}

}  // namespace nanomind
