// SPDX-License-Identifier: Apache-2.0
// The changes of convert/family.h, made to a tensor that still is as its source.
#pragma once

#include "base/result.h"
#include "convert/checkpoint.h"
#include "convert/family.h"
#include "convert/output_tensor.h"

namespace nanomind {

// Rows of a table of learnt positions that no token has: those up to the padding's id (XLM-RoBERTa).
int64_t unused_positions(const Config& config);

// Fails when the tensor's shape does not fit what the settings say.
Result<void> apply_change(Change change, const Config& config, OutputTensor& tensor);

}  // namespace nanomind
