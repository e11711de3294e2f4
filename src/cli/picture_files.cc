// SPDX-License-Identifier: Apache-2.0
#include "cli/picture_files.h"

#include <utility>

#include "base/mapped_file.h"

namespace nanomind {

Result<std::vector<std::vector<TokenId>>> see_pictures(const Context& context, Engine& engine,
                                                       const std::vector<std::string>& files) {
  std::vector<std::vector<TokenId>> pictures;
  for (const std::string& name : files) {
    const MappedFile file = TRY(MappedFile::open(expand_home(name, context.folders.home)));
    auto tokens = engine.see(file.bytes(), nullptr);
    if (!tokens) return fail(tokens.error().code, name + ": " + tokens.error().message);
    pictures.push_back(std::move(*tokens));
  }
  return pictures;
}

}  // namespace nanomind
