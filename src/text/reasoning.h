// SPDX-License-Identifier: Apache-2.0
// Parts what a model thinks from what it answers, by the markers that its chat template uses.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nanomind {

struct ReasoningMarkers {
  std::string open;   // "<think>"
  std::string close;  // "</think>"
};

// The markers that occur in the text of a chat template; null for models that do not reason.
std::optional<ReasoningMarkers> find_reasoning_markers(std::string_view chat_template);

// True when a prompt ends with the opening marker, so that the answer begins within the reasoning.
bool opens_reasoning(const ReasoningMarkers& markers, std::string_view prompt);

// Reads an answer piece by piece. Reasoning stands at the beginning: an opening marker (it may be missing when the
// prompt has it), the reasoning, a closing marker. Markers elsewhere are text. White space around markers is dropped.
// What is given out does not depend on where the pieces are cut.
class ReasoningSplitter {
 public:
  enum class Start { answer, reasoning };
  ReasoningSplitter(ReasoningMarkers markers, Start start);

  struct Parts {
    std::string reasoning;
    std::string answer;
  };
  Parts push(std::string_view text);
  // The end: what was held back. Reasoning that was not closed stays reasoning.
  Parts finish();

  // Whether the next text is reasoning, as far as is known.
  bool reasoning() const { return state_ == State::before_reasoning || state_ == State::reasoning; }

 private:
  // `before`: only white space so far.
  enum class State { before_all, before_reasoning, reasoning, before_answer, answer };
  enum class Found { yes, no, perhaps };
  // Drops the marker from the beginning of what is held, if it is there.
  Found take(const std::string& marker);
  // One step with what is held; false when more text is needed.
  bool step(Parts& parts);
  void read_reasoning(Parts& parts);

  ReasoningMarkers markers_;
  State state_;
  std::string held_;
};

}  // namespace nanomind
