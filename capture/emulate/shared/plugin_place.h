// Where the files that this program loads into emulators are.
#pragma once

#include <string>

namespace ptd::emulate {

/// Returns `given`, if it is not empty; else the path of the file `name` next to this program, in its build folder or where it was
/// installed; "" if it is in none of them.
[[nodiscard]] std::string find_plugin_file(const std::string& given, const std::string& name);

}  // namespace ptd::emulate
