// SPDX-License-Identifier: Apache-2.0
// Grammars in GBNF, llama.cpp's notation, as Lark grammars for text/grammar.h.
//
// Lark cuts text into terminals, always the longest that fits, where GBNF goes character by character. So that both
// mean the same, what stands in a row without recursion becomes one terminal (a grammar without recursion is one as a
// whole), and the end of a terminal that could take what belongs to the next is written by single characters. What is
// left of the difference: between alternatives of which one begins like the other, the longer terminal is taken.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace nanomind {

// Errors give the line. Tokens (<think>, <[1000]>) are not supported; size and nesting are bounded.
Result<std::string> lark_from_gbnf(std::string_view gbnf);

}  // namespace nanomind
