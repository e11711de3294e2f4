// SPDX-License-Identifier: Apache-2.0
// Questions about web addresses: what may be shown, who may see a token, which redirects are followed.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace nanomind {

// The address without user, password, query and fragment.
std::string public_url(std::string_view url);

// Scheme, host and port agree: what a token may be shown to.
bool same_origin(std::string_view a, std::string_view b);

// The server runs on this machine.
bool is_this_machine(std::string_view url);

// A secret may be sent there: over HTTPS, or to this machine.
bool is_protected(std::string_view url);

// Whether a server at `from` may send us to `to`: never from HTTPS to HTTP, never to another scheme.
Result<void> check_redirect(std::string_view from, std::string_view to);

}  // namespace nanomind
