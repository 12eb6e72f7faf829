// write_result: a command's result goes to a file or to standard output.
#pragma once

#include <string>
#include <string_view>

#include "cli/exit_status.h"
#include "cli/options.h"
#include "cli/output.h"
#include "image/base/whole_file.h"

namespace ptd::cli {

/// Writes a result to `path`, to standard output if that is empty; the exit status. A reader of standard output that has had enough is
/// fine.
inline int write_result(const std::string& path, std::string_view text) {
  if (path.empty()) {
    Output& output = standard_output();
    output.write(text);
    output.flush();
    return output.error() != 0 ? report_error({ErrorKind::file_open, "standard output cannot be written", 0}) : kExitOk;
  }
  Result<std::unique_ptr<WholeFile>> file = WholeFile::open(path);
  if (!file) return report_error(file.error());
  (*file)->write(text);
  const Status status = (*file)->finish();
  return status.ok() ? kExitOk : report_error(status.error());
}

}  // namespace ptd::cli
