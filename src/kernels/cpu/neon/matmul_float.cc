// SPDX-License-Identifier: Apache-2.0
// Matmuls with weights kept as floats, for the AArch64 baseline.
#include "kernels/cpu/neon/product.h"
#include "kernels/cpu/table.h"

namespace nanomind {
namespace {

// Columns per pass when several row tiles read the same weights: 16 KiB of floats per group stay in the smallest L1.
constexpr int64_t kPanel = 256;
constexpr float kOnes[kMaxTileRows] = {1, 1, 1, 1, 1, 1, 1, 1};

template <class Weight>
void multiply(const FloatMatmulArgs& a) {
  using Element = typename Weight::Element;
  const int64_t panel = a.m > 4 ? kPanel : a.columns;
  const auto* const weights = reinterpret_cast<const Element*>(a.weights);
  const auto group_stride = static_cast<int64_t>(a.group_bytes / sizeof(Element));
  for (int g = 0; g < a.groups; g += 2) {
    const int groups = a.groups - g < 2 ? 1 : 2;
    for (int64_t c = 0; c < a.columns; c += panel) {
      product<Weight>({.w = weights + g * group_stride + c * kGroupRows,
                       .strip_stride = group_stride,
                       .w_stride = kGroupRows,
                       .columns = a.columns - c < panel ? a.columns - c : panel,
                       .outputs = groups * kGroupRows,
                       .x = a.x + c,
                       .x_stride = a.x_stride,
                       .m = a.m,
                       .keep = c == 0 ? nullptr : kOnes,
                       .out = a.out + g * kGroupRows,
                       .out_stride = a.out_stride});
    }
  }
}

}  // namespace

namespace neon {

void install_float_matmul(KernelTable& table) {
  table.matmul_float[static_cast<int>(FloatWeight::f32)] = multiply<FromFloat>;
  table.matmul_float[static_cast<int>(FloatWeight::f16)] = multiply<FromHalf>;
  table.matmul_float[static_cast<int>(FloatWeight::bf16)] = multiply<FromBf16>;
}

}  // namespace neon
}  // namespace nanomind
