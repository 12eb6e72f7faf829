// ptdecode.h alone, as C++17.
#include "ptdecode/ptdecode.h"

size_t initial_sizes();
size_t initial_sizes() {
  const ptd_cursor_options options = PTD_CURSOR_OPTIONS_INIT;
  const ptd_item item = PTD_INIT(ptd_item);
  return options.size + item.size;
}
