// SPDX-License-Identifier: Apache-2.0
// What a program's weights are bound to: packed matrices, and vectors as floats, which are copied here, as matrices
// that the file holds transposed are.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "base/result.h"
#include "format/gguf.h"
#include "format/packed_file.h"
#include "ops/program.h"

namespace nanomind {

class WeightBinding {
 public:
  // Packed weights outlive the result; the file's pages are let go of. Errors: corrupt, unsupported (a vector of a type
  // that is not plain).
  static Result<WeightBinding> bind(const Program& program, const GgufFile& file, const PackedWeights& packed);
  // Parallel to Program::weights, as CompileOptions wants them.
  std::span<const std::span<const std::byte>> views() const { return views_; }

 private:
  Result<std::span<const std::byte>> vector(const GgufTensor& tensor);
  std::span<const std::byte> transposed(const WeightInfo& info, DType dtype, std::span<const std::byte> packed);

  std::vector<std::span<const std::byte>> views_;
  std::vector<std::unique_ptr<float[]>> converted_;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, kAlign); }
  };
  static constexpr std::align_val_t kAlign{64};
  std::vector<std::unique_ptr<std::byte[], Free>> packed_here_;
};

}  // namespace nanomind
