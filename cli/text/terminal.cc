// The terminal: see terminal.h.
#include "cli/text/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace ptd::cli {

size_t terminal_columns() {
  struct winsize size {};
  return ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace ptd::cli
