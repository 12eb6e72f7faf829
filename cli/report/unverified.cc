// Lists files whose content only a build id proves.
#include "cli/report/unverified.h"

#include <fmt/format.h>

#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"

namespace ptd::cli {

std::string unverified_text(const Survey& survey) {
  constexpr size_t kNamed = 3;
  size_t count = 0;
  std::string names;
  for (const SurveyImage& image : survey.images) {
    if (image.by_id_alone && count++ < kNamed) names += (names.empty() ? "" : ", ") + shown(image.file);
  }
  if (count == 0) return {};
  if (count > kNamed) names += fmt::format(" and {} more (info --json lists all)", count - kNamed);
  return fmt::format("{} used by build id alone, which a changed copy keeps: {}", counted(count, "file"), names);
}

std::string unverified_file(const Survey& survey, const std::string& path, const std::string& build_id) {
  for (const SurveyImage& image : survey.images) {
    if (image.by_id_alone && image.path == path && (build_id.empty() || image.build_id == build_id)) return image.file;
  }
  return {};
}

}  // namespace ptd::cli
