// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/schedule.h"

#include <set>
#include <utility>

namespace nanomind::cpu {
namespace {

// A product joins an earlier product of the same value: values are written once, but for rotary positions, which no
// product reads.
std::vector<Node> group_products(const Program& program) {
  std::vector<Node> nodes;
  std::map<ValueId, size_t> products;  // value -> the node of its products
  for (const Op& op : program.ops) {
    if (const auto* product = std::get_if<op::MatMul>(&op)) {
      const auto [found, is_new] = products.try_emplace(product->x, nodes.size());
      if (!is_new) {
        nodes[found->second].ops.push_back(&op);
        continue;
      }
    }
    nodes.push_back({.ops = {&op}});
  }
  return nodes;
}

std::map<ValueId, Form> choose_forms(const std::vector<Node>& nodes, const FormChooser& chooser) {
  std::map<ValueId, Form> forms;
  for (const Node& node : nodes) {
    const auto* product = node.get_if<op::MatMul>();
    if (product == nullptr) continue;
    const Form form = chooser.choose(product->x, node.ops);
    if (form.units || form.many != nullptr) forms.emplace(product->x, form);
  }
  return forms;
}

// The value that the node's instruction brings into its form while it makes it; kNoValue of those that cannot.
ValueId made_in_form(const Node& node) {
  if (const auto* norm = node.get_if<op::RmsNorm>()) return norm->out;
  if (const auto* norm = node.get_if<op::LayerNorm>()) return norm->out;
  if (const auto* gated = node.get_if<op::GatedActivation>()) return gated->out;
  if (const auto* activated = node.get_if<op::Activate>()) return activated->out;
  return kNoValue;
}

// Other values get a node of their own before their products.
std::vector<Node> insert_quantization(std::vector<Node> nodes, const std::map<ValueId, Form>& forms) {
  std::set<ValueId> done;
  std::vector<Node> all;
  for (Node& node : nodes) {
    done.insert(made_in_form(node));
    const auto* product = node.get_if<op::MatMul>();
    if (product != nullptr && forms.contains(product->x) && !done.contains(product->x)) {
      all.push_back({.ops = {}, .quantizes = product->x});
    }
    all.push_back(std::move(node));
  }
  return all;
}

}  // namespace

Schedule schedule_program(const Program& program, const FormChooser& chooser) {
  Schedule schedule{.nodes = group_products(program), .forms = {}};
  schedule.forms = choose_forms(schedule.nodes, chooser);
  schedule.nodes = insert_quantization(std::move(schedule.nodes), schedule.forms);
  return schedule;
}

}  // namespace nanomind::cpu
