// SPDX-License-Identifier: Apache-2.0
// XLM-RoBERTa: embedders such as BGE-M3, and classifiers that rank such as BGE-Reranker (GGUF arch "bert"). Positions
// begin behind the padding's id, so the file has the table from there on.
#include <fmt/format.h>

#include "convert/encoder_keys.h"
#include "convert/family.h"
#include "convert/pooling.h"
#include "convert/tensor_changes.h"

namespace nanomind {
namespace {

constexpr std::string_view kTypes[] = {"xlm-roberta"};
constexpr NameRule kNames[] = {
    {"embeddings.position_embeddings", "position_embd", Change::positions},
    {"classifier.dense", "cls"},
    {"classifier.out_proj", "cls.output"},
};

Result<void> check_one_score(const Checkpoint& checkpoint) {
  const SafetensorsTensor* scores = checkpoint.weights.find("classifier.out_proj.weight");
  if (scores == nullptr)
    return fail(ErrorCode::corrupt,
                fmt::format("{} tells of a classifier that the weights lack.", checkpoint.config.subject()));
  if (scores->rows() == 1) return {};
  return fail(ErrorCode::unsupported, fmt::format("The classifier gives {} scores to a text; only such that give one "
                                                  "are converted.",
                                                  scores->rows()));
}

Result<void> describe(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>&) {
  const Config& config = checkpoint.config;
  keys.count("context_length", TRY(config.integer("max_position_embeddings")) - unused_positions(config));
  TRY(describe_encoder(config, keys));
  if (!is_classifier(checkpoint)) return describe_pooling(checkpoint, keys);
  TRY(check_one_score(checkpoint));
  add_pooling(Pooling::rank, keys);
  return {};
}

}  // namespace

const Family kXlmRoberta{.architecture = "bert",
                         .model_types = kTypes,
                         .names = kNames,
                         .shared = SharedNames::encoders,
                         .describe = describe};

}  // namespace nanomind
