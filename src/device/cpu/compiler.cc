// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/compiler.h"

#include <fmt/format.h>

#include <utility>

#include "device/cpu/compilation.h"
#include "device/cpu/forms.h"
#include "device/cpu/key_rotation.h"
#include "device/cpu/layout.h"
#include "device/cpu/schedule.h"

namespace nanomind::cpu {
namespace {

class Compiler {
 public:
  explicit Compiler(const Compilation& compilation)
      : compilation_(compilation),
        program_(compilation.program),
        options_(compilation.options),
        chooser_(program_, options_, compilation.kernels) {}

  Result<CompiledProgram> compile() {
    TRY(compilation_.check_weights());
    TRY(check_attention());
    place_kv_layers();
    schedule_ = schedule_program(program_, chooser_);
    layout_ = lay_out(compilation_, schedule_, chooser_);
    TRY(allocate());
    for (const Node& node : schedule_.nodes) emit(node);
    return finish();
  }

 private:
  Result<void> check_attention() const {
    for (const KvLayerInfo& layer : program_.kv_layers) {
      if (layer.head_dim > kMaxHeadDim || layer.head_dim % 8 != 0) {
        return fail(ErrorCode::unsupported,
                    fmt::format("attention with heads of width {} (multiples of 8 up to {} can run).", layer.head_dim,
                                kMaxHeadDim));
      }
    }
    return {};
  }

  void place_kv_layers() {
    for (const KvType type : kKvTypes)
      result_.kv_stores[static_cast<size_t>(type)] = KvStore::make(type, compilation_.kernels);
    result_.key_ropes = key_ropes(program_);
    const std::vector<KvTypes> types = kv_layer_types(program_, options_.kv_type);
    for (const KvLayerInfo& layer : program_.kv_layers) {
      result_.kv_layers.push_back({.types = types[result_.kv_layers.size()],
                                   .heads = static_cast<int>(layer.kv_heads),
                                   .head_dim = static_cast<int>(layer.head_dim),
                                   .offset = result_.kv_block_bytes});
      result_.kv_block_bytes += result_.kv_layers.back().bytes();
    }
  }

  Result<void> allocate() {
    result_.arena = TRY(HostBuffer::allocate(layout_.arena_bytes));
    result_.arena_bytes = layout_.arena_bytes;
    result_.scratch = {memory(layout_.scratch), layout_.scratch.bytes};
    result_.attention_parts = {memory(layout_.attention_parts), layout_.attention_parts.bytes};
    for (size_t i = 0; i < program_.ropes.size(); ++i) {
      const RopeInfo& rope = program_.ropes[i];
      auto* table = reinterpret_cast<float*>(memory(layout_.ropes[i]));
      result_.ropes.push_back(
          {.info = rope,
           .cosine = table,
           .sine = table + static_cast<size_t>(options_.max_tokens) * rope.inverse_frequency.size()});
    }
    return {};
  }

  std::byte* memory(const Region& region) const { return result_.arena->bytes().data() + region.offset; }
  Matrix matrix(ValueId id) const {
    const ValueInfo& info = program_.values[static_cast<size_t>(id)];
    return {.data = reinterpret_cast<float*>(memory(layout_.values[static_cast<size_t>(id)])),
            .stride = row_stride(program_, id),
            .columns = info.columns,
            .rows = info.rows};
  }
  Quantized quantized(ValueId id) const {
    const auto found = schedule_.forms.find(id);
    if (found == schedule_.forms.end()) return {};
    const Form& form = found->second;
    return {.data = memory(layout_.forms.at(id)),
            .stride = chooser_.units(id),
            .units = form.units,
            .few_as_floats = form.few_as_floats,
            .many_as_floats = form.many_as_floats,
            .many = form.many};
  }
  const float* vector(WeightId id) const { return compilation_.vector(id); }

  void emit(const Node& node) {
    if (node.quantizes != kNoValue) {
      result_.instructions.emplace_back(
          QuantizeStep{.x = matrix(node.quantizes), .quantized = quantized(node.quantizes)});
    } else if (const auto* first = node.get_if<op::MatMul>()) {
      ProductStep step{.x = matrix(first->x), .quantized = quantized(first->x), .products = {}};
      for (const Op* op : node.ops) step.products.push_back(product(std::get<op::MatMul>(*op), step.quantized.many));
      result_.instructions.emplace_back(std::move(step));
    } else {
      std::visit([this](const auto& o) { emit_one(o); }, *node.ops[0]);
    }
  }

  Product product(const op::MatMul& o, const GemmKernels* many) const {
    const DType dtype = compilation_.weight(o.weight).dtype;
    return {.w = compilation_.matrix(o.weight),
            .multiply_many = many != nullptr ? chooser_.multiply_many(*many, dtype) : nullptr,
            .bias = vector(o.bias),
            .out = matrix(o.out)};
  }

  void emit_one(const op::Embed& o) {
    const WeightInfo& info = compilation_.weight(o.table);
    if (o.by == Lookup::token) result_.vocabulary = info.shape.rows();
    if (o.by == Lookup::position) result_.positions = info.shape.rows();
    result_.instructions.emplace_back(EmbedStep{
        .out = matrix(o.out), .table = compilation_.bytes(o.table), .dtype = info.dtype, .scale = o.scale, .by = o.by});
  }
  void emit_one(const op::Input& o) {
    result_.instructions.emplace_back(InputStep{.out = matrix(o.out), .first = o.first});
  }
  void emit_one(const op::LayerNorm& o) {
    result_.instructions.emplace_back(LayerNormStep{.out = matrix(o.out),
                                                    .x = matrix(o.x),
                                                    .quantized = quantized(o.out),
                                                    .weight = vector(o.weight),
                                                    .bias = vector(o.bias),
                                                    .eps = o.eps});
  }
  void emit_one(const op::Activate& o) {
    result_.instructions.emplace_back(ActivateStep{
        .out = matrix(o.out), .x = matrix(o.x), .quantized = quantized(o.out), .activation = o.activation});
  }
  void emit_one(const op::RmsNorm& o) {
    result_.instructions.emplace_back(NormStep{.out = matrix(o.out),
                                               .x = matrix(o.x),
                                               .quantized = quantized(o.out),
                                               .weight = vector(o.weight),
                                               .group = o.group,
                                               .eps = o.eps});
  }
  void emit_one(const op::MatMul&) {}
  void emit_one(const op::Rope& o) {
    result_.instructions.emplace_back(
        RopeStep{.x = matrix(o.x), .rope = o.rope, .heads = o.heads, .head_dim = o.head_dim});
  }
  void emit_one(const op::Attention& o) {
    if (o.mask == Mask::group || o.mask == Mask::causal_group) {
      result_.group_mask = o.mask;
      result_.groups.resize(static_cast<size_t>(options_.max_tokens));
    }
    const KvLayout& kv = result_.kv_layers[static_cast<size_t>(o.layer)];
    const auto coded = layout_.workspaces.find(o.out);
    result_.instructions.emplace_back(
        AttentionStep{.out = matrix(o.out),
                      .q = matrix(o.q),
                      .k = o.k == kNoValue ? Matrix() : matrix(o.k),
                      .v = o.v == kNoValue ? Matrix() : matrix(o.v),
                      .kv = kv,
                      .keys = result_.kv_store(kv.types.keys),
                      .values = result_.kv_store(kv.types.values),
                      .heads = o.heads,
                      .window = o.window,
                      .scale = o.scale,
                      .cap = o.cap,
                      .mask = o.mask,
                      .coded = coded != layout_.workspaces.end() ? memory(coded->second) : nullptr});
  }
  void emit_one(const op::GatedActivation& o) {
    result_.instructions.emplace_back(ActivationStep{.out = matrix(o.out),
                                                     .gate = matrix(o.gate),
                                                     .up = matrix(o.up),
                                                     .quantized = quantized(o.out),
                                                     .activation = o.activation});
  }
  void emit_one(const op::Add& o) {
    result_.instructions.emplace_back(
        AddStep{.out = matrix(o.out), .a = matrix(o.a), .b = matrix(o.b), .scale = o.scale});
  }
  void emit_one(const op::Scale& o) {
    result_.instructions.emplace_back(ScaleStep{.x = matrix(o.x), .factor = o.factor, .cap = o.cap});
  }
  void emit_one(const op::Experts& o) {
    ExpertsStep step{.out = matrix(o.out),
                     .x = matrix(o.x),
                     .logits = matrix(o.logits),
                     .gate = compilation_.matrix(o.gate),
                     .up = compilation_.matrix(o.up),
                     .down = compilation_.matrix(o.down),
                     .selection_bias = vector(o.selection_bias),
                     .routing = o.routing,
                     .activation = o.activation,
                     .slots = {}};
    place_slots(step, step.logits.columns, options_.max_tokens, memory(layout_.workspaces.at(o.out)));
    result_.instructions.emplace_back(step);
  }
  void emit_one(const op::SigmoidGate& o) {
    result_.instructions.emplace_back(
        SigmoidGateStep{.out = matrix(o.out), .y = matrix(o.y), .x = matrix(o.x), .weight = vector(o.weight)});
  }
  void emit_one(const op::SplitHeads& o) {
    result_.instructions.emplace_back(
        SplitStep{.first = matrix(o.first), .second = matrix(o.second), .x = matrix(o.x), .width = o.width});
  }
  void emit_one(const op::ShortConv& o) {
    result_.instructions.emplace_back(ShortConvStep{.out = matrix(o.out),
                                                    .x = matrix(o.x),
                                                    .weight = vector(o.weight),
                                                    .state_offset = state_offset(o.state),
                                                    .taps = o.taps,
                                                    .activation = o.activation});
  }
  void emit_one(const op::DeltaRule& o) {
    result_.instructions.emplace_back(DeltaRuleStep{.out = matrix(o.out),
                                                    .x = matrix(o.x),
                                                    .alpha = matrix(o.alpha),
                                                    .beta = matrix(o.beta),
                                                    .decay = vector(o.decay),
                                                    .bias = vector(o.bias),
                                                    .state_offset = state_offset(o.state),
                                                    .key_heads = o.key_heads,
                                                    .value_heads = o.value_heads,
                                                    .key_dim = o.key_dim,
                                                    .value_dim = o.value_dim,
                                                    .eps = o.eps});
  }
  void emit_one(const op::Columns& o) {
    result_.instructions.emplace_back(ColumnsStep{.out = matrix(o.out), .x = matrix(o.x), .first = o.first});
  }
  void emit_one(const op::Join& o) {
    JoinStep step{.out = matrix(o.out), .parts = {}};
    for (const ValueId part : o.parts) step.parts.push_back(matrix(part));
    result_.instructions.emplace_back(std::move(step));
  }
  void emit_one(const op::ScaleColumns& o) {
    result_.instructions.emplace_back(
        ScaleColumnsStep{.out = matrix(o.out), .x = matrix(o.x), .weight = vector(o.weight)});
  }
  void emit_one(const op::WeightedSum& o) {
    WeightedSumStep step{
        .out = matrix(o.out), .base = matrix(o.base), .weights = matrix(o.weights), .terms = {}, .first = o.first};
    for (const ValueId term : o.terms) step.terms.push_back(matrix(term));
    result_.instructions.emplace_back(std::move(step));
  }
  void emit_one(const op::MatchMagnitude& o) {
    result_.instructions.emplace_back(
        MatchMagnitudeStep{.out = matrix(o.out), .x = matrix(o.x), .like = matrix(o.like), .floor = o.floor});
  }
  void emit_one(const op::AboveDeviation& o) {
    result_.instructions.emplace_back(
        AboveDeviationStep{.out = matrix(o.out), .x = matrix(o.x), .deviations = o.deviations});
  }
  void emit_one(const op::SelectRows& o) {
    result_.instructions.emplace_back(SelectStep{.out = matrix(o.out), .x = matrix(o.x)});
  }

  // Floats before a state in what a sequence keeps.
  size_t state_offset(int32_t state) const {
    size_t offset = 0;
    for (int32_t i = 0; i < state; ++i) {
      const int64_t floats = program_.states[static_cast<size_t>(i)].floats;
      offset += static_cast<size_t>((floats + kGroupRows - 1) / kGroupRows * kGroupRows);
    }
    return offset;
  }

  CompiledProgram finish() {
    result_.state_bytes = state_offset(static_cast<int32_t>(program_.states.size())) * sizeof(float);
    result_.output = matrix(program_.output);
    return std::move(result_);
  }

  Compilation compilation_;
  const Program& program_;
  const CompileOptions& options_;
  FormChooser chooser_;
  Schedule schedule_;
  Layout layout_;
  CompiledProgram result_;
};

}  // namespace

Matrix* output_of(Instruction& last, const Matrix& output) {
  if (auto* select = std::get_if<SelectStep>(&last)) return &select->out;
  if (auto* join = std::get_if<JoinStep>(&last)) return &join->out;
  auto* products = std::get_if<ProductStep>(&last);
  // One product: others of the same value would be results that nobody reads.
  return products != nullptr && products->products.size() == 1 && products->products[0].out.rows == output.rows
             ? &products->products[0].out
             : nullptr;
}

Result<CompiledProgram> compile(const Program& program, const CompileOptions& options, const KernelTable& kernels,
                                int threads) {
  if (options.max_tokens < 1 || options.max_outputs < 1) {
    return fail(ErrorCode::invalid_argument, "A program is compiled for at least one token and one output row.");
  }
  return Compiler({.program = program, .options = options, .kernels = kernels, .threads = threads}).compile();
}

}  // namespace nanomind::cpu
