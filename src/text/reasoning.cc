// SPDX-License-Identifier: Apache-2.0
#include "text/reasoning.h"

#include <algorithm>
#include <utility>

namespace nanomind {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// Qwen, DeepSeek, SmolLM and many others; Mistral; Seed-OSS; Command; Gemma; EXAONE.
constexpr std::pair<std::string_view, std::string_view> kFamilies[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|channel>thought", "<channel|>"},
    {"<thought>", "</thought>"},
};

// Where the longest end of `text` begins that is the beginning of `marker`.
size_t beginning_of(std::string_view marker, std::string_view text) {
  size_t i = text.size() - std::min(text.size(), marker.size() - 1);
  while (i < text.size() && !marker.starts_with(text.substr(i))) ++i;
  return i;
}

}  // namespace

std::optional<ReasoningMarkers> find_reasoning_markers(std::string_view chat_template) {
  for (const auto& [open, close] : kFamilies) {
    if (chat_template.find(open) != std::string_view::npos || chat_template.find(close) != std::string_view::npos) {
      return ReasoningMarkers{.open = std::string(open), .close = std::string(close)};
    }
  }
  return std::nullopt;
}

bool opens_reasoning(const ReasoningMarkers& markers, std::string_view prompt) {
  const size_t last = prompt.find_last_not_of(kSpace);
  return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(markers.open);
}

ReasoningSplitter::ReasoningSplitter(ReasoningMarkers markers, Start start)
    : markers_(std::move(markers)), state_(start == Start::reasoning ? State::before_reasoning : State::before_all) {}

ReasoningSplitter::Found ReasoningSplitter::take(const std::string& marker) {
  const size_t start = std::min(held_.find_first_not_of(kSpace), held_.size());
  const std::string_view rest = std::string_view(held_).substr(start);
  if (rest.starts_with(marker)) {
    held_.erase(0, start + marker.size());
    return Found::yes;
  }
  return marker.starts_with(rest) ? Found::perhaps : Found::no;
}

void ReasoningSplitter::read_reasoning(Parts& parts) {
  const size_t close = held_.find(markers_.close);
  const bool closed = close != std::string::npos;
  size_t end = closed ? close : beginning_of(markers_.close, held_);
  const size_t consumed = closed ? close + markers_.close.size() : 0;
  // White space before the end is dropped, so it waits for what follows.
  end = held_.find_last_not_of(kSpace, end == 0 ? std::string::npos : end - 1) + 1;
  if (close == 0 || (!closed && beginning_of(markers_.close, held_) == 0)) end = 0;
  parts.reasoning += held_.substr(0, end);
  held_.erase(0, closed ? consumed : end);
  if (closed) state_ = State::before_answer;
}

bool ReasoningSplitter::step(Parts& parts) {
  switch (state_) {
    case State::before_all: {
      const Found found = take(markers_.open);
      if (found != Found::perhaps) state_ = found == Found::yes ? State::before_reasoning : State::answer;
      return found != Found::perhaps;
    }
    case State::before_reasoning: {
      const Found found = take(markers_.open);  // though the prompt has it
      if (found == Found::perhaps) return false;
      held_.erase(0, held_.find_first_not_of(kSpace));
      if (found == Found::no) state_ = State::reasoning;
      return true;
    }
    case State::reasoning: {
      read_reasoning(parts);
      return state_ != State::reasoning;
    }
    case State::before_answer: {
      const Found found = take(markers_.close);  // some models close twice
      if (found == Found::perhaps) return false;
      held_.erase(0, held_.find_first_not_of(kSpace));
      if (found == Found::no) state_ = State::answer;
      return true;
    }
    case State::answer: parts.answer += std::exchange(held_, {}); return false;
  }
  return false;
}

ReasoningSplitter::Parts ReasoningSplitter::push(std::string_view text) {
  Parts parts;
  held_ += text;
  while (step(parts)) {
  }
  return parts;
}

ReasoningSplitter::Parts ReasoningSplitter::finish() {
  Parts parts;
  std::string rest = std::exchange(held_, {});
  if (reasoning() || state_ == State::before_answer) rest.erase(rest.find_last_not_of(kSpace) + 1);
  (reasoning() ? parts.reasoning : parts.answer) = std::move(rest);
  return parts;
}

}  // namespace nanomind
