// LineWriter's lines as JSON (schema ptdecode-flow-1): the same columns, as fields.
#include "cli/list/line_writer.h"
#include "cli/text/json_line.h"

namespace ptd::cli {

namespace {

void add_marks(JsonLine& line, uint16_t block_flags) {
  constexpr uint16_t kShown = kUncertainFlags | (BlockFlag::healed | BlockFlag::assumed);
  if ((block_flags & kShown) == 0) return;
  TextBuffer list;
  const auto add = [&](BlockFlag flag, std::string_view name) {
    if (!has(block_flags, flag)) return;
    list.ch(list.empty() ? '[' : ',');
    append_json_text(list, name);
  };
  add(BlockFlag::ambiguous, "ambiguous");
  add(BlockFlag::suspect, "suspect");
  add(BlockFlag::healed, "healed");
  add(BlockFlag::assumed, "assumed");
  list.ch(']');
  line.verbatim("marks", list.view());
}

}  // namespace

/// Thread, cpu and time: the same for all lines up to the next mark.
void LineWriter::make_json_prefix() {
  prefix_made_ = true;
  prefix_.clear();
  const Fields fields = fields_;
  TextBuffer object;
  JsonLine line(object);
  if (fields.has(Field::comm)) line.text("comm", recording_.comm_at(mark_.tid, mark_.time.first));
  if (const Guest guest = this->guest(); guest.machine != 0) {
    line.signed_number("machine_pid", guest.pid);
    if (guest.vcpu >= 0) line.signed_number("vcpu", guest.vcpu);
  }
  if (fields.has(Field::pid)) line.signed_number("pid", own_number(mark_.pid));
  if (fields.has(Field::tid)) line.signed_number("tid", own_number(mark_.tid));
  if (fields.has(Field::cpu) && cpu_ >= 0) line.signed_number("cpu", cpu_);
  if (fields.has(Field::time) && mark_.time_known) line.number("time_ns", mark_.time.first.value);
  prefix_.text(object.view().substr(1));
}

void LineWriter::json_context(JsonLine& line) {
  if (!prefix_made_) make_json_prefix();
  line.fields(prefix_.view());
}

void LineWriter::json_place(JsonLine& line, Ip ip, const JsonNames& names, Field address) {
  const Fields fields = fields_;
  if (fields.has(address)) line.address(names.ip, ip.value);
  if (fields.has(Field::sym) || fields.has(Field::dso)) {
    const SymbolCache::Name name = symbols_.find(mark_.space, ip, mark_.time.first);
    if (fields.has(Field::sym) && !name.name.empty()) {
      line.text(names.symbol, name.name);
      if (fields.has(Field::symoff)) line.number(names.offset, name.offset_bytes);
    }
    if (fields.has(Field::dso) && !name.module.empty()) line.text(names.module, name.module);
  }
  if (!fields.has(Field::srcline)) return;
  if (const std::string& text = sources_.find(mark_.space, ip, mark_.time.first); !text.empty()) line.text(names.source, text);
}

void LineWriter::json_insn(JsonLine& line, Ip ip, Bytes insn) {
  const Fields fields = fields_;
  if (fields.has(Field::insnlen)) line.number("length", insn.size());
  if (fields.has(Field::insn)) {
    TextBuffer bytes;
    for (const std::byte byte : insn) bytes.hex_padded(static_cast<uint64_t>(byte), 2, '0');
    line.text("bytes", bytes.view());
  }
  if (fields.has(Field::disasm) && !insn.empty())
    line.text("text", disassembler_.text(insn, ip, mark_.mode == ExecMode::unknown ? ExecMode::bits64 : mark_.mode));
}

void LineWriter::json_instruction(TextBuffer& out, Ip ip, Bytes insn, const CachedInsn& cached, uint16_t block_flags) {
  JsonLine line(out);
  line.text("kind", "instruction");
  json_context(line);
  if (fields_.has(Field::flags) && is_branch(cached.cls)) line.text("flags", kind_of(cached.cls, cached.detail, false).flags);
  json_place(line, ip, {"ip", "symbol", "offset", "module", "source"});
  json_insn(line, ip, insn);
  add_marks(line, block_flags);
  line.end();
}

void LineWriter::json_branch(TextBuffer& out, const BranchLine& branch) {
  JsonLine line(out);
  line.text("kind", "branch");
  json_context(line);
  if (fields_.has(Field::flags)) line.text("flags", branch.kind.flags);
  if (branch.from) json_place(line, *branch.from, {"ip", "symbol", "offset", "module", "source"});
  if (branch.to && fields_.has(Field::addr))
    json_place(line, *branch.to, {"to", "to_symbol", "to_offset", "to_module", "to_source"}, Field::addr);
  if (branch.from) json_insn(line, *branch.from, branch.insn);
  add_marks(line, branch.block_flags);
  line.end();
}

void LineWriter::json_event(TextBuffer& out, const Event& event) {
  JsonLine line(out);
  line.text("kind", "event");
  line.text("event", name(event.kind));
  json_context(line);
  TextBuffer details;
  append_event_details(details, event);
  if (!details.empty()) line.text("details", details.view());
  if ((event.flags & kEventHasFrom) != 0) json_place(line, event.from, {"ip", "symbol", "offset", "module", "source"});
  if ((event.flags & kEventHasTo) != 0) json_place(line, event.to, {"to", "to_symbol", "to_offset", "to_module", "to_source"});
  line.end();
}

void LineWriter::json_gap(TextBuffer& out, const Gap& gap) {
  JsonLine line(out);
  line.text("kind", "gap");
  line.text("reason", name(gap.reason));
  json_context(line);
  if (gap.ip.value != 0) json_place(line, gap.ip, {"ip", "symbol", "offset", "module", "source"});
  line.number("offset_bytes", gap.stream_offset_bytes);
  line.number("lost_bytes", gap.lost_bytes);
  line.end();
}

void LineWriter::json_sample(TextBuffer& out, const OtherEvent& event, std::string_view name) {
  JsonLine line(out);
  line.text("kind", "sample");
  line.text("event", name);
  json_context(line);
  if (event.period != 0) line.number("period", event.period);
  if (event.ip.value != 0) json_place(line, event.ip, {"ip", "symbol", "offset", "module", "source"});
  if (!event.fields.empty()) {
    TextBuffer object;
    JsonLine fields(object);
    for (const TracepointField& field : event.fields) {
      if (field.number) {
        fields.verbatim(*field.name, field.value);
      } else {
        fields.text(*field.name, field.value);
      }
    }
    object.ch('}');
    line.verbatim("fields", object.view());
  } else if (!event.raw.empty()) {
    TextBuffer bytes;
    for (const std::byte byte : event.raw) bytes.hex_padded(static_cast<uint64_t>(byte), 2, '0');
    line.text("raw", bytes.view());
  }
  line.end();
}

}  // namespace ptd::cli
