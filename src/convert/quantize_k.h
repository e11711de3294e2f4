// SPDX-License-Identifier: Apache-2.0
// Super-blocks of the K types: sub-blocks whose scales (and offsets) are small integers times one half (or two).
#pragma once

#include "tensor/block.h"

namespace nanomind {

// x has kSuperBlock finite numbers.
void quantize(const float* x, BlockQ2_K& block);
void quantize(const float* x, BlockQ3_K& block);
void quantize(const float* x, BlockQ4_K& block);
void quantize(const float* x, BlockQ5_K& block);
void quantize(const float* x, BlockQ6_K& block);

}  // namespace nanomind
