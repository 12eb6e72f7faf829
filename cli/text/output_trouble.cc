// output_trouble: see output_trouble.h.
#include "cli/text/output_trouble.h"

#include <cerrno>
#include <cstring>

namespace ptd::cli {

std::string write_trouble(int number) {
  const bool is_limit = number == EFBIG;
  return std::string(std::strerror(number)) + (is_limit ? ": the file size limit (ulimit -f) or that of the file system is reached" : "");
}

Error output_trouble(const Output& output) {
  return {ErrorCode::write_failed, "cannot write to standard output: " + write_trouble(output.error()), 0};
}

}  // namespace ptd::cli
