// output_trouble: see output_trouble.h.
#include "cli/text/output_trouble.h"

#include <cerrno>
#include <cstring>
#include <string>

namespace ptd::cli {

Error output_trouble(const Output& output) {
  const bool limit = output.error() == EFBIG;
  return {ErrorCode::write_failed,
          std::string("standard output cannot be written: ") + std::strerror(output.error()) +
              (limit ? ": the limit of file sizes (ulimit -f), or that of the file system, is reached" : ""),
          0};
}

}  // namespace ptd::cli
