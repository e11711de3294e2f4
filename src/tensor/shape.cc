// SPDX-License-Identifier: Apache-2.0
#include "tensor/shape.h"

namespace nanomind {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace nanomind
