// SPDX-License-Identifier: Apache-2.0
// Of other processors than x86: nothing is emulated.
#include "kernels/cpu/select.h"
#include "kernels/cpu/test_features.h"

namespace nanomind {

uint32_t testable_features() { return detect_cpu_features(); }

}  // namespace nanomind
