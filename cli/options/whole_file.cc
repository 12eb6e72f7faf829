// Where results go: see whole_file.h.
#include "cli/options/whole_file.h"

#include <sys/stat.h>

#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/output_trouble.h"

namespace ptd::cli {

int write_result(const std::string& path, std::string_view text) {
  if (path.empty()) {
    Output& output = standard_output();
    output.write(text);
    output.flush();
    return output.error() != 0 ? report_error(output_trouble(output)) : kExitOk;
  }
  Result<std::unique_ptr<WholeFile>> file = WholeFile::open(path);
  if (!file) return report_error(file.error());
  TextBuffer clean;  // a terminal may be at the other end of what is no file
  if ((*file)->straight()) put_harmless(clean, text);
  (*file)->write((*file)->straight() ? clean.view() : text);
  const Status status = (*file)->finish();
  return status.ok() ? kExitOk : report_error(status.error());
}

bool keeps_earlier_file(const std::string& path, int status) {
  struct stat info {};
  if (status != kExitInterrupted || ::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return false;
  say_on_error("ptdecode: interrupted: " + shown(path) + " keeps its earlier content\n");
  return true;
}

}  // namespace ptd::cli
