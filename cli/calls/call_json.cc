// Calls as JSON: see call_json.h.
#include "cli/calls/call_json.h"

#include <nlohmann/json.hpp>

#include "analysis/names/call_names.h"
#include "cli/text/json_line.h"

namespace ptd::cli {

namespace {

void put_time(std::string_view key, TimeNs time, JsonLine& line) {
  if (time != kTimeMin) line.number(key, time.value);
}

}  // namespace

void CallJson::begin(TextBuffer& out) const {
  JsonLine line(out);
  line.text("schema", "ptdecode-calls-1");
  line.boolean("timed", input_.has_time());
  line.end();
}

void CallJson::take(std::span<const CallStep> steps, const CallTree& tree, TextBuffer& out) {
  for (const CallStep& step : steps) {
    if (step.kind != CallStepKind::enter && step.kind != CallStepKind::off && input_.wanted(step, tree)) take_step(step, tree, out);
  }
}

void CallJson::sample(const OtherEvent& event, std::string_view name, TextBuffer& out) const {
  if (!symbols_.empty() || !input_.wanted(event)) return;
  JsonLine line(out);
  line.text("sample", name);
  line.signed_number("pid", event.pid);
  line.signed_number("tid", event.tid);
  line.text("comm", input_.comm(event));
  put_time("time_ns", event.time, line);
  if (event.cpu >= 0) line.signed_number("cpu", event.cpu);
  if (event.ip.value != 0) line.address("ip", event.ip.value);
  if (!event.fields.empty()) {
    nlohmann::json fields;
    for (const TracepointField& field : event.fields)
      fields[*field.name] = field.number ? nlohmann::json::parse(field.value, nullptr, false) : nlohmann::json(field.value);
    line.verbatim("fields", fields.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  }
  line.end();
}

void CallJson::take_step(const CallStep& step, const CallTree& tree, TextBuffer& out) {
  const bool is_call = step.kind != CallStepKind::lost && step.kind != CallStepKind::on;
  if (is_call ? !symbols_.wanted(step.function) : !symbols_.empty()) return;
  const CallThread& thread = tree.threads()[step.thread];
  JsonLine line(out);
  line.signed_number("pid", thread.pid);
  line.signed_number("tid", thread.tid);
  line.text("comm", input_.comm(step, tree));
  if (thread.fibre == kUnknownFibre)
    line.verbatim("fibre", "null");
  else if (thread.fibre != 0)
    line.number("fibre", thread.fibre);
  line.number("depth", step.depth);
  if (step.cpu >= 0) line.signed_number("cpu", step.cpu);
  if (step.kind == CallStepKind::lost) {
    line.text("lost", step.loss == CallLoss::gap ? name(step.gap) : sentence(step.loss));
    put_time("time_ns", step.time, line);
    return line.end();
  }
  put_time("start_ns", step.start, line);
  put_time("end_ns", step.time, line);
  if (step.start != kTimeMin) {
    line.number("off_cpu_ns", step.off_cpu_ns);
    line.number("untraced_ns", step.untraced_ns);
    line.number("lost_ns", step.lost_ns);
  }
  if (step.kind == CallStepKind::on) {
    if ((step.flags & kCallKernel) != 0) line.boolean("kernel", true);
    line.text("pause", pause_name(step));
    return line.end();
  }
  line.text("call", function_text(input_.functions(), step.function));
  line.text("module", step.function == kNoFunction ? "" : input_.functions().info(step.function).module);
  line.text("kind", name(step.frame));
  if (step.start != kTimeMin) line.number("self_ns", step.self_ns);
  line.number("instructions", step.instructions);
  line.number("self_instructions", step.self_instructions);
  line.number("cycles", step.cycles);
  line.number("self_cycles", step.self_cycles);
  line.boolean("start_seen", (step.flags & (kCallNoStart | kCallMiddle)) == 0);
  line.boolean("end_seen", (step.flags & kCallCut) == 0);
  line.boolean("estimated", (step.flags & kCallEstimated) != 0);
  line.end();
}

}  // namespace ptd::cli
