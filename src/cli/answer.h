// SPDX-License-Identifier: Apache-2.0
// What `run` and `chat` have in common: a streamed answer, and how it is reported.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/context.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "runtime/engine.h"

namespace nanomind {

SessionOptions session_options(const AnswerFlags& flags);

// What the flags ask for; reads the files that they name.
Result<GenerateOptions> generate_options(const AnswerFlags& flags, const Tokenizer& tokenizer);

// The conversation's prompt. Where the model reasons or calls tools, `options` learn how, and how long it may think.
Result<ChatPrompt> chat_prompt(const Engine& engine, std::span<const Message> messages, ChatOptions chat,
                               const AnswerFlags& flags, GenerateOptions& options);

// Generates after `prompt` until the model, a limit or `interrupt` ends it; also ends when nobody reads the output any
// more.
Result<Generation> generate_answer(const Context& context, Session& session, std::span<const TokenId> prompt,
                                   GenerateOptions options, Interrupt& interrupt);

// System message, if any, and question.
std::vector<Message> conversation(const std::string& system, const std::string& question);

// "stop" (the model ended, or a stop string came), "length", "context_full", "cancelled".
const char* name(FinishReason reason);

double tokens_per_second(int64_t tokens, double ms);

// Lines for people: tokens, speeds, memory.
std::string statistics(const Generation& generation, const EngineInfo& info);

// That tokens slid out of the context, where some did.
std::string forgotten_note(const Generation& generation, const EngineInfo& info);

// What to do when the context has no room left.
std::string context_full_advice(const EngineInfo& info);

}  // namespace nanomind
