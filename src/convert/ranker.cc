// SPDX-License-Identifier: Apache-2.0
#include "convert/ranker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "convert/pooling.h"

namespace nanomind {
namespace {

constexpr std::string_view kName = "qwen3-reranker";
constexpr std::string_view kClassifier = "cls.output.weight";

// Of the model's card; the answer begins after an empty thought.
constexpr const char* kQuestion =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n";

bool names_ranker(std::string text, std::string_view name) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.find(name) != std::string::npos;
}

// In the base model or in one around it.
const SafetensorsTensor* find_weight(const Checkpoint& checkpoint, const std::string& name) {
  const SafetensorsTensor* tensor = checkpoint.weights.find(name);
  return tensor != nullptr ? tensor : checkpoint.weights.find("model." + name);
}

Result<OutputTensor> answers(const Checkpoint& checkpoint, const SafetensorsTensor& head) {
  TRY(check_convertible(head));
  const Config vocabulary = TRY(read_config(checkpoint.folder / "tokenizer.json")).part("model").part("vocab");
  OutputTensor tensor{.name = std::string(kClassifier), .shape = {2, head.columns()}};
  for (const char* word : {"yes", "no"}) {
    const int64_t id = TRY(vocabulary.integer(word));
    if (id >= head.rows()) {
      return fail(ErrorCode::corrupt, fmt::format("{}: \"{}\" has the id {}, but the model's head has {} rows.",
                                                  vocabulary.subject(), word, id, head.rows()));
    }
    tensor.sources.push_back({&head, id, 1});
  }
  return tensor;
}

// The share of yes against a no that always is 0 is the sigmoid of the score.
Result<OutputTensor> score_and_zero(const SafetensorsTensor& score) {
  const OutputTensor row = TRY(whole_tensor(std::string(kClassifier), score));
  if (row.shape.rank != 2 || row.rows() != 1) {
    return fail(ErrorCode::unsupported,
                fmt::format("The model gives {} scores to a text; only such that give one are converted.", row.rows()));
  }
  OutputTensor tensor{.name = row.name, .shape = {2, row.columns()}};
  tensor.constant.resize(static_cast<size_t>(2 * row.columns()));
  row.read(0, 1, tensor.constant);
  return tensor;
}

}  // namespace

Result<bool> is_ranker(const Checkpoint& checkpoint) {
  const std::string card = TRY(read_optional_text(checkpoint.folder / "README.md")).value_or("");
  return is_classifier(checkpoint) || names_ranker(checkpoint.name, kName) ||
         names_ranker(checkpoint.config.text_or("_name_or_path", ""), kName) ||
         names_ranker(card, fmt::format("# {}", kName));
}

Result<void> describe_ranker(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  add_pooling(Pooling::rank, keys);
  keys.add("classifier.output_labels", std::vector<std::string>{"yes", "no"});
  keys.add_to_tokenizer("chat_templates", std::vector<std::string>{"rerank"});
  keys.add_to_tokenizer("chat_template.rerank", kQuestion);
  if (const SafetensorsTensor* score = checkpoint.weights.find("score.weight")) {
    tensors.push_back(TRY(score_and_zero(*score)));
    return {};
  }
  const bool is_tied = checkpoint.config.flag_or("tie_word_embeddings", false);
  const SafetensorsTensor* head = is_tied ? nullptr : find_weight(checkpoint, "lm_head.weight");
  if (head == nullptr) head = find_weight(checkpoint, "embed_tokens.weight");
  if (head == nullptr) return fail(ErrorCode::corrupt, "The model has no table of embeddings.");
  tensors.push_back(TRY(answers(checkpoint, *head)));
  return {};
}

}  // namespace nanomind
