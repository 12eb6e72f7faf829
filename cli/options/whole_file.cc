// Where results go: see whole_file.h.
#include "cli/options/whole_file.h"

#include <cstdio>
#include <filesystem>

#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/output_trouble.h"

namespace ptd::cli {

namespace {

bool is_recording(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  char magic[8] = {};
  const bool whole = std::fread(magic, 1, sizeof magic, file) == sizeof magic;
  std::fclose(file);
  return whole && std::string_view(magic, sizeof magic) == "PERFILE2";
}

}  // namespace

Result<std::unique_ptr<WholeFile>> open_result(const std::string& path) {
  if (is_recording(path)) return Error{ErrorCode::bad_output, path + " is a recording: -o names the output file, -i the recording", 0};
  return WholeFile::open(path);
}

int write_result(const std::string& path, std::string_view text) {
  if (path.empty()) {
    Output& output = standard_output();
    output.write(text);
    output.flush();
    return output.error() != 0 ? report_error(output_trouble(output)) : kExitOk;
  }
  Result<std::unique_ptr<WholeFile>> file = open_result(path);
  if (!file) return report_error(file.error());
  TextBuffer clean;  // a terminal may be at the other end of what is no file
  if ((*file)->straight()) put_harmless(clean, text);
  (*file)->write((*file)->straight() ? clean.view() : text);
  const Status status = (*file)->finish();
  return status.ok() ? kExitOk : report_error(status.error());
}

}  // namespace ptd::cli
