// SPDX-License-Identifier: Apache-2.0
// Pictures that a person names: files, and cameras that take one now.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/context.h"
#include "cli/model_options.h"
#include "media/camera/camera.h"
#include "runtime/engine.h"

namespace nanomind {

// The camera of a name (media/camera/camera.h), in which "camera:" may be left out.
Result<std::unique_ptr<Camera>> open_named_camera(const Context& context, const std::string& name);

struct ShownPicture {
  SeenPicture seen;
  std::vector<std::byte> file;
};

// Shows a picture to the engine: a file of that name, or what a camera sees now, for names that begin with "camera:".
// An error says which.
Result<ShownPicture> show_picture(const Context& context, Engine& engine, const std::string& name,
                                  const PictureDetail& detail);

// Shows the pictures of one message, in order.
Result<std::vector<SeenPicture>> see_pictures(const Context& context, Engine& engine,
                                              const std::vector<std::string>& names, PictureDetail detail);

// What the flags say of how closely pictures are looked at.
PictureDetail picture_detail(const AnswerFlags& flags);

// As Message::pictures has them.
std::vector<PicturePrompt> prompts(std::span<const SeenPicture> pictures);

}  // namespace nanomind
