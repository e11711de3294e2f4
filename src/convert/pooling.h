// SPDX-License-Identifier: Apache-2.0
// How a text's vector is made of its tokens' states: what modules.json of sentence-transformers and the folder of its
// pooling module say.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "convert/family.h"

namespace nanomind {

// The numbers of GGUF's key pooling_type.
enum class Pooling : uint32_t { mean = 1, first = 2, last = 3, rank = 4 };

// Adds the key, and none for a model without that folder. unsupported: another pooling, and a layer that changes the
// vector after it.
Result<void> describe_pooling(const Checkpoint& checkpoint, FamilyKeys& keys);
void add_pooling(Pooling pooling, FamilyKeys& keys);

// Whether the checkpoint's class gives scores to texts ("XLMRobertaForSequenceClassification").
bool is_classifier(const Checkpoint& checkpoint);

}  // namespace nanomind
