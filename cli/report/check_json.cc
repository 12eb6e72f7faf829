// The object of `ptdecode check --format json`: see check_json.h.
#include "cli/report/check_json.h"

#include <nlohmann/json.hpp>

#include "cli/report/finding_text.h"

namespace ptd::cli {

bool has_code(const Recording& recording) {
  const Timeline& timeline = recording.timeline();
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    if (!timeline.section(id).code.bytes.empty()) return true;
  }
  return false;
}

nlohmann::json check_json(const Recording& recording, const FlowCheck& flow) {
  nlohmann::json json = {{"schema", "ptdecode-check-1"}, {"recording", recording.description()}};
  json["findings"] = nlohmann::json::array();
  const TextRecords records = text_records(recording);
  for (const Finding& finding : flow.findings) json["findings"].push_back(finding_json(finding, records));
  for (const FlowContradiction& contradiction : flow.contradictions) json["findings"].push_back(contradiction_json(contradiction));
  for (const WrongTimes& times : flow.wrong_times) json["findings"].push_back(wrong_times_json(times));
  for (const TraceDamage& damage : flow.damage)
    json["findings"].push_back(damage_json(damage, stream_name(recording.streams()[damage.stream])));
  if (flow.all_bytes != 0)
    json["flow"] = {{"decoded_bytes", flow.decoded_bytes},
                    {"all_bytes", flow.all_bytes},
                    {"blocks", flow.blocks},
                    {"instructions", flow.instructions},
                    {"uncertain_instructions", flow.uncertain}};
  json["missing_code"] = missing_json(flow.missing);
  json["missing_images"] = nlohmann::json::array();
  for (const MissingImage& image : recording.missing_images()) {
    json["missing_images"].push_back({{"path", image.path}, {"build_id", image.build_id}, {"reason", image.reason}});
  }
  json["has_code"] = has_code(recording);
  json["warnings"] = recording.warnings();
  return json;
}

}  // namespace ptd::cli
