// SPDX-License-Identifier: Apache-2.0
#include "cli/picture_files.h"

#include <optional>
#include <string_view>
#include <utility>

#include "base/mapped_file.h"

namespace nanomind {
namespace {

Result<std::vector<std::byte>> take_picture(const Context& context, const std::string& name) {
  const auto camera = TRY(open_named_camera(context, name));
  auto frame = TRY(camera->take(nullptr));
  if (!frame) return fail(ErrorCode::not_found, "The camera has no picture.");
  return std::move(frame->file);
}

}  // namespace

Result<std::unique_ptr<Camera>> open_named_camera(const Context& context, const std::string& name) {
  constexpr std::string_view kPrefix = "camera:", kFolder = "camera:file:";
  std::string full = is_camera_name(name) ? name : std::string(kPrefix) + name;
  if (full.starts_with(kFolder))  // no shell looks for ~ inside a word
    full = std::string(kFolder) + expand_home(full.substr(kFolder.size()), context.folders.home).string();
  return open_camera(full);
}

Result<std::vector<SeenPicture>> see_pictures(const Context& context, Engine& engine,
                                              const std::vector<std::string>& names, PictureDetail detail) {
  if (names.size() > 1) detail.company = PictureDetail::Company::several;
  std::vector<SeenPicture> pictures;
  for (const std::string& name : names) {
    if (is_camera_name(name)) {
      const auto picture = TRY(take_picture(context, name));
      pictures.push_back(TRY(engine.see(picture, detail)));
      continue;
    }
    if (name.starts_with("http://") || name.starts_with("https://"))
      return fail(ErrorCode::unsupported, name + " is an address; fetch the picture and name the file.");
    const MappedFile file = TRY(MappedFile::open(expand_home(name, context.folders.home)));
    auto picture = engine.see(file.bytes(), detail);
    if (!picture) return fail(picture.error().code, name + ": " + picture.error().message);
    pictures.push_back(std::move(*picture));
  }
  return pictures;
}

PictureDetail picture_detail(const AnswerFlags& flags) {
  if (flags.image_tiles < 0) return {};
  return {.most_tiles = flags.image_tiles};
}

std::vector<PicturePrompt> prompts(std::span<const SeenPicture> pictures) {
  std::vector<PicturePrompt> prompts;
  for (const SeenPicture& picture : pictures) prompts.push_back(picture.prompt);
  return prompts;
}

}  // namespace nanomind
