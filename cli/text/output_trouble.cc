// output_trouble: see output_trouble.h.
#include "cli/text/output_trouble.h"

#include <cerrno>
#include <cstring>
#include <string>

namespace ptd::cli {

Error output_trouble(const Output& output) {
  const bool limit = output.error() == EFBIG;
  return {ErrorCode::write_failed,
          std::string("cannot write to standard output: ") + std::strerror(output.error()) +
              (limit ? ": the file size limit (ulimit -f) or that of the file system is reached" : ""),
          0};
}

}  // namespace ptd::cli
