// SPDX-License-Identifier: Apache-2.0
// BERT and sentence embedders made of it (GGUF arch "bert").
#include "convert/encoder_keys.h"
#include "convert/family.h"
#include "convert/pooling.h"

namespace nanomind {
namespace {

constexpr std::string_view kTypes[] = {"bert"};

Result<void> describe(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>&) {
  keys.count("context_length", TRY(checkpoint.config.integer("max_position_embeddings")));
  TRY(describe_encoder(checkpoint.config, keys));
  return describe_pooling(checkpoint, keys);
}

}  // namespace

const Family kBert{
    .architecture = "bert", .model_types = kTypes, .names = {}, .shared = SharedNames::encoders, .describe = describe};

}  // namespace nanomind
