// Files whose content only a build id proves.
#pragma once

#include <string>

#include "ptdecode/survey.h"

namespace ptd::cli {

/// Returns one line, without newline, that names the files used by their build id alone; "" if there are none.
[[nodiscard]] std::string unverified_text(const Survey& survey);
/// Returns the file that gives the code of a mapped path, if only its build id proves it; "" otherwise.
[[nodiscard]] std::string unverified_file(const Survey& survey, const std::string& path, const std::string& build_id);

}  // namespace ptd::cli
