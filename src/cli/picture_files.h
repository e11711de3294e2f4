// SPDX-License-Identifier: Apache-2.0
// Pictures that a person names: files, and cameras that take one now.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/context.h"
#include "media/camera/camera.h"
#include "runtime/engine.h"

namespace nanomind {

// The camera of a name (media/camera/camera.h), in which "camera:" may be left out.
Result<std::unique_ptr<Camera>> open_named_camera(const Context& context, const std::string& name);

// Shows files to the engine, in order, or what cameras see, for names that begin with "camera:"; an error says which.
Result<std::vector<SeenPicture>> see_pictures(const Context& context, Engine& engine,
                                              const std::vector<std::string>& names);

// As Message::pictures has them.
std::vector<PicturePrompt> prompts(const std::vector<SeenPicture>& pictures);

}  // namespace nanomind
