// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/layout.h"

#include <algorithm>
#include <utility>

#include "device/cpu/buffer_plan.h"
#include "device/cpu/instructions.h"

namespace nanomind::cpu {
namespace {

// Lives of values in nodes, without bytes. The result lives on after the last node.
std::vector<Lifetime> value_lives(const Program& program, const std::vector<Node>& nodes) {
  std::vector<Lifetime> lives(program.values.size(), {.bytes = 0, .first = -1, .last = -1});
  const auto touch = [&](ValueId id, int at) {
    Lifetime& life = lives[static_cast<size_t>(id)];
    if (life.first < 0) life.first = at;
    life.last = std::max(life.last, at);
  };
  for (int at = 0; at < static_cast<int>(nodes.size()); ++at) {
    const Node& node = nodes[static_cast<size_t>(at)];
    if (node.quantizes != kNoValue) touch(node.quantizes, at);
    for (const Op* op : node.ops) {
      const Uses u = uses(*op);
      for (const ValueId id : u.reads) touch(id, at);
      touch(u.writes, at);
    }
  }
  touch(program.output, static_cast<int>(nodes.size()));
  return lives;
}

// Notes what needs memory and when, then places all of it.
class Planner {
 public:
  Planner(const Compilation& compilation, const Schedule& schedule, const FormChooser& chooser)
      : compilation_(compilation),
        program_(compilation.program),
        schedule_(schedule),
        chooser_(chooser),
        max_tokens_(compilation.options.max_tokens) {}

  Layout plan() {
    add_values();
    add_ropes();
    add_experts();
    add_integer_attention();
    add_thread_memory();
    const BufferPlan plan = plan_buffers(lives_);
    for (size_t i = 0; i < lives_.size(); ++i) {
      *regions_[i] = {.offset = plan.offsets[i], .bytes = lives_[i].bytes};
    }
    layout_.arena_bytes = plan.arena_bytes;
    return std::move(layout_);
  }

 private:
  // The region, whose address must not change until all are placed, gets its bytes for that time.
  void add(Region& region, const Lifetime& life) {
    regions_.push_back(&region);
    lives_.push_back(life);
  }
  Lifetime at_node(size_t node, size_t bytes) const {
    return {.bytes = bytes, .first = static_cast<int>(node), .last = static_cast<int>(node)};
  }
  Lifetime always(size_t bytes) const {
    return {.bytes = bytes, .first = 0, .last = static_cast<int>(schedule_.nodes.size())};
  }

  // The form of a value lives exactly as long as the value needs to.
  void add_values() {
    std::vector<Lifetime> lives = value_lives(program_, schedule_.nodes);
    layout_.values.resize(lives.size());
    for (size_t i = 0; i < lives.size(); ++i) {
      const auto id = static_cast<ValueId>(i);
      lives[i].bytes = static_cast<size_t>(chooser_.max_rows(id) * row_stride(program_, id)) * sizeof(float);
      add(layout_.values[i], lives[i]);
    }
    for (const auto& [id, form] : schedule_.forms) {
      Lifetime life = lives[static_cast<size_t>(id)];
      life.bytes = chooser_.bytes(id, form);
      add(layout_.forms[id], life);
    }
  }

  void add_ropes() {
    layout_.ropes.resize(program_.ropes.size());
    for (size_t i = 0; i < program_.ropes.size(); ++i) {
      const size_t pairs = program_.ropes[i].inverse_frequency.size();
      add(layout_.ropes[i], always(2 * static_cast<size_t>(max_tokens_) * pairs * sizeof(float)));
    }
  }

  void add_experts() {
    for (size_t at = 0; at < schedule_.nodes.size(); ++at) {
      const auto* experts = schedule_.nodes[at].get_if<op::Experts>();
      if (experts == nullptr) continue;
      ExpertsStep step{.gate = compilation_.matrix(experts->gate),
                       .up = compilation_.matrix(experts->up),
                       .down = compilation_.matrix(experts->down),
                       .routing = experts->routing};
      const int64_t count = program_.values[static_cast<size_t>(experts->logits)].columns;
      add(layout_.workspaces[experts->out], at_node(at, place_slots(step, count, max_tokens_, nullptr)));
    }
  }

  void add_integer_attention() {
    for (size_t at = 0; at < schedule_.nodes.size(); ++at) {
      const auto* attention = schedule_.nodes[at].get_if<op::Attention>();
      if (attention == nullptr || !chooser_.in_integers(*attention)) continue;
      const KvLayerInfo& layer = program_.kv_layers[static_cast<size_t>(attention->layer)];
      const size_t bytes = integer_keys_bytes(layer.kv_heads, max_tokens_, static_cast<int>(layer.head_dim));
      add(layout_.workspaces[attention->out], at_node(at, bytes));
    }
  }

  void add_thread_memory() {
    int64_t widest_head = 0;
    for (const KvLayerInfo& layer : program_.kv_layers) widest_head = std::max(widest_head, layer.head_dim);
    const int threads = compilation_.threads;
    add(layout_.scratch, always(chooser_.scratch_bytes(schedule_.forms, threads)));
    add(layout_.attention_parts, always(attention_part_bytes(static_cast<int>(widest_head), threads)));
  }

  const Compilation& compilation_;
  const Program& program_;
  const Schedule& schedule_;
  const FormChooser& chooser_;
  int64_t max_tokens_;
  std::vector<Lifetime> lives_;
  std::vector<Region*> regions_;  // parallel to lives_, in layout_
  Layout layout_;
};

}  // namespace

// Rows are an odd number of cache lines apart, so that those of a column do not compete for few sets of a cache; but
// what a caller is given has no gaps.
int64_t row_stride(const Program& program, ValueId id) {
  const int64_t lines = (program.values[static_cast<size_t>(id)].columns + kGroupRows - 1) / kGroupRows;
  return (id == program.output ? lines : lines | 1) * kGroupRows;
}

Layout lay_out(const Compilation& compilation, const Schedule& schedule, const FormChooser& chooser) {
  return Planner(compilation, schedule, chooser).plan();
}

}  // namespace nanomind::cpu
