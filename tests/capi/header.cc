// ptdecode.h alone, as C++11.
#include "ptdecode/ptdecode.h"

size_t initial_sizes();
size_t initial_sizes() {
  const ptd_cursor_options options = PTD_CURSOR_OPTIONS_INIT;
  const ptd_table_options table = PTD_TABLE_OPTIONS_INIT;
  const ptd_item item = PTD_INIT(ptd_item);
  return options.size + item.size + table.size + (PTD_TIME_UNKNOWN == INT64_MIN ? PTD_NONE : PTD_AUX_NEXT);
}
