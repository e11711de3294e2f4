// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/forms.h"

#include <algorithm>

#include "device/cpu/nodes.h"

namespace nanomind::cpu {
namespace {

// Rows of pictures lose less than logits do. Measured with 8 bits against `high`: the worst cosine of a picture's rows
// was 0.99991 at a width of 768 and 0.99994 at 1152 (random weights). At 256 (models/tinyvision) it was 0.9997, or
// 0.99997 without the products of what norms make, in which a few columns are much larger than their neighbours.
// Attention in integers is bound as they are.
constexpr int64_t kPictureMinWidthBehindNorms = 512, kPictureMinWidth = 256;

}  // namespace

std::optional<IntWeight> int_weight(DType dtype) {
  switch (dtype) {
    case DType::q4_0: return IntWeight::q4_0;
    case DType::q4_1: return IntWeight::q4_1;
    case DType::q5_0: return IntWeight::q5_0;
    case DType::q5_1: return IntWeight::q5_1;
    case DType::q8_0: return IntWeight::q8_0;
    case DType::q2_k: return IntWeight::q2_k;
    case DType::q3_k: return IntWeight::q3_k;
    case DType::q4_k: return IntWeight::q4_k;
    case DType::q5_k: return IntWeight::q5_k;
    case DType::q6_k: return IntWeight::q6_k;
    case DType::iq4_nl: return IntWeight::iq4_nl;
    case DType::iq4_xs: return IntWeight::iq4_xs;
    case DType::mxfp4: return IntWeight::mxfp4;
    default: return std::nullopt;
  }
}

FloatWeight float_weight(DType dtype) {
  if (dtype == DType::f16) return FloatWeight::f16;
  if (dtype == DType::bf16) return FloatWeight::bf16;
  return FloatWeight::f32;
}

FormChooser::FormChooser(const Program& program, const CompileOptions& options, const KernelTable& kernels)
    : program_(program), options_(options), kernels_(kernels) {
  read_as_floats_.insert(program.output);
  for (const Op& op : program.ops) {
    const Uses use = uses(op);
    makers_.emplace(use.writes, &op);  // the first: others change the value
    if (!std::holds_alternative<op::MatMul>(op)) read_as_floats_.insert(use.reads.begin(), use.reads.end());
  }
}

Form FormChooser::choose(ValueId id, Products products) const {
  const bool by_others = read_as_floats_.contains(id);
  Form form{.few_as_floats = by_others, .many_as_floats = by_others};
  for (const Op* op : products) form.units |= int_weight(dtype_of(*op)).has_value();
  if (max_rows(id) >= kManyRows) {
    const GemmKernels& fast = fast_kernels(id);
    if (may_be_fast(id) && serves(fast, products))
      form.many = &fast;
    else if (serves(kernels_.gemm, products))
      form.many = &kernels_.gemm;
  }
  for (const Op* op : products) {
    const DType dtype = dtype_of(*op);
    if (int_weight(dtype)) continue;
    form.few_as_floats = true;
    form.many_as_floats |= form.many == nullptr || multiply_many(*form.many, dtype) == nullptr;
  }
  return form;
}

DType FormChooser::dtype_of(const Op& product) const {
  return program_.weights[static_cast<size_t>(std::get<op::MatMul>(product).weight)].dtype;
}

// Whether all products but those of floats, which read float rows as well, can go by `gemm`, and any does.
bool FormChooser::serves(const GemmKernels& gemm, Products products) const {
  const auto served = [&](const Op* op) {
    return multiply_many(gemm, dtype_of(*op)) != nullptr && (&gemm == &kernels_.gemm || bears_bytes(*op));
  };
  const auto fine = [&](const Op* op) { return dtype_of(*op) == DType::f32 || served(op); };
  return std::ranges::all_of(products, fine) && std::ranges::any_of(products, served);
}

Gemm FormChooser::multiply_many(const GemmKernels& gemm, DType dtype) const {
  const std::optional<IntWeight> integer = int_weight(dtype);
  if (integer) return gemm.multiply[static_cast<int>(*integer)];
  if (dtype == DType::f32 || options_.precision == PromptPrecision::high) return nullptr;
  return gemm.multiply_float[static_cast<int>(float_weight(dtype))];
}

// Weights of 16 bits become others there. Those of language models stay as they are; what that costs towers is in
// docs/numbers.md.
bool FormChooser::bears_bytes(const Op& product) const { return int_weight(dtype_of(product)) || reads_pictures(); }

// Results that are wanted are always computed exactly, and so are the first and the last products of a picture, those
// of its patches and the projector's: a fiftieth of the work, but up to a third of the error, and all of it where the
// tower is narrow and the projector is not.
bool FormChooser::may_be_fast(ValueId id) const {
  const bool exact = reads_pictures() && (!attends() || id == std::get<op::Input>(program_.ops.front()).out);
  return kernels_.gemm_fast.pack != nullptr && options_.precision == PromptPrecision::fast && !exact &&
         value(id).rows == Rows::tokens && width() >= least_width(id);
}

int64_t FormChooser::least_width(ValueId id) const {
  if (!reads_pictures()) return kernels_.gemm_fast.min_width;
  const bool behind_norm = maker<op::LayerNorm>(id) != nullptr || maker<op::RmsNorm>(id) != nullptr;
  return behind_norm ? kPictureMinWidthBehindNorms : kPictureMinWidth;
}

const GemmKernels& FormChooser::fast_kernels(ValueId id) const {
  const auto* made = maker<op::Activate>(id);
  const bool behind_gelu =
      made != nullptr && (made->activation == Activation::gelu || made->activation == Activation::gelu_tanh ||
                          made->activation == Activation::gelu_quick);
  return behind_gelu && kernels_.gemm_fast_gelu.pack != nullptr ? kernels_.gemm_fast_gelu : kernels_.gemm_fast;
}

bool FormChooser::in_integers(const op::Attention& o) const {
  const int64_t head_dim = program_.kv_layers[static_cast<size_t>(o.layer)].head_dim;
  return kernels_.integer_attention.attend != nullptr && options_.precision == PromptPrecision::fast &&
         reads_pictures() && width() >= kPictureMinWidthBehindNorms &&
         (o.mask == Mask::none || o.mask == Mask::group) && o.k != kNoValue && o.window == 0 && o.cap == 0 &&
         head_dim <= kIntegerHeadDim;
}

// Towers and projectors begin with given rows, language models with the embedding of tokens.
bool FormChooser::reads_pictures() const {
  return !program_.ops.empty() && std::holds_alternative<op::Input>(program_.ops.front());
}

bool FormChooser::attends() const {
  return std::ranges::any_of(program_.ops, [](const Op& op) { return std::holds_alternative<op::Attention>(op); });
}

// Of what comes first, or of the product of the given rows; -1 of programs that have neither.
int64_t FormChooser::width() const {
  for (const Op& op : program_.ops) {
    const auto* product = std::get_if<op::MatMul>(&op);
    if (product != nullptr && reads_pictures()) return value(product->out).columns;
    if (const auto* embed = std::get_if<op::Embed>(&op)) return value(embed->out).columns;
  }
  return -1;
}

int64_t FormChooser::units(ValueId id) const { return padded_units(value(id).columns); }

size_t FormChooser::bytes(ValueId id, const Form& form) const {
  const int64_t rows = max_rows(id), few = form.many != nullptr ? std::min(rows, kManyRows) : rows;
  const size_t units_bytes = form.units ? static_cast<size_t>(few * units(id)) * sizeof(ActivationUnit) : 0;
  return std::max(units_bytes, form.many != nullptr ? form.many->packed_bytes(rows, value(id).columns) : 0);
}

size_t FormChooser::scratch_bytes(const std::map<ValueId, Form>& forms, int threads) const {
  size_t largest = 0;
  for (const auto& [id, form] : forms) {
    if (form.many != nullptr) largest = std::max(largest, form.many->scratch_bytes(value(id).columns));
  }
  return (largest + 63) / 64 * 64 * static_cast<size_t>(threads);
}

}  // namespace nanomind::cpu
