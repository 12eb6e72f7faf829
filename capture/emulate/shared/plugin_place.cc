// Where the files that this program loads into emulators are.
#include "capture/emulate/shared/plugin_place.h"

#include <filesystem>

#include "image/base/environment.h"

namespace ptd::emulate {

namespace fs = std::filesystem;

std::string find_plugin_file(const std::string& given, const std::string& name) {
  std::error_code error;
  if (!given.empty()) return fs::absolute(given, error).string();  // the emulator looks for a name without a slash elsewhere
  const fs::path here = fs::path(environment::own_program()).parent_path();
  for (const fs::path& place : {here / name, here / "../capture/emulate" / name, here / PTD_PLUGIN_FOLDER / name}) {
    if (fs::is_regular_file(place, error)) return fs::canonical(place, error).string();
  }
  return {};
}

}  // namespace ptd::emulate
