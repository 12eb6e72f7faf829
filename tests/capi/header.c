/* ptdecode.h alone, as C11. */
#include "ptdecode/ptdecode.h"

size_t initial_sizes_c(void);
size_t initial_sizes_c(void) {
  const ptd_cursor_options options = PTD_CURSOR_OPTIONS_INIT;
  const ptd_table_options table = PTD_TABLE_OPTIONS_INIT;
  const ptd_item item = PTD_INIT(ptd_item);
  const int64_t unknown = PTD_TIME_UNKNOWN;
  const uint64_t next = PTD_AUX_NEXT;
  const uint32_t none = PTD_NONE;
  return options.size + item.size + table.size + (unknown == INT64_MIN) + (next == INT64_MAX) + (none == UINT32_MAX);
}
