// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "device/cpu/buffer_plan.h"
#include "device/cpu/forms.h"
#include "device/cpu/key_rotation.h"
#include "device/cpu/nodes.h"
#include "tensor/packed.h"

namespace nanomind::cpu {
namespace {

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

class Compiler {
 public:
  Compiler(const Program& program, const CompileOptions& options, const KernelTable& kernels, int threads)
      : program_(program),
        options_(options),
        kernels_(kernels),
        chooser_(program, options, kernels),
        threads_(threads) {}

  Result<CompiledProgram> compile() {
    TRY(check_weights());
    TRY(check_attention());
    place_kv_layers();
    group_products();
    TRY(lay_out());
    for (const Node& node : nodes_) emit(node);
    return finish();
  }

 private:
  Result<void> check_weights() const {
    if (options_.weights.size() != program_.weights.size()) {
      return fail(ErrorCode::invalid_argument, "The number of weights given does not match the program.");
    }
    for (size_t i = 0; i < program_.weights.size(); ++i) {
      const WeightInfo& info = program_.weights[i];
      const size_t expected = info.shape.rank == 1 ? static_cast<size_t>(info.shape.elements()) * sizeof(float)
                                                   : packed_bytes(info.dtype, info.shape.rows(), info.shape.columns());
      if (options_.weights[i].size() != expected) {
        return fail(ErrorCode::corrupt, fmt::format("Weight {} has {} bytes, expected {}.", info.name,
                                                    options_.weights[i].size(), expected));
      }
    }
    return {};
  }

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
    for (const KvType type : kKvTypes) result_.kv_stores[static_cast<size_t>(type)] = KvStore::make(type, kernels_);
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

  // A product joins an earlier product of the same value: values are written once, but for rotary positions, which no
  // product reads.
  void group_products() {
    std::map<ValueId, size_t> products;
    for (const Op& op : program_.ops) {
      if (const auto* product = std::get_if<op::MatMul>(&op)) {
        const auto [found, is_new] = products.try_emplace(product->x, nodes_.size());
        if (!is_new) {
          nodes_[found->second].push_back(&op);
          continue;
        }
      }
      nodes_.push_back({&op});
    }
    for (const auto& [value, node] : products) {
      if (const Form form = chooser_.choose(value, nodes_[node]); form.units || form.many != nullptr)
        forms_.emplace(value, form);
    }
    insert_quantize_nodes();
  }

  // Norms and activations quantise what they make; other values get an instruction of their own before their product,
  // which is an empty node here.
  void insert_quantize_nodes() {
    std::set<ValueId> done;
    std::vector<Node> nodes;
    for (Node& node : nodes_) {
      if (const auto* norm = std::get_if<op::RmsNorm>(node[0])) done.insert(norm->out);
      if (const auto* norm = std::get_if<op::LayerNorm>(node[0])) done.insert(norm->out);
      if (const auto* gated = std::get_if<op::GatedActivation>(node[0])) done.insert(gated->out);
      if (const auto* activated = std::get_if<op::Activate>(node[0])) done.insert(activated->out);
      const auto* product = std::get_if<op::MatMul>(node[0]);
      if (product != nullptr && forms_.contains(product->x) && !done.contains(product->x)) {
        quantize_nodes_.emplace(nodes.size(), product->x);
        nodes.push_back({});
      }
      nodes.push_back(std::move(node));
    }
    nodes_ = std::move(nodes);
  }

  // Rows are an odd number of cache lines apart, so that those of a column do not compete for few sets of a cache; but
  // what a caller is given has no gaps.
  int64_t stride(ValueId id) const {
    const int64_t lines = round_up(program_.values[static_cast<size_t>(id)].columns, kGroupRows) / kGroupRows;
    return (id == program_.output ? lines : lines | 1) * kGroupRows;
  }
  Result<void> lay_out() {
    const size_t values = program_.values.size();
    std::vector<Lifetime> lives(values, {.bytes = 0, .first = -1, .last = -1});
    const auto touch = [&](ValueId id, int at) {
      Lifetime& life = lives[static_cast<size_t>(id)];
      if (life.first < 0) life.first = at;
      life.last = std::max(life.last, at);
    };
    for (int at = 0; at < static_cast<int>(nodes_.size()); ++at) {
      if (const auto found = quantize_nodes_.find(static_cast<size_t>(at)); found != quantize_nodes_.end())
        touch(found->second, at);
      for (const Op* op : nodes_[static_cast<size_t>(at)]) {
        const Uses u = uses(*op);
        for (ValueId id : u.reads) touch(id, at);
        touch(u.writes, at);
      }
    }
    const int end = static_cast<int>(nodes_.size());
    touch(program_.output, end);
    for (size_t i = 0; i < values; ++i) {
      const auto id = static_cast<ValueId>(i);
      lives[i].bytes = static_cast<size_t>(chooser_.max_rows(id) * stride(id)) * sizeof(float);
    }
    // The quantised form of a value lives exactly as long as the value needs to.
    for (auto& [id, form] : forms_) {
      form.slot = lives.size();
      Lifetime life = lives[static_cast<size_t>(id)];
      life.bytes = chooser_.bytes(id, form);
      lives.push_back(life);
    }
    const size_t first_rope = lives.size();
    for (const RopeInfo& rope : program_.ropes) {
      const size_t bytes = 2 * static_cast<size_t>(options_.max_tokens) * rope.inverse_frequency.size() * sizeof(float);
      lives.push_back({.bytes = bytes, .first = 0, .last = end});
    }

    for (size_t at = 0; at < nodes_.size(); ++at) {
      const auto* experts = nodes_[at].empty() ? nullptr : std::get_if<op::Experts>(nodes_[at][0]);
      if (experts == nullptr) continue;
      ExpertsStep step = experts_step(*experts);
      slots_.emplace(experts->out, lives.size());
      lives.push_back({.bytes = place_slots(step, experts_of(*experts), options_.max_tokens, nullptr),
                       .first = static_cast<int>(at),
                       .last = static_cast<int>(at)});
    }

    for (size_t at = 0; at < nodes_.size(); ++at) {
      const auto* attention = nodes_[at].empty() ? nullptr : std::get_if<op::Attention>(nodes_[at][0]);
      if (attention == nullptr || !chooser_.in_integers(*attention)) continue;
      const KvLayerInfo& layer = program_.kv_layers[static_cast<size_t>(attention->layer)];
      slots_.emplace(attention->out, lives.size());
      lives.push_back(
          {.bytes = integer_keys_bytes(layer.kv_heads, options_.max_tokens, static_cast<int>(layer.head_dim)),
           .first = static_cast<int>(at),
           .last = static_cast<int>(at)});
    }

    const size_t scratch = lives.size(), parts = scratch + 1;
    lives.push_back({.bytes = chooser_.scratch_bytes(forms_, threads_), .first = 0, .last = end});
    int64_t widest_head = 0;
    for (const KvLayerInfo& layer : program_.kv_layers) widest_head = std::max(widest_head, layer.head_dim);
    lives.push_back({.bytes = attention_part_bytes(static_cast<int>(widest_head), threads_), .first = 0, .last = end});

    const BufferPlan plan = plan_buffers(lives);
    result_.arena = TRY(HostBuffer::allocate(plan.arena_bytes));
    result_.arena_bytes = plan.arena_bytes;
    offsets_ = plan.offsets;
    result_.scratch = {arena(scratch), lives[scratch].bytes};
    result_.attention_parts = {arena(parts), lives[parts].bytes};
    for (size_t i = 0; i < program_.ropes.size(); ++i) {
      const RopeInfo& rope = program_.ropes[i];
      auto* table = reinterpret_cast<float*>(arena(first_rope + i));
      result_.ropes.push_back(
          {.info = rope,
           .cosine = table,
           .sine = table + static_cast<size_t>(options_.max_tokens) * rope.inverse_frequency.size()});
    }
    return {};
  }

  std::byte* arena(size_t slot) const { return result_.arena->bytes().data() + offsets_[slot]; }
  Matrix matrix(ValueId id) const {
    const ValueInfo& info = program_.values[static_cast<size_t>(id)];
    return {.data = reinterpret_cast<float*>(arena(static_cast<size_t>(id))),
            .stride = stride(id),
            .columns = info.columns,
            .rows = info.rows};
  }
  Quantized quantized(ValueId id) const {
    const auto found = forms_.find(id);
    if (found == forms_.end()) return {};
    const Form& form = found->second;
    return {.data = arena(form.slot),
            .stride = chooser_.units(id),
            .units = form.units,
            .only = form.only,
            .many = form.many};
  }
  const float* vector(WeightId id) const {
    return id == kNoWeight ? nullptr : reinterpret_cast<const float*>(options_.weights[static_cast<size_t>(id)].data());
  }

  void emit(const Node& node) {
    const size_t at = emitted_++;
    if (const auto found = quantize_nodes_.find(at); found != quantize_nodes_.end()) {
      result_.instructions.emplace_back(
          QuantizeStep{.x = matrix(found->second), .quantized = quantized(found->second)});
      return;
    }
    if (std::holds_alternative<op::MatMul>(*node[0])) return emit_products(node);
    std::visit([this](const auto& o) { emit_one(o); }, *node[0]);
  }

  void emit_products(const Node& node) {
    const ValueId x = std::get<op::MatMul>(*node[0]).x;
    ProductStep step{.x = matrix(x), .quantized = quantized(x), .products = {}};
    for (const Op* op : node) step.products.push_back(product(std::get<op::MatMul>(*op), step.quantized.many));
    result_.instructions.emplace_back(std::move(step));
  }

  Product product(const op::MatMul& o, const GemmKernels* many) const {
    const DType dtype = program_.weights[static_cast<size_t>(o.weight)].dtype;
    return {.w = weight_matrix(o.weight),
            .multiply_many = many != nullptr ? chooser_.multiply_many(*many, dtype) : nullptr,
            .bias = vector(o.bias),
            .out = matrix(o.out)};
  }

  WeightMatrix weight_matrix(WeightId id) const {
    const WeightInfo& info = program_.weights[static_cast<size_t>(id)];
    const Shape& shape = info.shape;
    const int64_t columns = shape.columns(), block = packed_traits(info.dtype).block_columns;
    const std::optional<IntWeight> type = int_weight(info.dtype);
    return {.weights = options_.weights[static_cast<size_t>(id)],
            .group_bytes = packed_group_bytes(info.dtype, columns),
            .groups = round_up(shape.rank == 2 ? shape.rows() : shape[1], kGroupRows) / kGroupRows,
            .columns = columns,
            .blocks = round_up(columns, block) / block,
            .multiply = type ? kernels_.matmul[static_cast<int>(*type)] : nullptr,
            .multiply_float = type ? nullptr : kernels_.matmul_float[static_cast<int>(float_weight(info.dtype))]};
  }

  void emit_one(const op::Embed& o) {
    const WeightInfo& info = program_.weights[static_cast<size_t>(o.table)];
    if (o.by == Lookup::token) result_.vocabulary = info.shape.rows();
    if (o.by == Lookup::position) result_.positions = info.shape.rows();
    result_.instructions.emplace_back(EmbedStep{.out = matrix(o.out),
                                                .table = options_.weights[static_cast<size_t>(o.table)],
                                                .dtype = info.dtype,
                                                .scale = o.scale,
                                                .by = o.by});
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
    const auto coded = slots_.find(o.out);
    result_.instructions.emplace_back(AttentionStep{.out = matrix(o.out),
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
                                                    .coded = coded != slots_.end() ? arena(coded->second) : nullptr});
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
  int64_t experts_of(const op::Experts& o) const { return program_.values[static_cast<size_t>(o.logits)].columns; }
  // All but its places in the arena.
  ExpertsStep experts_step(const op::Experts& o) const {
    return {.out = {},
            .x = {},
            .logits = {},
            .gate = weight_matrix(o.gate),
            .up = weight_matrix(o.up),
            .down = weight_matrix(o.down),
            .selection_bias = vector(o.selection_bias),
            .routing = o.routing,
            .activation = o.activation,
            .slots = {}};
  }
  void emit_one(const op::Experts& o) {
    ExpertsStep step = experts_step(o);
    step.out = matrix(o.out);
    step.x = matrix(o.x);
    step.logits = matrix(o.logits);
    place_slots(step, experts_of(o), options_.max_tokens, arena(slots_.at(o.out)));
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
      offset += static_cast<size_t>(round_up(program_.states[static_cast<size_t>(i)].floats, kGroupRows));
    }
    return offset;
  }

  CompiledProgram finish() {
    result_.state_bytes = state_offset(static_cast<int32_t>(program_.states.size())) * sizeof(float);
    result_.output = matrix(program_.output);
    return std::move(result_);
  }

  const Program& program_;
  const CompileOptions& options_;
  const KernelTable& kernels_;
  FormChooser chooser_;
  int threads_;
  std::vector<Node> nodes_;
  std::map<size_t, ValueId> quantize_nodes_;  // node -> value that it quantises
  std::map<ValueId, Form> forms_;             // of values that products read
  std::map<ValueId, size_t> slots_;           // result of experts or attention -> slot of its memory
  std::vector<size_t> offsets_;               // slot -> place in the arena
  size_t emitted_ = 0;
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
  return Compiler(program, options, kernels, threads).compile();
}

}  // namespace nanomind::cpu
