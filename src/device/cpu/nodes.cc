// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/nodes.h"

namespace nanomind::cpu {

Uses uses(const Op& op) {
  struct Visitor {
    Uses operator()(const op::Embed& o) const { return {{}, o.out}; }
    Uses operator()(const op::Input& o) const { return {{}, o.out}; }
    Uses operator()(const op::RmsNorm& o) const { return {{o.x}, o.out}; }
    Uses operator()(const op::MatMul& o) const { return {{o.x}, o.out}; }
    Uses operator()(const op::Rope& o) const { return {{o.x}, o.x}; }
    Uses operator()(const op::Attention& o) const {
      if (o.k == kNoValue) return {{o.q}, o.out};
      return {{o.q, o.k, o.v}, o.out};
    }
    Uses operator()(const op::GatedActivation& o) const { return {{o.gate, o.up}, o.out}; }
    Uses operator()(const op::Add& o) const { return {{o.a, o.b}, o.out}; }
    Uses operator()(const op::Scale& o) const { return {{o.x}, o.x}; }
    Uses operator()(const op::Experts& o) const { return {{o.x, o.logits}, o.out}; }
    Uses operator()(const op::SigmoidGate& o) const { return {{o.y, o.x}, o.out}; }
    Uses operator()(const op::SplitHeads& o) const { return {{o.x, o.second}, o.first}; }
    Uses operator()(const op::ShortConv& o) const { return {{o.x}, o.out}; }
    Uses operator()(const op::DeltaRule& o) const { return {{o.x, o.alpha, o.beta}, o.out}; }
    Uses operator()(const op::LayerNorm& o) const { return {{o.x}, o.out}; }
    Uses operator()(const op::Activate& o) const { return {{o.x}, o.out}; }
    Uses operator()(const op::Columns& o) const { return {{o.x}, o.out}; }
    Uses operator()(const op::Join& o) const { return {o.parts, o.out}; }
    Uses operator()(const op::ScaleColumns& o) const { return {{o.x}, o.out}; }
    Uses operator()(const op::WeightedSum& o) const {
      Uses u{{o.base, o.weights}, o.out};
      u.reads.insert(u.reads.end(), o.terms.begin(), o.terms.end());
      return u;
    }
    Uses operator()(const op::MatchMagnitude& o) const { return {{o.x, o.like}, o.out}; }
    Uses operator()(const op::AboveDeviation& o) const { return {{o.x}, o.out}; }
    Uses operator()(const op::SelectRows& o) const { return {{o.x}, o.out}; }
  };
  return std::visit(Visitor{}, op);
}

}  // namespace nanomind::cpu
