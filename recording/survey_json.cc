// The survey as JSON: see survey_json.h.
#include "recording/survey_json.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recording/data/json_text.h"

namespace ptd {

namespace {

bool bounded(Interval time) { return time.first != kTimeMin && time.last != kTimeMax; }

void put_guests(JsonText& json, const std::vector<SurveyGuest>& guests) {
  json.list("guests", guests, [&json](const SurveyGuest& guest) {
    json.pair("kernel_copy", guest.kernel_copy);
    json.pair("pid", guest.pid);
    json.pair("text_pokes", guest.text_pokes);
  });
}

}  // namespace

std::string survey_json(const Survey& survey) {
  JsonText json;
  const auto times = [&json](std::string_view key, Interval time) {
    json.key(key).open('[');
    json.value(time.first.value);
    json.value(time.last.value);
    json.close(']');
  };
  json.open('{');  // the names are in alphabetical order
  json.pair("clock", survey.clock);
  json.pair("command", survey.command);
  json.pair("cpu", survey.cpu);
  json.pair("cpuid", survey.cpuid);
  json.pair("file_bytes", survey.file_bytes);
  json.pair("form", survey.form);
  put_guests(json, survey.guests);
  json.pair("host", survey.hostname);
  json.list("images", survey.images, [&json](const SurveyImage& image) {
    json.pair("build_id", image.build_id);
    json.pair("by_id_alone", image.by_id_alone);
    json.pair("file", image.file);
    json.pair("found", image.found);
    json.pair("from", image.from);
    json.pair("path", image.path);
    json.pair("reason", image.reason);
  });
  json.pair("kernel", survey.kernel);
  json.pair("kernel_copy", survey.kernel_copy);
  json.key("other_events").open('{');
  for (const auto& [name, count] : survey.other_events) json.pair(name, count);
  json.close('}');
  json.pair("schema", "ptdecode-info-1");
  json.pair("snapshot", survey.snapshot);
  json.list("streams", survey.streams, [&json, &times](const SurveyStream& stream) {
    json.pair("bytes", stream.size_bytes);
    json.pair("cpu", stream.cpu);
    json.pair("source", stream.source);
    json.pair("tid", stream.tid);
    if (bounded(stream.time)) times("time_ns", stream.time);
  });
  json.pair("switches", survey.switches);
  json.pair("text_pokes", survey.text_pokes);
  json.list("threads", survey.threads, [&json](const ThreadInfo& thread) {
    json.pair("comm", thread.comm);
    json.pair("pid", thread.pid);
    json.pair("tid", thread.tid);
  });
  if (bounded(survey.time)) times("time_ns", survey.time);
  json.pair("timing", survey.timing);
  json.pair("trace", survey.trace);
  json.pair("trace_bytes", survey.trace_bytes);
  json.pair("traces_kernel", survey.traces_kernel);
  json.pair("traces_user", survey.traces_user);
  if (survey.has_wall_clock) json.pair("wall_offset_ns", survey.wall_offset_ns);
  json.pair("warnings", survey.warnings);
  json.key("windows").open('{');
  for (const auto& [name, windows] : survey.windows) {
    json.key(name).open('{');
    json.pair("bytes", windows.trace_bytes);
    json.pair("samples", windows.samples);
    json.pair("without_trace", windows.without_trace);
    json.close('}');
  }
  json.close('}');
  json.close('}');
  return json.take();
}

}  // namespace ptd
