// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include "base/result.h"

namespace nanomind {
namespace {

struct NamedType {
  uint32_t number;
  std::string_view name;
};

// The numbers of the GGUF specification; gaps are types that were withdrawn.
constexpr NamedType kNames[] = {
    {0, "F32"},      {1, "F16"},     {2, "Q4_0"},     {3, "Q4_1"},   {6, "Q5_0"},    {7, "Q5_1"},   {8, "Q8_0"},
    {9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},    {12, "Q4_K"},  {13, "Q5_K"},   {14, "Q6_K"},  {15, "Q8_K"},
    {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},
    {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},     {26, "I32"},   {27, "I64"},    {28, "F64"},   {29, "IQ1_M"},
    {30, "BF16"},    {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"}, {40, "NVFP4"},  {41, "Q1_0"},
};

constexpr DTypeTraits kF32{"F32", 1, 4};
constexpr DTypeTraits kF16{"F16", 1, 2};
constexpr DTypeTraits kBf16{"BF16", 1, 2};
constexpr DTypeTraits kQ4_0{"Q4_0", 32, 18};
constexpr DTypeTraits kQ4_1{"Q4_1", 32, 20};
constexpr DTypeTraits kQ5_0{"Q5_0", 32, 22};
constexpr DTypeTraits kQ5_1{"Q5_1", 32, 24};
constexpr DTypeTraits kQ8_0{"Q8_0", 32, 34};
constexpr DTypeTraits kQ2_K{"Q2_K", 256, 84};
constexpr DTypeTraits kQ3_K{"Q3_K", 256, 110};
constexpr DTypeTraits kQ4_K{"Q4_K", 256, 144};
constexpr DTypeTraits kQ5_K{"Q5_K", 256, 176};
constexpr DTypeTraits kQ6_K{"Q6_K", 256, 210};
constexpr DTypeTraits kIq4Nl{"IQ4_NL", 32, 18};
constexpr DTypeTraits kIq4Xs{"IQ4_XS", 256, 136};
constexpr DTypeTraits kMxfp4{"MXFP4", 32, 17};

const DTypeTraits* find_traits(DType dtype) {
  switch (dtype) {
    case DType::f32: return &kF32;
    case DType::f16: return &kF16;
    case DType::bf16: return &kBf16;
    case DType::q4_0: return &kQ4_0;
    case DType::q4_1: return &kQ4_1;
    case DType::q5_0: return &kQ5_0;
    case DType::q5_1: return &kQ5_1;
    case DType::q8_0: return &kQ8_0;
    case DType::q2_k: return &kQ2_K;
    case DType::q3_k: return &kQ3_K;
    case DType::q4_k: return &kQ4_K;
    case DType::q5_k: return &kQ5_K;
    case DType::q6_k: return &kQ6_K;
    case DType::iq4_nl: return &kIq4Nl;
    case DType::iq4_xs: return &kIq4Xs;
    case DType::mxfp4: return &kMxfp4;
  }
  return nullptr;
}

}  // namespace

std::optional<DType> dtype_from_gguf(uint32_t number) {
  const auto dtype = static_cast<DType>(number);
  if (find_traits(dtype) == nullptr) return std::nullopt;
  return dtype;
}

std::string_view gguf_type_name(uint32_t number) {
  for (const NamedType& t : kNames) {
    if (t.number == number) return t.name;
  }
  return {};
}

const DTypeTraits& traits(DType dtype) {
  const DTypeTraits* t = find_traits(dtype);
  CHECK(t != nullptr);
  return *t;
}

}  // namespace nanomind
