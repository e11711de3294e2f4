// SPDX-License-Identifier: Apache-2.0
// Decoders that rank documents by their answer, yes or no, as Qwen3-Reranker does: what is kept of their head, and how
// they are asked.
#pragma once

#include <vector>

#include "convert/family.h"

namespace nanomind {

// By its class, or by the name of its folder, in its settings or at the top of its card.
Result<bool> is_ranker(const Checkpoint& checkpoint);

// Adds pooling_type, labels, the question with {query} and {document}, and the classifier: the head's rows of "yes" and
// "no", or the score of a class that has one. Errors: a vocabulary without these words, other than one score.
Result<void> describe_ranker(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors);

}  // namespace nanomind
