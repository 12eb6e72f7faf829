// StreamScript: see stream_script.h.
#include "cli/list/stream_script.h"

#include <algorithm>

namespace ptd::cli {

namespace {

constexpr size_t kMaxDeferred = 64;

bool push_if_full(Chunk& chunk, ChunkSink& sink) { return chunk.text.size() < sink.chunk_bytes() || sink.push(chunk); }

/// Events that say where the flow goes; the others happen along the way. What PSB+ repeats about a flow that goes on is none.
bool is_flow(const Event& event) {
  if (event.kind == EventKind::enabled && (event.flags & kEventStatus) != 0) return false;
  switch (event.kind) {
    case EventKind::enabled:
    case EventKind::disabled:
    case EventKind::async_disabled:
    case EventKind::async_branch:
    case EventKind::overflow:
      return true;
    default:
      return false;
  }
}

uint64_t period_in_ns(const ItraceOptions& itrace, const TimeConversion& time) {
  if (itrace.unit != PeriodUnit::ticks || !time.valid()) return itrace.period;
  return static_cast<uint64_t>(
      std::max<unsigned __int128>((static_cast<unsigned __int128>(itrace.period) * time.time_mult) >> time.time_shift, 1));
}

}  // namespace

StreamScript::StreamScript(const Recording& recording, const ScriptOptions& options, int32_t cpu)
    : options_(options),
      addresses_only_(options.addresses_only()),
      call_tree_(options.fields.has(Field::callindent)),
      stacks_(options.fields.has(Field::brstack)),
      follows_branches_(options.itrace.any_branch() || call_tree_),
      writer_(recording, options, cpu),
      in_ns_(recording.has_time_conversion()),
      period_ns_(period_in_ns(options.itrace, recording.decoder_options().config.time)),
      last_time_(options.times.empty() ? kTimeMax : TimeNs{0}) {
  for (const Interval& range : options.times) last_time_ = std::max(last_time_, range.last);
}

bool StreamScript::past_the_end() const { return writer_.mark().time_known && last_time_ < writer_.mark().time.first; }

bool StreamScript::take(const Batch& batch, const BlockTable& blocks, Chunk& chunk, ChunkSink& sink) {
  nodes_.bind(blocks);
  cursor_.begin(batch);
  for (FlowItem item = cursor_.next(); item != FlowItem::end; item = cursor_.next()) {
    if (item == FlowItem::blocks) {
      flowing_ = true;
      if (writer_.wanted() && !take_blocks(cursor_.blocks(), chunk, sink)) return false;
      continue;
    }
    if (pending_) resolve_ahead(item, chunk.text);
    if (item == FlowItem::mark) {
      take_mark(cursor_.mark(), chunk);
    } else if (item == FlowItem::event) {
      take_event(cursor_.event(), chunk.text);
    } else {
      take_gap(cursor_.gap(), chunk.text);
    }
    if (!push_if_full(chunk, sink)) return false;
  }
  return true;
}

void StreamScript::end(Chunk& chunk) {
  resolve(std::nullopt, false, chunk.text);
  end_stack(chunk.text);
}

// Finds where the open branch went: from the item of the cursor, or one after it.
void StreamScript::resolve_ahead(FlowItem item, TextBuffer& out) {
  for (FlowCursor ahead = cursor_; item != FlowItem::end; item = ahead.next()) {
    if (item == FlowItem::mark) continue;
    if (item == FlowItem::blocks) return resolve(nodes_.info(ahead.blocks().front().node).ip, false, out);
    if (item == FlowItem::gap) return resolve(std::nullopt, false, out);
    const Event& event = ahead.event();
    if (!is_flow(event)) continue;
    const bool has_from = (event.flags & kEventHasFrom) != 0, has_to = (event.flags & kEventHasTo) != 0;
    switch (event.kind) {
      case EventKind::async_branch:
      case EventKind::async_disabled:
        return resolve(has_from ? std::optional(event.from) : std::nullopt, false, out);
      case EventKind::disabled:
        return resolve(has_to ? std::optional(event.to) : std::nullopt, true, out);
      default:
        return resolve(std::nullopt, false, out);
    }
  }
}

void StreamScript::resolve(std::optional<Ip> to, bool ends_trace, TextBuffer& out) {
  if (pending_) {
    const Pending pending = *std::exchange(pending_, std::nullopt);
    const Insn insn{pending.insn.cls, pending.insn.detail, pending.insn.length_bytes, 0, pending.insn.displacement};
    const bool direct = insn.cls == InsnClass::jump_direct || insn.cls == InsnClass::jcc || insn.cls == InsnClass::call_direct;
    if (!to && direct) to = direct_target(insn, pending.from, pending.mode);
    BranchLine line{pending.from, to, kind_of(insn.cls, insn.detail, ends_trace), Bytes(pending.bytes).first(insn.length_bytes),
                    pending.flags};
    if (pending.mark_number == mark_number_) {
      list_branch(line, pending.from + insn.length_bytes, out);
    } else {
      const Mark now = writer_.mark();
      writer_.set_mark(pending.mark);
      list_branch(line, pending.from + insn.length_bytes, out);
      writer_.set_mark(now);
    }
  }
  for (const Event& event : deferred_) writer_.event(out, event);
  deferred_.clear();
}

void StreamScript::take_mark(const Mark& told, Chunk& chunk) {
  Mark mark = told;
  const bool dated = is_dated(mark);
  mark.time_known = dated && in_ns_;
  if (dated) mark.time.first = cursor_.now();
  if (mark.tid != writer_.mark().tid) end_stack(chunk.text);
  if (dated) chunk.cut(mark.time.first);
  if (call_tree_ && (mark_number_ == 0 || mark.tid != writer_.mark().tid)) calls_.select(mark.tid);
  writer_.set_mark(mark);
  ++mark_number_;
  const bool timed = options_.itrace.instructions && options_.itrace.unit != PeriodUnit::instructions;
  if (timed && dated && mark.time.first.value >= next_sample_time_) {
    sample_due_ = next_sample_time_ != 0;
    next_sample_time_ = mark.time.first.value + std::min(period_ns_, ~mark.time.first.value);
  }
}

bool StreamScript::shown(const BranchKind& kind) const {
  const ItraceOptions& itrace = options_.itrace;
  if (itrace.branches) return true;
  if (itrace.calls && (kind.role == BranchRole::call || kind.async || kind.end)) return true;
  return itrace.returns && (kind.role == BranchRole::ret || kind.begin);
}

bool StreamScript::shown(const Event& event) const {
  const ItraceOptions& itrace = options_.itrace;
  switch (event.kind) {
    case EventKind::tsx_begin:
    case EventKind::tsx_commit:
    case EventKind::tsx_abort:
      return itrace.transactions;
    case EventKind::ptwrite:
    case EventKind::instrumentation:
      return itrace.ptwrite;
    case EventKind::cbr:
    case EventKind::exstop:
    case EventKind::mwait:
    case EventKind::pwre:
    case EventKind::pwrx:
      return itrace.power;
    case EventKind::cfe:
    case EventKind::evd:
    case EventKind::trig:
    case EventKind::mnt:
      return itrace.interrupts;
    case EventKind::trace_event:
    case EventKind::sync_marker:
    case EventKind::exec_mode:
    case EventKind::interrupt_flag:
    case EventKind::paging:
    case EventKind::context:
    case EventKind::vmcs:
      return itrace.interrupts && (event.flags & kEventStatus) == 0;
    case EventKind::pebs_begin:
    case EventKind::pebs_item:
    case EventKind::pebs_end:
      return itrace.pebs;
    case EventKind::trace_stop:
    case EventKind::skipped:
    case EventKind::ignored_packets:
      return itrace.errors;
    default:
      return false;
  }
}

// With -S, an event is listed if it is known to have happened in one of the functions, or else to lead there.
bool StreamScript::place_wanted(const BranchLine& line) {
  if (options_.symbols.empty()) return true;
  const std::optional<Ip>& place = line.from ? line.from : line.to;
  return place && writer_.symbol_wanted(*place);
}

void StreamScript::take_event(const Event& event, TextBuffer& out) {
  const bool has_from = (event.flags & kEventHasFrom) != 0, has_to = (event.flags & kEventHasTo) != 0;
  BranchLine line;
  if (has_from) line.from = event.from;
  if (has_to) line.to = event.to;
  switch (event.kind) {
    case EventKind::async_branch:
      line.kind = kind_of(event);
      break;
    case EventKind::enabled:
      if ((event.flags & kEventStatus) != 0 && std::exchange(flowing_, true)) return;
      flowing_ = true;
      line.kind = {"tr strt", BranchRole::jump, true, false, false};
      break;
    case EventKind::async_disabled:
      flowing_ = false;
      line.kind = {"tr end  async", BranchRole::jump, false, true, true};
      break;
    case EventKind::disabled:
    case EventKind::overflow:
      flowing_ = false;
      return;
    default:
      if (!shown(event) || !writer_.wanted() || !place_wanted(line)) return;
      if (pending_ && deferred_.size() < kMaxDeferred) {
        deferred_.push_back(event);
      } else {
        writer_.event(out, event);
      }
      return;
  }
  if (follows_branches_ && writer_.wanted()) list_branch(line, event.from, out);
}

void StreamScript::take_gap(const Gap& gap, TextBuffer& out) {
  if (writer_.wanted()) tally_.add(gap);
  flowing_ = false;
  if (call_tree_) calls_.lose();
  end_stack(out);
  const ItraceOptions& itrace = options_.itrace;
  const bool lost = gap.reason == GapReason::aux_lost, overflow = gap.reason == GapReason::overflow;
  const bool listed = itrace.errors && (!lost || itrace.lost_errors) && (!overflow || itrace.overflow_errors);
  if (listed && writer_.wanted()) writer_.gap(out, gap);
}

bool StreamScript::take_blocks(std::span<const Block> blocks, Chunk& chunk, ChunkSink& sink) {
  for (const Block& block : blocks) {
    if (addresses_only_) {
      chunk.text.text(nodes_.ip_lines(block.node));
    } else {
      take_block(block, chunk.text);
    }
    if (!push_if_full(chunk, sink)) return false;
  }
  return true;
}

void StreamScript::take_block(const Block& block, TextBuffer& out) {
  if (pending_) resolve(nodes_.info(block.node).ip, false, out);
  const std::span<const CachedInsn> insns = nodes_.insns(block.node);
  if (options_.itrace.instructions) sample(block, insns, out);
  if (!follows_branches_ || !has(block.flags, BlockFlag::taken)) return;
  const CachedInsn& last = insns.back();
  if (!call_tree_ && !options_.itrace.branches && last.cls <= InsnClass::jcc) return;
  const BlockInfo& info = nodes_.info(block.node);
  Pending pending;
  pending.from = info.ip + last.offset_bytes;
  pending.insn = last;
  const Bytes bytes = nodes_.bytes(block.node).subspan(last.offset_bytes);
  std::copy_n(bytes.begin(), std::min<size_t>({bytes.size(), pending.bytes.size(), last.length_bytes}), pending.bytes.begin());
  pending.flags = block.flags;
  pending.mode = info.mode;
  pending.mark_number = mark_number_;
  pending.mark = writer_.mark();
  pending_ = pending;
}

void StreamScript::sample(const Block& block, std::span<const CachedInsn> insns, TextBuffer& out) {
  const ItraceOptions& itrace = options_.itrace;
  const bool every = itrace.every_instruction();
  const bool by_count = itrace.unit == PeriodUnit::instructions;
  if (!every && !sample_due_ && (!by_count || since_sample_ + insns.size() < itrace.period)) {
    since_sample_ += insns.size();
    return;
  }
  const BlockInfo& info = nodes_.info(block.node);
  const Bytes bytes = nodes_.bytes(block.node);
  for (const CachedInsn& insn : insns) {
    ++since_sample_;
    if (!every && !sample_due_ && (!by_count || since_sample_ < itrace.period)) continue;
    const Ip ip = info.ip + insn.offset_bytes;
    if (writer_.symbol_wanted(ip)) {
      writer_.instruction(out, ip, bytes.subspan(insn.offset_bytes, insn.length_bytes), insn, block.flags, since_sample_);
    }
    sample_due_ = false;
    since_sample_ = 0;
  }
}

void StreamScript::stack_branch(const BranchLine& line, TextBuffer& out) {
  const bool whole = line.from && line.to && !line.kind.async && !line.kind.begin && !line.kind.end;
  if (whole) stack_.emplace_back(*line.from, *line.to);
  if (!whole || stack_.size() >= kMostStacked) end_stack(out);
}

void StreamScript::end_stack(TextBuffer& out) {
  writer_.branch_stack(out, stack_);
  stack_.clear();
}

void StreamScript::list_branch(const BranchLine& line, Ip after, TextBuffer& out) {
  const bool visible = shown(line.kind) && (options_.symbols.empty() || (line.from && writer_.symbol_wanted(*line.from)));
  if (stacks_) return stack_branch(line, out);
  if (!call_tree_) {
    if (visible) writer_.branch(out, line);
    return;
  }
  const auto function_at = [this](Ip ip) { return writer_.function_at(ip); };
  const auto list = [&](const std::optional<Ip>& ip, bool leaves = false) {
    const bool is_plain = line.kind.role != BranchRole::jump && !line.kind.async && !line.kind.begin && !line.kind.end;
    if (visible) writer_.call_tree(out, line, {ip, calls_.depth(), leaves, is_plain ? std::string_view{} : line.kind.flags});
  };
  const bool all = options_.itrace.branches;
  if (line.kind.role == BranchRole::call) {
    if (line.to || line.kind.end || all) list(line.to);
    calls_.call(after, line.to ? writer_.call_target(*line.to) : CallStacks::Target{}, line.from ? writer_.landing_of(*line.from) : 0);
  } else if (line.kind.role == BranchRole::ret) {
    if (line.to) calls_.ret(writer_.call_target(*line.to), function_at);
    if (options_.itrace.returns || all) list(line.from, true);
  } else if (line.kind.begin && line.to) {
    calls_.resume(*line.to, function_at);
    list(line.to);
  } else if (line.kind.end) {
    if (line.from || all) list(line.from);
  } else {
    if (all) list(line.from);
    if (!line.from || !line.to) return;
    if (calls_.function() == 0) calls_.set_function(writer_.function_at(*line.from));
    calls_.jump(writer_.call_target(*line.to));
  }
}

}  // namespace ptd::cli
