// SPDX-License-Identifier: Apache-2.0
// The commands: each adds its options to the parser, and sets `action` when it is the one that was asked for.
#pragma once

#include <CLI/App.hpp>
// App has members of these classes; a source that sees only their declarations would leave their vtables to others.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>

#include "base/result.h"
#include "cli/context.h"

namespace nanomind {

using Action = std::function<Result<void>()>;

// `app`, `context` and `action` outlive the parser.
void add_run(CLI::App& app, Context& context, Action& action);
void add_chat(CLI::App& app, Context& context, Action& action);
void add_watch(CLI::App& app, Context& context, Action& action);
void add_pull(CLI::App& app, Context& context, Action& action);
void add_list(CLI::App& app, Context& context, Action& action);
void add_show(CLI::App& app, Context& context, Action& action);
void add_rm(CLI::App& app, Context& context, Action& action);
void add_convert(CLI::App& app, Context& context, Action& action);
void add_pack(CLI::App& app, Context& context, Action& action);
void add_quantize(CLI::App& app, Context& context, Action& action);
void add_join(CLI::App& app, Context& context, Action& action);
void add_tokenize(CLI::App& app, Context& context, Action& action);
void add_perplexity(CLI::App& app, Context& context, Action& action);
void add_embed(CLI::App& app, Context& context, Action& action);
void add_rerank(CLI::App& app, Context& context, Action& action);
void add_bench(CLI::App& app, Context& context, Action& action);
void add_doctor(CLI::App& app, Context& context, Action& action);

}  // namespace nanomind
