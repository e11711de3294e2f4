// SPDX-License-Identifier: Apache-2.0
#include "cli/context.h"

namespace nanomind {

Result<Catalog> open_catalog(const Context& context) {
  return Catalog::load(user_catalog_path(environment("XDG_CONFIG_HOME"), context.folders.home.string()));
}

Result<Store> open_store(const Context& context) {
  const std::filesystem::path models = expand_home(context.settings.models_folder, context.folders.home);
  return Store::locate({.models = models.string(),
                        .xdg_data_home = environment("XDG_DATA_HOME"),
                        .home = context.folders.home.string()});
}

}  // namespace nanomind
