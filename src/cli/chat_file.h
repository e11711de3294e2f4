// SPDX-License-Identifier: Apache-2.0
// A conversation, and the JSON file that keeps it:
//   {"nanomind_chat": 1, "model": "...", "messages": [{"role": "system|user|assistant", "content": "...",
//     "pictures": [{"base64": "...", "most_tiles": 4, "several": true}, ...]}, ...]}
// Pictures are whole files, as those on disk may change and those of cameras are nowhere; what is as usual is left out.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "media/tile.h"
#include "text/chat_template.h"

namespace nanomind {

struct KeptPicture {
  std::vector<std::byte> file;
  PictureDetail detail;
};

struct Turn {
  Message message;
  std::vector<KeptPicture> pictures{};  // what message.pictures are of, once they have been shown to an engine
};

struct Conversation {
  std::string model;
  std::string system;       // empty: the template's own
  std::vector<Turn> turns;  // user and assistant in turn

  // System message, if any, and turns.
  std::vector<Message> messages() const;
};

std::string to_json(const Conversation& conversation);
// Message::pictures are empty until the pictures are shown.
// `origin` names the text in errors.
Result<Conversation> parse_conversation(std::string_view json, std::string_view origin);

// Whole or not at all, and for its owner alone.
Result<void> save_conversation(const Conversation& conversation, const std::filesystem::path& path);
Result<Conversation> load_conversation(const std::filesystem::path& path);

}  // namespace nanomind
