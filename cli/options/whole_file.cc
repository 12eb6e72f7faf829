// Where results go: see whole_file.h.
#include "cli/options/whole_file.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/output_trouble.h"
#include "ptdecode/bundle.h"

namespace ptd::cli {

namespace {

/// What a file is that no result may replace: a recording, or code that a recording may need. Empty if it is neither.
std::string_view needed_kind(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return {};
  std::array<char, 8> magic{};
  const std::string_view start(magic.data(), std::fread(magic.data(), 1, magic.size(), file));
  std::fclose(file);
  if (start == "PERFILE2") return "a recording";
  if (looks_like_bundle(path)) return "a bundle";
  return start.starts_with("\x7f" "ELF") ? "a program or library" : "";
}

}  // namespace

Result<std::unique_ptr<WholeFile>> open_result(const std::string& path) {
  if (const std::string_view kind = needed_kind(path); !kind.empty())
    return Error{ErrorCode::bad_output, fmt::format("{} is {}: -o names the output file, -i the recording", path, kind), 0};
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
