// SPDX-License-Identifier: Apache-2.0
// What main.cc puts together and every command is given.
#pragma once

#include "base/log.h"
#include "base/result.h"
#include "cli/console.h"
#include "cli/environment.h"
#include "cli/output.h"
#include "cli/settings.h"
#include "hub/catalog.h"
#include "hub/store.h"

namespace nanomind {

struct Context {
  Output& out;
  Console& console;
  Log log;
  UserFolders folders;
  Settings settings;
};

Result<Catalog> open_catalog(const Context& context);
Result<Store> open_store(const Context& context);

}  // namespace nanomind
