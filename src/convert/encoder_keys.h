// SPDX-License-Identifier: Apache-2.0
// The keys that BERT and XLM-RoBERTa share.
#pragma once

#include "convert/family.h"

namespace nanomind {

// embedding_length to vocab_size; context_length and pooling_type are left to the family. unsupported: positions that
// are not added to the embeddings, another activation than GELU.
Result<void> describe_encoder(const Config& config, FamilyKeys& keys);

}  // namespace nanomind
