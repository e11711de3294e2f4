// SPDX-License-Identifier: Apache-2.0
// The changes of convert/family.h, made to a tensor that still is as its source.
#pragma once

#include "base/result.h"
#include "convert/checkpoint.h"
#include "convert/family.h"
#include "convert/output_tensor.h"

namespace nanomind {

// Fails when the tensor's shape does not fit what the settings say.
Result<void> apply_change(Change change, const Config& config, OutputTensor& tensor);

}  // namespace nanomind
