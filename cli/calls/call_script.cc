// The tree of calls as text: see call_script.h.
#include "cli/calls/call_script.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/list/line_writer.h"
#include "cli/text/clean_text.h"

namespace ptd::cli {

namespace {

constexpr size_t kMaxIndent = 48, kMinCallName = 24;

std::string_view kind_note(const CallStep& step) {
  if ((step.flags & kCallNoStart) != 0) return "began before";
  if ((step.flags & kCallMiddle) != 0) return "entered in the middle";
  switch (step.frame) {
    case FrameKind::tail:
      return "tail call";
    case FrameKind::interrupt:
      return (step.flags & kCallBreakpoint) != 0 ? "int3" : "interrupt";
    case FrameKind::syscall:
      return "system call";
    case FrameKind::inlined:
    case FrameKind::root:
    case FrameKind::call:
      break;
  }
  return {};
}

std::string untraced_text(uint64_t ns, uint8_t flags) {
  return (flags & kCallKernel) != 0 ? fmt::format("in kernel {}, not traced", duration_text(ns)) : "not traced " + duration_text(ns);
}

}  // namespace

void CallScript::take(std::span<const CallStep> steps, const CallTree& tree, TextBuffer& out) {
  for (const CallStep& step : steps) {
    if (input_.wanted(step, tree)) take_step(step, tree, out);
  }
}

bool CallScript::shown(Thread& thread, const CallStep& step) {
  if (symbols_.empty()) return true;
  if (step.kind == CallStepKind::enter && thread.shown_from == 0 && step.function != kNoFunction) {
    if (symbols_.wanted(step.function)) thread.shown_from = step.depth + 1;
  }
  const bool inside = thread.shown_from != 0;
  if (step.kind == CallStepKind::leave && step.depth + 1 == thread.shown_from) thread.shown_from = 0;
  return inside;
}

void CallScript::take_step(const CallStep& step, const CallTree& tree, TextBuffer& out) {
  if (step.thread >= threads_.size()) threads_.resize(tree.threads().size());
  Thread& thread = threads_[step.thread];
  if (!shown(thread, step)) return;
  if (thread.waits && (thread.open.flags & kCallUntraced) != 0 && (step.kind == CallStepKind::off || step.kind == CallStepKind::on)) {
    if (step.kind == CallStepKind::off) return;
    thread.off_cpu_ns += step.off_cpu_ns;
    thread.untraced_ns += step.untraced_ns;
    thread.pause_flags |= step.flags;
    return;
  }
  if (step.kind == CallStepKind::off) return;
  if ((step.flags & kCallCut) != 0 && step.kind == CallStepKind::leave && tree.finished()) flow_end(thread, step, tree, out);
  if (step.kind == CallStepKind::leave && thread.waits && thread.open.depth == step.depth) return leaf(thread, step, tree, out);
  flush(thread, tree, out);
  switch (step.kind) {
    case CallStepKind::enter:
      thread.waits = true;
      thread.open = step;
      thread.off_cpu_ns = thread.untraced_ns = 0;
      thread.pause_flags = 0;
      return;
    case CallStepKind::leave:
      prefix(step, tree, step.time, took_text(step), step.depth, out);
      out.text("} ");
      name(step, out);
      if ((step.flags & kCallCut) != 0) out.text("  [end not seen]");
      out.ch('\n');
      return;
    case CallStepKind::lost:
      prefix(step, tree, step.time, "", 0, out);
      out.text(step.loss == CallLoss::gap ? fmt::format("[flow lost: {}: {}]\n", ptd::name(step.gap), sentence(step.gap))
                                          : fmt::format("[calls abandoned: {}]\n", sentence(step.loss)));
      return;
    default:
      return pause(step, tree, out);
  }
}

std::string CallScript::took_text(const CallStep& step) const {
  if (!input_.has_time() || (step.flags & kCallUndated) != 0) return "-";
  return ((step.flags & kCallEstimated) != 0 ? "~" : "") + duration_text(step.total_ns());
}

// A call that began and called something, or something else came first.
void CallScript::flush(Thread& thread, const CallTree& tree, TextBuffer& out) {
  if (!std::exchange(thread.waits, false)) return;
  prefix(thread.open, tree, thread.open.time, "", thread.open.depth, out);
  name(thread.open, out);
  out.text(" {");
  if (const std::string_view note = kind_note(thread.open); !note.empty()) {
    out.text("  [");
    out.text(note);
    out.ch(']');
  }
  out.ch('\n');
}

void CallScript::leaf(Thread& thread, const CallStep& leave, const CallTree& tree, TextBuffer& out) {
  thread.waits = false;
  prefix(leave, tree, leave.start, took_text(leave), leave.depth, out);
  name(leave, out);
  std::string note(kind_note(leave));
  const auto add = [&note](const std::string& more) { note += (note.empty() ? "" : ", ") + more; };
  if ((leave.flags & kCallUntraced) != 0) {
    if (thread.off_cpu_ns != 0) add("off cpu " + duration_text(thread.off_cpu_ns));
    if (thread.untraced_ns != 0 || thread.off_cpu_ns == 0)
      add(thread.untraced_ns == 0 ? "not traced" : untraced_text(thread.untraced_ns, thread.pause_flags));
  }
  if ((leave.flags & kCallCut) != 0) add("end not seen");
  if (!note.empty()) out.text("  [" + note + "]");
  out.ch('\n');
}

void CallScript::pause(const CallStep& step, const CallTree& tree, TextBuffer& out) {
  std::string text;
  const auto add = [&text](uint64_t ns, const std::string& what) {
    if (ns != 0) text += (text.empty() ? "" : ", ") + what;
  };
  add(step.off_cpu_ns, "off cpu " + duration_text(step.off_cpu_ns));
  add(step.untraced_ns, untraced_text(step.untraced_ns, step.flags));
  add(step.lost_ns, "lost " + duration_text(step.lost_ns));
  if (text.empty()) return;
  prefix(step, tree, step.start, "", step.depth, out);
  out.text("[" + text + "]\n");
}

// Where the thread crashed, if it did: the first of the calls that are left at the end is open there.
void CallScript::flow_end(Thread& thread, const CallStep& step, const CallTree& tree, TextBuffer& out) {
  const std::optional<FlowEnd> end = tree.end_of(step.thread);
  if (!end || step.time < end->time || std::exchange(thread.ended, true)) return;  // the last steps come with earlier ones
  flush(thread, tree, out);
  prefix(step, tree, step.time, "", step.depth + 1, out);
  const auto symbol = input_.recording().symbolizer().find(end->space, end->ip, step.time);
  const std::string place = symbol ? fmt::format(", {}+{:#x} ({})", symbol->name, symbol->offset_bytes, symbol->module) : "";
  out.text(fmt::format("[flow ends before {:#x}{}: fault, signal or interrupt]\n", end->ip.value, cli::shown(place)));
}

void CallScript::sample(const OtherEvent& event, std::string_view name, const CallTree* tree, TextBuffer& out) {
  if (!input_.wanted(event)) return;
  const std::string comm = input_.comm(event);
  auto known = by_tid_.find(event.tid);
  for (uint32_t i = 0; tree != nullptr && known == by_tid_.end() && i < tree->threads().size(); ++i) {
    if (tree->threads()[i].tid == event.tid) known = by_tid_.emplace(event.tid, i).first;
  }
  Thread* thread = known != by_tid_.end() && known->second < threads_.size() ? &threads_[known->second] : nullptr;
  if (!symbols_.empty() && (thread == nullptr || thread->shown_from == 0)) return;
  if (tree != nullptr && thread != nullptr) flush(*thread, *tree, out);
  out.right(comm.empty() ? "?" : cli::shown(comm), 16);
  out.ch(' ');
  out.right(std::to_string(event.tid), 7);
  if (cpus_ && event.cpu >= 0) {
    out.text(" [");
    out.dec_padded(static_cast<uint64_t>(event.cpu), 3, '0');
    out.ch(']');
  }
  out.ch(' ');
  moment(event.time, out);
  out.text(": ");
  out.fill(11);
  out.text("* ");
  put_shown(out, name);
  out.ch(':');
  append_sample_fields(out, event);
  if (event.ip.value != 0 && event.fields.empty()) {
    const SpaceId space = input_.recording().contexts().at_thread(event.tid, event.time).space;
    const auto symbol = input_.recording().symbolizer().find(space, event.ip, event.time);
    out.text(symbol ? fmt::format(" {}+{:#x}", cli::shown(symbol->name), symbol->offset_bytes) : fmt::format(" {:#x}", event.ip.value));
  }
  out.ch('\n');
}

void CallScript::moment(TimeNs when, TextBuffer& out) {
  if (!input_.has_time() || when == kTimeMin) {
    out.right("-", nanoseconds_ ? 15 : 12);
  } else if (wall_offset_ns_) {
    append_time_of_day(out, when, *wall_offset_ns_, nanoseconds_);
  } else {
    append_time(out, when, nanoseconds_);
  }
}

void CallScript::prefix(const CallStep& step, const CallTree& tree, TimeNs when, const std::string& took, size_t depth, TextBuffer& out) {
  line_ = out.size();
  const CallThread& thread = tree.threads()[step.thread];
  out.right(cli::shown(input_.comm(step, tree)), 16);
  out.ch(' ');
  std::string tid = thread.tid < 0 ? "?" : std::to_string(thread.tid);
  if (thread.fibre != 0) tid += "/" + (thread.fibre == kUnknownFibre ? "?" : std::to_string(thread.fibre));
  out.right(tid, 7);
  if (cpus_ && step.cpu >= 0) {
    out.text(" [");
    out.dec_padded(static_cast<uint64_t>(step.cpu), 3, '0');
    out.ch(']');
  }
  out.ch(' ');
  moment(when, out);
  out.text(": ");
  out.right(took, 9);
  out.fill(2 + 2 * std::min(depth, kMaxIndent));
}

void CallScript::name(const CallStep& step, TextBuffer& out) {
  if (step.function == kNoFunction) return out.text(function_text(input_.functions(), step.function));
  if (columns_ != 0) {
    const size_t used = out.size() - line_;
    return put_shown(
        out, function_text(input_.functions(), step.function, std::max(kMinCallName, columns_ > used + 2 ? columns_ - used - 2 : 0)));
  }
  if (step.function >= names_.size()) names_.resize(input_.functions().size());
  std::string& name = names_[step.function];
  if (name.empty()) name = cli::shown(function_text(input_.functions(), step.function));
  out.text(name);
}

}  // namespace ptd::cli
