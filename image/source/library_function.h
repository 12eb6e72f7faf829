// take_function(): functions of a library that is loaded at run time.
#pragma once

#include <dlfcn.h>

#include <cstring>

namespace ptd {

/// Sets `function` to the function `name` of a library, as dlsym() gives it. Returns false, and sets null, if the library has none.
template <class Function>
bool take_function(void* library, const char* name, Function& function) {
  void* const symbol = ::dlsym(library, name);
  static_assert(sizeof function == sizeof symbol);
  std::memcpy(&function, &symbol, sizeof symbol);
  return symbol != nullptr;
}

}  // namespace ptd
