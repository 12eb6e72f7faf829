// Readers of messages: the peer's text and our batches.
#include "tests/coresight/support/messages.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "tests/support/corpus.h"

namespace ptd::test {
namespace {

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "%" PRIx64, value);
  return text;
}

uint64_t number(const std::string& line, const std::string& label, int base, uint64_t otherwise) {
  const size_t at = line.find(label);
  return at == std::string::npos ? otherwise : std::stoull(line.substr(at + label.size()), nullptr, base);
}

std::string context_text(bool is64, unsigned level, bool secure, uint64_t context_id, uint64_t vmid) {
  return (is64 ? "64 bits, EL" : "32 bits, EL") + std::to_string(level) + (secure ? " S" : " N") + ", context " + hex(context_id) +
         ", VMID " + hex(vmid);
}

/// (ISA=A64) EL1N; 64-bit; VMID=0x0; CTXTID=0x0; | (ISA=T32) S; 32-bit;
std::string context_of(const std::string& line) {
  const size_t level = line.find(") EL");
  const size_t world = level == std::string::npos ? line.find(") ") + 2 : level + 5;
  return context_text(line.find("64-bit") != std::string::npos,
                      level == std::string::npos ? 0 : static_cast<unsigned>(line[level + 4] - '0'), line[world] == 'S',
                      number(line, "CTXTID=0x", 16, 0), number(line, "VMID=0x", 16, 0));
}

void take(const std::string& name, const std::string& line, Messages& messages) {
  if (name == "INSTR_RANGE") {
    messages.time.push_back(messages.time_now);
    messages.cycles.push_back(messages.cycles_now);
  }
  messages.cycles_now += number(line, "[CC=", 10, 0);
  if (name == "INSTR_RANGE") ++messages.ranges;
  if (name == "TIMESTAMP") messages.time_now = number(line, "TS=0x", 16, 0);
  if (name == "EXCEPTION") {
    const bool has_from = line.find("pref ret addr:0x") != std::string::npos;
    messages.add("exception",
                 hex(number(line, "excep num (0x", 16, 0)) + (has_from ? " at " + hex(number(line, "pref ret addr:0x", 16, 0)) : ""));
  }
  if (name == "EXCEPTION_RET") messages.add("exception return", "");
  if (name == "PE_CONTEXT") messages.add("context", context_of(line));
  if (name == "TRACE_ON")
    messages.add("start", line.find("[overflow]") != std::string::npos ? "overflow"
                          : line.find("[debug") != std::string::npos   ? "debug"
                                                                       : "");
  if (name == "NO_SYNC" && line.find("[overflow]") != std::string::npos) messages.add("lost", "overflow");
  if (name == "NO_SYNC" && line.find("[bad-packet]") != std::string::npos) messages.add("lost", "bad packet");
  if (name == "NO_SYNC" && line.find("[discard]") != std::string::npos) messages.stops.push_back(messages.ranges);
  if (name == "ADDR_NACC") messages.add("no code", hex(number(line, "( 0x", 16, 0)));
  if (name == "EVENT") messages.add("event", hex(number(line, "Numbered:", 10, 0)));
  if (name == "INSTRUMENTATION")
    messages.add("instrumentation", line.substr(line.find('(') + 1, 3) + " " + hex(number(line, "; 0x", 16, 0)));
  if (name == "MEMTRANS") messages.add("transaction", line.substr(line.find('(') + 1, line.find(')') - line.find('(') - 1));
  if (name == "SYNC_MARKER") messages.add("marker", hex(number(line, "marker(0x", 16, 0)));
}

/// Rule "pending context": the decoder reports a context as soon as nothing speculative precedes it. The peer holds it back until the next
/// branch or exception, and drops it if an overflow, bad bytes or the end comes first.
void drop_waiting(Messages& messages) {
  std::vector<Message>& contexts = messages.by_kind["context"];
  contexts.resize(contexts.size() - messages.waiting_contexts);
  messages.waiting_contexts = 0;
}

bool is_eret(const BlockInfo& info, Bytes bytes) {
  if (info.mode != ExecMode::a64 || bytes.size() < 4) return false;
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + bytes.size() - 4, 4);
  return word == 0xd69f03e0 || word == 0xd69f0bff || word == 0xd69f0fff;  // ERET, ERETAA, ERETAB
}

void take(const Event& event, Messages& messages) {
  switch (event.kind) {
    case EventKind::disabled:
      return messages.stops.push_back(messages.ranges);
    case EventKind::async_branch:
      messages.waiting_contexts = 0;
      return messages.add("exception", hex(event.payload) + ((event.flags & kEventHasFrom) != 0 ? " at " + hex(event.from.value) : ""));
    case EventKind::exception_return:
      return messages.add("exception return", "");
    case EventKind::context:
      ++messages.waiting_contexts;
      return messages.add("context", context_text((event.aux >> 36 & 1) != 0, event.aux >> 32 & 3, (event.aux >> 34 & 1) == 0,
                                                  event.payload, event.aux & 0xffffffff));
    case EventKind::enabled:
      return messages.add("start", messages.overflow_at == messages.ranges ? "overflow" : "");
    case EventKind::overflow:
      messages.overflow_at = messages.ranges;
      return;
    case EventKind::trace_event:
      return messages.add("event", hex(event.payload));
    case EventKind::instrumentation:
      return messages.add("instrumentation", "EL" + std::to_string(event.aux) + " " + hex(event.payload));
    case EventKind::tsx_begin:
      return messages.add("transaction", "Start");
    case EventKind::tsx_commit:
      return messages.add("transaction", "Commit");
    case EventKind::tsx_abort:
      return messages.add("transaction", "Fail");
    case EventKind::sync_marker:
      return messages.add("marker", hex(event.payload));
    default:
      return;
  }
}

void take(const Gap& gap, Messages& messages) {
  if (gap.reason == GapReason::overflow || gap.reason == GapReason::bad_packet) drop_waiting(messages);
  messages.waiting_contexts = 0;
  if (gap.reason == GapReason::no_image) messages.add("no code", hex(gap.ip.value));
  if (gap.reason == GapReason::overflow) messages.add("lost", "overflow");
  if (gap.reason == GapReason::bad_packet) messages.add("lost", "bad packet");
  if (gap.reason == GapReason::image_mismatch || gap.reason == GapReason::bad_insn || gap.reason == GapReason::limit) {
    messages.add("contradiction", std::string(name(gap.reason)) + " " + hex(gap.ip.value));
  }
}

void take(const Batch& batch, const BlockTable& blocks, Messages& messages) {
  size_t mark = 0, event = 0, gap = 0;
  for (size_t block = 0; block <= batch.blocks.size(); ++block) {
    for (; mark < batch.marks.size() && batch.marks[mark].before_block <= block; ++mark) {
      if (batch.marks[mark].time_known) messages.time_now = static_cast<uint64_t>(batch.marks[mark].time.first.value);
      messages.cycles_now = batch.marks[mark].cycles;
    }
    for (; event < batch.events.size() && batch.events[event].before_block <= block; ++event) take(batch.events[event], messages);
    for (; gap < batch.gaps.size() && batch.gaps[gap].before_block <= block; ++gap) take(batch.gaps[gap], messages);
    if (block == batch.blocks.size()) break;
    messages.time.push_back(messages.time_now);
    messages.cycles.push_back(messages.cycles_now);
    ++messages.ranges;
    messages.waiting_contexts = 0;
    const NodeId node = batch.blocks[block].node;
    if (is_eret(blocks.info(node), blocks.bytes(node))) messages.returns.push_back(messages.ranges);
  }
}

}  // namespace

// Idx:21; ID:1; OCSD_GEN_TRC_ELEM_EXCEPTION(pref ret addr:0xa723c; excep num (0x02) )
bool read_messages(const std::string& path, MessagesById& messages) {
  const auto lines = read_lines(path);
  if (!lines) return false;
  const std::string prefix = "OCSD_GEN_TRC_ELEM_";
  for (const std::string& line : *lines) {
    const size_t id = line.find("; ID:"), at = line.find(prefix);
    if (id == std::string::npos || at == std::string::npos) continue;
    const size_t start = at + prefix.size();
    take(line.substr(start, line.find('(', start) - start), line.substr(start),
         messages[static_cast<uint32_t>(std::stoul(line.substr(id + 5), nullptr, 16))]);
  }
  return true;
}

MessagesById decode_messages(const Recording& recording, uint32_t first, uint32_t last) {
  MessagesById messages;
  for (uint32_t stream = first; stream < last && stream < recording.streams().size(); ++stream) {
    Messages& own = messages[recording.streams()[stream].trace_id];
    own.time_now = own.cycles_now = 0;
    (void)recording.decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
      take(batch, decoder.blocks(), own);
      return true;
    });
    drop_waiting(own);
  }
  return messages;
}

}  // namespace ptd::test
