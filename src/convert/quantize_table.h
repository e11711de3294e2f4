// SPDX-License-Identifier: Apache-2.0
// Blocks whose codes are places in a table of values.
#pragma once

#include "tensor/block.h"

namespace nanomind {

// x has kBlock finite numbers; kSuperBlock for IQ4_XS.
void quantize(const float* x, BlockIQ4_NL& block);
void quantize(const float* x, BlockIQ4_XS& block);
void quantize(const float* x, BlockMXFP4& block);

}  // namespace nanomind
