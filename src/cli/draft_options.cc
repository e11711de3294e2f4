// SPDX-License-Identifier: Apache-2.0
#include "cli/draft_options.h"

#include <fmt/format.h>

#include <utility>

#include "cli/models.h"

namespace nanomind {

Result<Draft> load_draft(const Context& context, const std::string& what, const EngineFlags& flags,
                         const Engine& engine) {
  Draft draft;
  if (what.empty()) return draft;
  if (what == "lookup") {
    draft.options.kind = SpeculationOptions::Kind::lookup;
    return draft;
  }
  EngineFlags small = flags;
  small.context = engine.info().context;
  small.vision.clear();
  const LocatedModel model = TRY(locate_model(context, what));
  draft.engine = TRY(load_engine(context, model, small));
  if (!same_tokens(engine.tokenizer(), draft.engine->tokenizer())) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} cannot guess for this model: its tokens are others. Choose a smaller model of the same "
                            "family, or --draft lookup.",
                            model.name));
  }
  draft.session = TRY(draft.engine->open_session());
  draft.options = {.kind = SpeculationOptions::Kind::model, .draft = draft.session.get()};
  return draft;
}

}  // namespace nanomind
