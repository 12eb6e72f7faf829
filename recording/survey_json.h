// The JSON object of `ptdecode info --json` (schema ptdecode-info-1). Private to the project.
#pragma once

#include <string>

#include "ptdecode/survey.h"

namespace ptd {

/// Returns the survey as one object, indented. Text that is not UTF-8 is replaced.
[[nodiscard]] std::string survey_json(const Survey& survey);

}  // namespace ptd
