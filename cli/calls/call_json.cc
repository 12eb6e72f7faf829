// Calls as JSON: see call_json.h.
#include "cli/calls/call_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/names/call_names.h"

namespace ptd::cli {

namespace {

void put(const nlohmann::json& json, TextBuffer& out) {
  out.text(json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  out.ch('\n');
}

void put_time(const char* name, TimeNs time, nlohmann::json& json) {
  if (time != kTimeMin) json[name] = time.value;
}

}  // namespace

void CallJson::begin(TextBuffer& out) const { put({{"schema", "ptdecode-calls-1"}, {"timed", input_.has_time()}}, out); }

void CallJson::take(std::span<const CallStep> steps, const CallTree& tree, TextBuffer& out) {
  for (const CallStep& step : steps) {
    if (step.kind != CallStepKind::enter && step.kind != CallStepKind::off && input_.wanted(step, tree)) take_step(step, tree, out);
  }
}

void CallJson::sample(const OtherEvent& event, std::string_view name, TextBuffer& out) const {
  if (!symbols_.empty() || !input_.wanted(event)) return;
  nlohmann::json json = {
      {"sample", name}, {"pid", event.pid}, {"tid", event.tid}, {"comm", input_.comm(event)}, {"time_ns", event.time.value}};
  if (event.cpu >= 0) json["cpu"] = event.cpu;
  if (event.ip.value != 0) json["ip"] = fmt::format("{:#x}", event.ip.value);
  for (const TracepointField& field : event.fields)
    json["fields"][*field.name] = field.number ? nlohmann::json::parse(field.value, nullptr, false) : nlohmann::json(field.value);
  put(json, out);
}

void CallJson::take_step(const CallStep& step, const CallTree& tree, TextBuffer& out) {
  const CallThread& thread = tree.threads()[step.thread];
  nlohmann::json json = {{"pid", thread.pid}, {"tid", thread.tid}, {"comm", input_.comm(step, tree)}, {"depth", step.depth}};
  if (step.cpu >= 0) json["cpu"] = step.cpu;
  if (step.kind == CallStepKind::lost) {
    if (!symbols_.empty()) return;
    json["lost"] = step.loss == CallLoss::gap ? name(step.gap) : sentence(step.loss);
    put_time("time_ns", step.time, json);
    return put(json, out);
  }
  put_time("start_ns", step.start, json);
  put_time("end_ns", step.time, json);
  json.update({{"off_cpu_ns", step.off_cpu_ns}, {"untraced_ns", step.untraced_ns}, {"lost_ns", step.lost_ns}});
  if (step.kind == CallStepKind::on) {
    if (!symbols_.empty()) return;
    if ((step.flags & kCallKernel) != 0) json["kernel"] = true;
    json["pause"] = pause_name(step);
    return put(json, out);
  }
  if (!symbols_.wanted(step.function)) return;
  json.update({{"call", function_text(input_.functions(), step.function)},
               {"module", step.function == kNoFunction ? "" : input_.functions().info(step.function).module},
               {"kind", name(step.frame)},
               {"self_ns", step.self_ns},
               {"instructions", step.instructions},
               {"self_instructions", step.self_instructions},
               {"cycles", step.cycles},
               {"self_cycles", step.self_cycles},
               {"start_seen", (step.flags & (kCallNoStart | kCallMiddle)) == 0},
               {"end_seen", (step.flags & kCallCut) == 0},
               {"estimated", (step.flags & kCallEstimated) != 0}});
  put(json, out);
}

}  // namespace ptd::cli
