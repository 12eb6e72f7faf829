// LineWriter: see line_writer.h.
#include "cli/list/line_writer.h"

#include <algorithm>
#include <ctime>

#include "cli/text/clean_text.h"
#include "recording/data/event_names.h"

namespace ptd::cli {

namespace {

void append_number(TextBuffer& out, int32_t value, size_t width) {
  TextBuffer digits;
  digits.dec_signed(value);
  out.right(digits.view(), width);
}

/// One address a line: no columns to align.
bool ip_only(Fields fields) { return fields.bits() == static_cast<uint32_t>(Field::ip); }

/// perf has one name for all of the kernel's own text.
std::string_view dso_of(const SymbolCache::Name& name) {
  if (name.module == "[kernel]") return "[kernel.kallsyms]";
  if (name.path.starts_with('/') && !name.module.starts_with('[')) return name.path;
  return name.module.empty() ? "[unknown]" : name.module;
}

}  // namespace

void append_time(TextBuffer& out, TimeNs time, bool nanoseconds) {
  out.dec_padded(time.value / 1'000'000'000, 5);
  out.ch('.');
  const uint64_t ns = time.value % 1'000'000'000;
  out.dec_padded(nanoseconds ? ns : ns / 1000, nanoseconds ? 9 : 6, '0');
}

void append_time_of_day(TextBuffer& out, TimeNs time, int64_t wall_offset_ns, bool nanoseconds) {
  const int64_t ns = static_cast<int64_t>(time.value) + wall_offset_ns;
  const std::time_t seconds = ns / 1'000'000'000;
  std::tm broken{};
  char text[64];
  if (::localtime_r(&seconds, &broken) == nullptr) return out.ch('-');
  out.text({text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S.", &broken)});
  const auto fraction = static_cast<uint64_t>(ns % 1'000'000'000);
  out.dec_padded(nanoseconds ? fraction : fraction / 1000, nanoseconds ? 9 : 6, '0');
}

LineWriter::LineWriter(const Recording& recording, const ScriptOptions& options, int32_t cpu)
    : recording_(recording),
      options_(options),
      fields_(options.fields),
      cpu_(cpu),
      symbols_(recording),
      sources_(recording, options.unproven.get()),
      disassembler_(options.att_syntax ? Disassembler::Syntax::att : Disassembler::Syntax::intel),
      instructions_("instructions" + event_names(recording).modifiers),
      branches_("branches" + event_names(recording).modifiers),
      name_columns_(std::max({size_t{event_names(recording).width_columns}, options.itrace.instructions ? instructions_.size() : 0,
                              options.itrace.any_branch() ? branches_.size() : 0})),
      needs_comm_(options.fields.has(Field::comm) || !options.comms.empty()) {
  wanted_ = context_wanted();
}

void LineWriter::set_mark(const Mark& mark) {
  mark_ = mark;
  prefix_made_ = false;
  wanted_ = context_wanted();
}

bool LineWriter::context_wanted() {
  if (!among(options_.pids, mark_.pid) || !among(options_.tids, mark_.tid)) return false;
  if (!options_.times.empty()) {
    const auto inside = [this](const Interval& range) { return range.contains(mark_.time.first); };
    if (!mark_.time_known || std::none_of(options_.times.begin(), options_.times.end(), inside)) return false;
  }
  if (options_.comms.empty()) return true;
  return among(options_.comms, recording_.comm_at(mark_.tid, mark_.time.first));
}

bool LineWriter::symbol_wanted(Ip ip) { return symbols_.wanted(mark_.space, ip, mark_.time.first, options_.symbols); }

CallStacks::Target LineWriter::call_target(Ip ip) {
  CallStacks::Target target{ip, function_at(ip), symbols_.is_landing(mark_.space, ip, mark_.time.first)};
  if (target.function != ip.value) return target;
  const std::string_view name = symbols_.find(mark_.space, ip, mark_.time.first).name;
  target.is_setjmp = is_setjmp_name(name.substr(0, name.find('@')));
  return target;
}

// The guest that the host's cpu runs. In the stream of a thread, that thread is known if it has no records of the guest's threads.
Guest LineWriter::guest() const {
  const uint32_t machine = machine_of_thread(mark_.tid);
  if (machine == 0) return {};
  const ContextTrack& contexts = recording_.contexts();
  const Context host = cpu_ >= 0 ? contexts.at_cpu(cpu_, mark_.time.first) : Context{-1, own_number(mark_.tid), kNoSpace};
  const Guest guest = guest_run_by(contexts, host);
  if (guest.machine == machine) return guest;
  for (const Guest& each : guests_of(contexts)) {
    if (each.machine == machine) return each;
  }
  return {machine, 0, -1};
}

// As perf does: nothing for the host.
void LineWriter::make_guest_prefix() {
  const Fields fields = fields_;
  const Guest guest = this->guest();
  if (guest.machine == 0) return;
  if (fields.has(Field::machine_pid)) {
    prefix_.text("VM:");
    append_number(prefix_, guest.pid, 5);
    prefix_.ch(' ');
  }
  if (fields.has(Field::vcpu) && guest.vcpu >= 0) {
    prefix_.text("VCPU:");
    prefix_.dec_padded(static_cast<uint64_t>(guest.vcpu), 3, '0');
    prefix_.ch(' ');
  }
}

void LineWriter::make_prefix() {
  prefix_made_ = true;
  prefix_.clear();
  const Fields fields = fields_;
  if (fields.has(Field::machine_pid) || fields.has(Field::vcpu)) make_guest_prefix();
  if (fields.has(Field::comm)) {
    comm_ = recording_.comm_at(mark_.tid, mark_.time.first);
    if (comm_.empty()) comm_ = mark_.tid < 0 ? "?" : ":" + std::to_string(mark_.tid);
    prefix_.right(shown(comm_), 16);
    prefix_.ch(' ');
  }
  if (fields.has(Field::pid)) {
    append_number(prefix_, own_number(mark_.pid), 5);
    prefix_.ch(fields.has(Field::tid) ? '/' : ' ');
  }
  if (fields.has(Field::tid)) {
    const size_t start = prefix_.size();
    append_number(prefix_, own_number(mark_.tid), fields.has(Field::pid) ? 0 : 5);
    if (fields.has(Field::pid)) prefix_.fill(5 - std::min<size_t>(5, prefix_.size() - start));
    prefix_.ch(' ');
  }
  if (fields.has(Field::cpu) && cpu_ >= 0) {
    prefix_.ch('[');
    prefix_.dec_padded(static_cast<uint64_t>(cpu_), 3, '0');
    prefix_.text("] ");
  }
  if (fields.has(Field::time)) {
    if (mark_.time_known && options_.wall_offset_ns) {
      append_time_of_day(prefix_, mark_.time.first, *options_.wall_offset_ns, options_.nanoseconds);
    } else if (mark_.time_known) {
      append_time(prefix_, mark_.time.first, options_.nanoseconds);
    } else {
      prefix_.right("-", options_.nanoseconds ? 15 : 12);
    }
    prefix_.text(": ");
  }
}

void LineWriter::prefix(TextBuffer& out) {
  if (!prefix_made_) make_prefix();
  out.text(prefix_.view());
}

void LineWriter::event_name(TextBuffer& out, std::string_view name) {
  if (!fields_.has(Field::event)) return;
  if (name.size() < name_columns_) out.fill(name_columns_ - name.size());
  put_shown(out, name);
  out.text(": ");
}

// perf's columns before the address ([perf-script] "--fields").
void LineWriter::columns_of(TextBuffer& out, std::string_view name, uint64_t period, std::string_view flags) {
  const Fields fields = fields_;
  prefix(out);
  if (fields.has(Field::period)) {
    out.dec_padded(period, 10);
    out.ch(' ');
  }
  event_name(out, name);
  if (fields.has(Field::flags)) {
    out.text("  ");
    out.left(flags, 21);
    out.ch(' ');
  }
  if (fields.has(Field::ip) && !ip_only(fields)) out.ch(' ');
}

void LineWriter::symbol(TextBuffer& out, Ip ip) {
  const Fields fields = fields_;
  if (!fields.has(Field::sym) && !fields.has(Field::dso)) return;
  const SymbolCache::Name name = fields.has(Field::dso) ? symbols_.find_with_path(mark_.space, ip, mark_.time.first)
                                                        : symbols_.find(mark_.space, ip, mark_.time.first);
  if (fields.has(Field::sym)) {
    out.ch(' ');
    put_shown(out, name.name.empty() ? "[unknown]" : name.name);
    if (fields.has(Field::symoff) && !name.name.empty()) {
      out.text("+0x");
      out.hex(name.offset_bytes);
    }
  }
  if (fields.has(Field::dso)) {
    out.text(" (");
    put_shown(out, dso_of(name));
    out.ch(')');
  }
}

void LineWriter::address(TextBuffer& out, Ip ip, bool padded, Field field) {
  if (fields_.has(field)) {
    if (padded) {
      out.hex_padded(ip.value, 16);
    } else {
      out.hex(ip.value);
    }
  }
  symbol(out, ip);
  source_line(out, ip);
}

void LineWriter::source_line(TextBuffer& out, Ip ip) {
  if (!fields_.has(Field::srcline)) return;
  const std::string& text = sources_.find(mark_.space, ip, mark_.time.first);
  if (text.empty()) return;
  out.ch(' ');
  put_shown(out, text);
}

void LineWriter::insn_columns(TextBuffer& out, Ip ip, Bytes insn) {
  const Fields fields = fields_;
  if (fields.has(Field::insnlen)) {
    out.text(" ilen: ");
    out.dec(insn.size());
  }
  if (fields.has(Field::insn)) {
    out.text(" insn:");
    for (const std::byte byte : insn) {
      out.ch(' ');
      out.hex_padded(static_cast<uint64_t>(byte), 2, '0');
    }
  }
  if (fields.has(Field::disasm) && !insn.empty()) {
    if (fields.has(Field::insn) && insn.size() < 8) out.fill(3 * (8 - insn.size()));
    out.text("  ");
    out.text(disassembler_.text(insn, ip, mark_.mode == ExecMode::unknown ? ExecMode::bits64 : mark_.mode));
  }
}

void LineWriter::mark_column(TextBuffer& out, uint16_t block_flags) {
  constexpr uint16_t kShown = kUncertainFlags | (BlockFlag::healed | BlockFlag::assumed);
  if ((block_flags & kShown) == 0 || !fields_.has(Field::mark)) return;
  if (has(block_flags, BlockFlag::ambiguous)) out.text(" {ambiguous}");
  if (has(block_flags, BlockFlag::suspect)) out.text(" {suspect}");
  if (has(block_flags, BlockFlag::healed)) out.text(" {healed}");
  if (has(block_flags, BlockFlag::assumed)) out.text(" {assumed}");
}

void LineWriter::instruction(TextBuffer& out, Ip ip, Bytes insn, const CachedInsn& cached, uint16_t block_flags, uint64_t period) {
  if (options_.json) return json_instruction(out, ip, insn, cached, block_flags);
  columns_of(out, instructions_, period, is_branch(cached.cls) ? kind_of(cached.cls, cached.detail, false).flags : std::string_view{});
  address(out, ip, !ip_only(fields_));
  insn_columns(out, ip, insn);
  mark_column(out, block_flags);
  out.ch('\n');
}

void LineWriter::branch(TextBuffer& out, const BranchLine& line) {
  if (options_.json) return json_branch(out, line);
  columns_of(out, branches_, 1, line.kind.flags);
  branch_details(out, line);
  mark_column(out, line.block_flags);
  out.ch('\n');
}

void LineWriter::branch_details(TextBuffer& out, const BranchLine& line) {
  const Fields fields = fields_;
  const bool padded = !ip_only(fields);
  const auto side = [&](const std::optional<Ip>& ip, Field field) {
    if (ip) return address(out, *ip, padded, field);
    if (fields.has(field)) out.right("0", padded ? 16 : 0);
    if (fields.has(Field::sym)) out.text(" [unknown]");
    if (fields.has(Field::dso)) out.text(" ([unknown])");
  };
  side(line.from, Field::ip);
  if (fields.has(Field::addr)) {
    out.text(" => ");
    side(line.to, Field::addr);
  }
  insn_columns(out, line.from.value_or(Ip{}), line.insn);
}

void LineWriter::event(TextBuffer& out, const Event& event) {
  if (options_.json) return json_event(out, event);
  prefix(out);
  event_name(out, name(event.kind));
  append_event_details(out, event);
  if ((event.flags & kEventHasFrom) != 0) {
    out.text(" at ");
    address(out, event.from, false);
  }
  if ((event.flags & kEventHasTo) != 0) {
    out.text(" to ");
    address(out, event.to, false);
  }
  out.ch('\n');
}

void LineWriter::gap(TextBuffer& out, const Gap& gap) {
  if (options_.json) return json_gap(out, gap);
  prefix(out);
  event_name(out, "gap");
  out.text(name(gap.reason));
  out.text(": ");
  out.text(sentence(gap.reason));
  if (gap.ip.value != 0) {
    out.text("; at ");
    out.hex(gap.ip.value);
    symbol(out, gap.ip);
  }
  const bool wrong_code = gap.reason == GapReason::image_mismatch || gap.reason == GapReason::bad_insn;
  if (wrong_code && gap.section < recording_.timeline().section_count()) {
    const Section& section = recording_.timeline().section(gap.section);
    out.text("; mapped there: ");
    put_shown(out, section.path.empty() ? std::string_view("[unnamed]") : std::string_view(section.path));
    if (!section.build_id.empty()) {
      out.text(" build id ");
      put_shown(out, section.build_id);
    }
  }
  out.text("; packet offset 0x");
  out.hex(gap.stream_offset_bytes);
  if (gap.lost_bytes != 0) {
    out.text(", ");
    out.dec(gap.lost_bytes);
    out.text(" trace bytes skipped");
  }
  out.ch('\n');
}

// perf's text ([perf-script] "brstack"): from/to/predicted/in transaction/aborted/cycles; that it was predicted is not known, but assumed.
void LineWriter::branch_stack(TextBuffer& out, std::span<const std::pair<Ip, Ip>> branches) {
  if (branches.empty()) return;
  prefix(out);
  if (fields_.has(Field::ip)) out.hex_padded(branches.back().second.value, 16);
  for (size_t i = branches.size(); i > 0; --i) {
    out.text(" 0x");
    out.hex(branches[i - 1].first.value);
    out.text("/0x");
    out.hex(branches[i - 1].second.value);
    out.text("/P/-/-/0");
  }
  out.ch('\n');
}

void append_sample_fields(TextBuffer& out, const OtherEvent& event) {
  for (const TracepointField& field : event.fields) {
    out.ch(' ');
    put_shown(out, *field.name);
    out.ch('=');
    put_shown(out, field.value);
  }
  if (!event.fields.empty() || event.raw.empty()) return;
  out.text(" raw ");
  for (const std::byte byte : event.raw) out.hex_padded(static_cast<uint64_t>(byte), 2, '0');
}

void LineWriter::sample(TextBuffer& out, const OtherEvent& event, std::string_view name) {
  if (options_.json) return json_sample(out, event, name);
  if (event.fields.empty()) {
    columns_of(out, name, event.period, {});
    if (event.ip.value != 0) address(out, event.ip, !ip_only(fields_));
  } else {  // a tracepoint has its payload in place of period and address
    prefix(out);
    event_name(out, name);
  }
  append_sample_fields(out, event);
  out.ch('\n');
}

// The tree is a column before the addresses, as perf's callindent.
void LineWriter::call_tree(TextBuffer& out, const BranchLine& line, const TreePlace& place) {
  fields_ = options_.tree_fields;
  columns_of(out, branches_, 1, line.kind.flags);
  const SymbolCache::Name name = place.ip ? symbols_.find(mark_.space, *place.ip, mark_.time.first) : SymbolCache::Name{};
  if (fields_.has(Field::dso)) {
    out.ch('(');
    out.left(name.module.empty() ? "[unknown]" : shown(name.module), 12);
    out.text(") ");
  }
  out.fill(2 * std::min<size_t>(place.depth, 64));
  if (place.leaves) out.text("<- ");
  if (!name.name.empty()) {
    put_shown(out, name.name);
  } else if (place.ip) {
    out.text("0x");
    out.hex(place.ip->value);
  } else {
    out.text("[unknown]");
  }
  if (!place.note.empty()) {
    out.text("  [");
    out.text(place.note);
    out.ch(']');
  }
  if (fields_.has(Field::ip) || fields_.has(Field::addr) || fields_.has(Field::symoff)) {
    out.text("  ");
    branch_details(out, line);
  } else {
    if (place.ip) source_line(out, *place.ip);
    insn_columns(out, line.from.value_or(Ip{}), line.insn);
  }
  mark_column(out, line.block_flags);
  out.ch('\n');
  fields_ = options_.fields;
}

}  // namespace ptd::cli
