// SPDX-License-Identifier: Apache-2.0
#include "media/patches.h"

#include "base/result.h"

namespace nanomind {
namespace {

using SampleTable = std::array<std::array<float, 256>, 3>;  // [channel][sample]

size_t patch_samples(Size size, int patch) {
  const auto rows = static_cast<size_t>(size.height / patch), columns = static_cast<size_t>(size.width / patch);
  return rows * columns * 3 * static_cast<size_t>(patch) * static_cast<size_t>(patch);
}

SampleTable make_table(const Normalization& normalization) {
  SampleTable table;
  for (size_t c = 0; c < 3; ++c) {
    for (int s = 0; s < 256; ++s) {
      table[c][static_cast<size_t>(s)] =
          (static_cast<float>(s) / 255.0f - normalization.mean[c]) / normalization.std[c];
    }
  }
  return table;
}

}  // namespace

void patchify(const Image& image, int patch, const Normalization& normalization, std::span<float> rows) {
  CHECK(patch > 0 && rows.size() == patch_samples(image.size, patch));
  const SampleTable table = make_table(normalization);
  float* target = rows.data();
  for (int top = 0; top + patch <= image.size.height; top += patch) {
    for (int left = 0; left + patch <= image.size.width; left += patch) {
      for (size_t c = 0; c < 3; ++c) {
        for (int y = top; y < top + patch; ++y) {
          const uint8_t* source = image.row(y) + 3 * static_cast<size_t>(left) + c;
          for (int x = 0; x < patch; ++x, source += 3) *target++ = table[c][*source];
        }
      }
    }
  }
}

std::vector<float> patchify(const Image& image, int patch, const Normalization& normalization) {
  std::vector<float> rows(patch_samples(image.size, patch));
  patchify(image, patch, normalization, rows);
  return rows;
}

}  // namespace nanomind
