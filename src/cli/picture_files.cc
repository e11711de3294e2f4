// SPDX-License-Identifier: Apache-2.0
#include "cli/picture_files.h"

#include <utility>

#include "base/mapped_file.h"

namespace nanomind {

Result<std::vector<SeenPicture>> see_pictures(const Context& context, Engine& engine,
                                              const std::vector<std::string>& files) {
  std::vector<SeenPicture> pictures;
  for (const std::string& name : files) {
    const MappedFile file = TRY(MappedFile::open(expand_home(name, context.folders.home)));
    auto picture = engine.see(file.bytes());
    if (!picture) return fail(picture.error().code, name + ": " + picture.error().message);
    pictures.push_back(std::move(*picture));
  }
  return pictures;
}

std::vector<PicturePrompt> prompts(const std::vector<SeenPicture>& pictures) {
  std::vector<PicturePrompt> prompts;
  for (const SeenPicture& picture : pictures) prompts.push_back(picture.prompt);
  return prompts;
}

}  // namespace nanomind
