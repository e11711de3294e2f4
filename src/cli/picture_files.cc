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

Result<ShownPicture> show_picture(const Context& context, Engine& engine, const std::string& name,
                                  const PictureDetail& detail) {
  if (is_camera_name(name)) {
    auto file = TRY(take_picture(context, name));
    auto seen = TRY(engine.see(file, detail));
    return ShownPicture{.seen = std::move(seen), .file = std::move(file)};
  }
  if (name.starts_with("http://") || name.starts_with("https://"))
    return fail(ErrorCode::unsupported, name + " is an address; fetch the picture and name the file.");
  const MappedFile file = TRY(MappedFile::open(expand_home(name, context.folders.home)));
  auto seen = engine.see(file.bytes(), detail);
  if (!seen) return fail(seen.error().code, name + ": " + seen.error().message);
  return ShownPicture{.seen = std::move(*seen), .file = {file.bytes().begin(), file.bytes().end()}};
}

Result<std::vector<SeenPicture>> see_pictures(const Context& context, Engine& engine,
                                              const std::vector<std::string>& names, PictureDetail detail) {
  if (names.size() > 1) detail.company = PictureDetail::Company::several;
  std::vector<SeenPicture> pictures;
  for (const std::string& name : names)
    pictures.push_back(std::move(TRY(show_picture(context, engine, name, detail)).seen));
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
