// A decoded flow in the format of libipt's ptxed.
#include "tests/ptt/ptt_text.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "ptdecode/insn.h"
#include "tests/support/flow.h"
#include "tests/support/segments.h"

namespace ptd::ptt {
namespace {

[[gnu::format(printf, 1, 2)]] std::string print(const char* format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

std::string hex16(uint64_t value) { return print("%016llx", static_cast<unsigned long long>(value)); }

const char* mode_name(uint64_t mode) {
  switch (static_cast<ExecMode>(mode)) {
    case ExecMode::bits64:
      return "64-bit";
    case ExecMode::bits32:
      return "32-bit";
    default:
      return "16-bit";
  }
}

// [SDM] "CFE Packet", "EVD Packet": the events that precede a CFE belong to it.
struct EventTrace {
  bool has_cr2 = false, has_vmxq = false, has_vmxr = false;
  uint64_t cr2 = 0, vmxq = 0, vmxr = 0;

  void add(const Event& evd) {
    if (evd.aux == 0) has_cr2 = true, cr2 = evd.payload;
    if (evd.aux == 1) has_vmxq = true, vmxq = evd.payload;
    if (evd.aux == 2) has_vmxr = true, vmxr = evd.payload;
  }
  // Empty for a type that ptxed does not print.
  [[nodiscard]] std::string text(const Event& cfe) const {
    const auto vector = static_cast<unsigned>(cfe.payload >> 8 & 0xff);
    switch (cfe.payload & 0xff) {
      case 1:
        return print("interrupt %u", vector) + (has_cr2 ? ", cr2: " + hex16(cr2) : "");
      case 2:
        return "iret";
      case 3:
        return "smi";
      case 4:
        return "rsm";
      case 5:
        return print("sipi: %x", vector);
      case 6:
        return "init";
      case 7:
        return "vmentry";
      case 8:
      case 9:
        return std::string("vmexit") + ((cfe.payload & 0xff) == 9 ? print(", intr: %u", vector) : "") +
               (has_vmxr ? ", vmxr: " + hex16(vmxr) : "") + (has_vmxq ? ", vmxq: " + hex16(vmxq) : "");
      case 10:
        return "shutdown";
      case 12:
        return print("uintr %u", vector);
      case 13:
        return "uiret";
      case 14:
        return print("swintr %u", vector);
      case 15:
        return "syscall";
      default:
        return {};
    }
  }
};

// Returns the number of a C-state from its code ([SDM] "PWRE Packet").
unsigned long long state(unsigned long long code) { return ((code & 15) + 1) & 15; }

// Returns the text of one event without its addresses; empty if ptxed does not print it.
std::string words(const Event& event, EventTrace& trace, bool iflags) {
  const auto payload = static_cast<unsigned long long>(event.payload);
  switch (event.kind) {
    case EventKind::enabled:
      return (event.flags & kEventResumed) != 0 ? "resumed" : "enabled";
    case EventKind::disabled:
    case EventKind::async_disabled:
      return "disabled";
    case EventKind::async_branch:
      return "interrupt";
    case EventKind::exec_mode:
      return std::string("exec mode: ") + mode_name(event.payload);
    case EventKind::paging:
      return "paging, cr3: " + hex16(event.payload) + ((event.flags & kEventNonRoot) != 0 ? ", nr" : "");
    case EventKind::vmcs:
      return "vmcs, base: " + hex16(event.payload);
    case EventKind::tsx_begin:
      return "begin transaction";
    case EventKind::tsx_commit:
      return "committed";
    case EventKind::tsx_abort:
      return "aborted";
    case EventKind::overflow:
      return "overflow";
    case EventKind::trace_stop:
      return "stopped";
    case EventKind::ptwrite:
      return print("ptwrite: %llx", payload);
    case EventKind::exstop:
      return "exstop";
    case EventKind::mwait:
      return print("mwait %llx %llx", payload, static_cast<unsigned long long>(event.aux));
    case EventKind::pwre:  // "hw" is the bit used by libipt: docs/DIFFERENCES.md, "Packets"
      return print("pwre c%llu.%llu%s", state(payload >> 12), state(payload >> 8), (payload & 8) != 0 ? " hw" : "");
    case EventKind::pwrx: {
      const unsigned long long wake = payload >> 8 & 15;
      return print("pwrx %s%s%sc%llu (c%llu)", (wake & 1) != 0 ? "int: " : "", (wake & 4) != 0 ? "st: " : "", (wake & 8) != 0 ? "hw: " : "",
                   state(payload >> 4), state(payload));
    }
    case EventKind::cbr:
      return print("cbr: %llx", payload);
    case EventKind::mnt:
      return print("mnt: %llx", payload);
    case EventKind::evd:
      trace.add(event);
      return {};
    case EventKind::cfe: {
      const EventTrace told = std::exchange(trace, {});
      return told.text(event);
    }
    case EventKind::trig:
      return print("trig %02llx", payload) + (event.aux != 0 ? ", mult" : "");
    case EventKind::interrupt_flag:
      return iflags ? std::string("interrupts ") + (event.payload != 0 ? "enabled" : "disabled") : "";
    default:
      return {};
  }
}

// Addresses as printed by `--event:ip`.
std::string places(const Event& event) {
  const bool has_from = (event.flags & kEventHasFrom) != 0, has_to = (event.flags & kEventHasTo) != 0;
  const std::string from = hex16(event.from.value), to = hex16(event.to.value);
  switch (event.kind) {
    case EventKind::async_disabled:
      return ", at: " + from + (has_to ? ", ip: " + to : "");
    case EventKind::async_branch:
      return ", from: " + from + (has_to ? ", to: " + to : "");
    case EventKind::enabled:
    case EventKind::disabled:
    case EventKind::overflow:
    case EventKind::exec_mode:
    case EventKind::interrupt_flag:
      return has_to ? ", ip: " + to : "";
    default:
      return has_from ? ", ip: " + from : "";
  }
}

pt::DecoderOptions options_of(const PttRun& run) {
  pt::DecoderOptions options;
  options.default_space = SpaceId{1};
  options.config.cpu = cpu_of(run.cpu);
  options.config.errata = pt::errata_of(options.config.cpu);
  options.config.tip_order = pt::TipOrder::may_be_deferred;  // libipt reads every trace in this way
  const auto number = [&](const char* option) { return std::strtoull(run.value(option).c_str(), nullptr, 0); };
  options.config.mtc_period = static_cast<uint8_t>(number("--mtc-freq"));
  options.config.max_nonturbo_ratio = static_cast<uint8_t>(number("--nom-freq"));
  options.config.tsc_ctc_ratio_d = static_cast<uint32_t>(number("--cpuid-0x15.eax"));
  options.config.tsc_ctc_ratio_n = static_cast<uint32_t>(number("--cpuid-0x15.ebx"));
  if (number("--filter:addr0_cfg") == 1) {
    options.config.address_filter = true;
    options.filter.push_back({Ip{number("--filter:addr0_a")}, Ip{number("--filter:addr0_b")}});
  }
  return options;
}

// Converts batches to Lines.
class Collector {
 public:
  Collector(const PttRun& run, Lines& lines) : event_ip_(run.has("--event:ip")), iflags_(run.has("--event:iflags")), lines_(lines) {}
  void add(const Batch& batch, const BlockTable& table);

 private:
  void add_block(const Block& block, const BlockTable& table);
  void add_event(const Event& event);

  bool event_ip_, iflags_;
  EventTrace trace_;
  Lines& lines_;
};

void Collector::add_event(const Event& event) {
  const bool mode_after_psb = event.kind == EventKind::exec_mode && (event.flags & kEventHasTo) != 0;
  if ((event.flags & kEventStatus) != 0 && !mode_after_psb) return;
  std::string text = words(event, trace_, iflags_);
  if (text.empty()) return;
  if (event_ip_) text += places(event);
  lines_.flow.push_back("[" + text + "]");
  lines_.events.push_back({lines_.flow.back(), event.time});
}

void Collector::add_block(const Block& block, const BlockTable& table) {
  const BlockInfo& info = table.info(block.node);
  Bytes rest = table.bytes(block.node);
  uint64_t ip = info.ip.value;
  lines_.block_starts.push_back(ip);
  ++lines_.blocks;
  for (uint16_t i = 0; i < block.instructions; ++i) {
    lines_.flow.push_back(hex16(ip));
    const Insn insn = classify(rest, info.mode);
    rest = rest.subspan(insn.length_bytes);
    ip += insn.length_bytes;
  }
  lines_.instructions += block.instructions;
}

void Collector::add(const Batch& batch, const BlockTable& table) {
  size_t event = 0, gap = 0;
  for (size_t i = 0; i <= batch.blocks.size(); ++i) {
    for (;;) {  // everything before block `i`, in the order of the trace
      const Event* next = event < batch.events.size() && batch.events[event].before_block <= i ? &batch.events[event] : nullptr;
      const Gap* lost = gap < batch.gaps.size() && batch.gaps[gap].before_block <= i ? &batch.gaps[gap] : nullptr;
      if (next != nullptr && (lost == nullptr || next->stream_offset_bytes < lost->stream_offset_bytes)) {
        add_event(*next);
        ++event;
      } else if (lost != nullptr) {
        // For an overflow ptxed prints only the event.
        if (lost->reason != GapReason::overflow) lines_.flow.push_back("[gap " + hex16(lost->ip.value) + "]");
        ++gap;
      } else {
        break;
      }
    }
    if (i < batch.blocks.size()) add_block(batch.blocks[i], table);
  }
}

// Events that change the flow keep their order; the others are compared as a set between two instructions or such events.
bool keeps_order(const std::string& line) {
  return line[0] != '[' || line.starts_with("[gap") || line.starts_with("[enabled") || line.starts_with("[resumed") ||
         line.starts_with("[disabled") || line.starts_with("[interrupt]") || line.starts_with("[interrupt, from");
}

// Converts both sides to the same form. The omissions are described in docs/DIFFERENCES.md, "libipt's tests".
void bring_to_one_form(std::vector<std::string>& flow) {
  std::vector<std::string> out;
  std::string mode = "[exec mode: 64-bit", interrupts = "[interrupts disabled";
  bool gap = false;  // only events since the last gap
  for (std::string& line : flow) {
    const std::string told = line.substr(0, line.find_first_of(",]"));
    if (line.starts_with("[exec mode") && std::exchange(mode, told) == told) continue;
    if (line.starts_with("[interrupts") && std::exchange(interrupts, told) == told) continue;
    const bool is_gap = line.starts_with("[gap");
    if (is_gap && gap) continue;
    gap = is_gap || (gap && line[0] == '[');
    out.push_back(std::move(line));
  }
  for (size_t first = 0; first < out.size(); ++first) {
    size_t last = first;
    while (last < out.size() && !keeps_order(out[last])) ++last;
    std::sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.begin() + static_cast<std::ptrdiff_t>(last));
    first = last;
  }
  flow = std::move(out);
}

}  // namespace

Lines wanted(const PttRun& run, const std::vector<std::string>& output) {
  Lines lines;
  bool new_block = false;
  for (std::string line : output) {
    if (line.starts_with("? ")) line.erase(0, 2);  // in a transaction
    unsigned long long value = 0, offset = 0;
    if (std::sscanf(line.c_str(), "insn: %llu", &value) == 1) {
      lines.instructions = value;
    } else if (std::sscanf(line.c_str(), "blocks: %llu", &value) == 1) {
      lines.blocks = value;
    } else if (line == "[block]") {
      new_block = true;
    } else if (line == "[end of trace]") {
      continue;
    } else if (line.find("error: ") != std::string::npos) {
      if (std::sscanf(line.c_str(), "[%llx, %llx:", &offset, &value) == 2) lines.flow.push_back("[gap " + hex16(value) + "]");
    } else if (line.starts_with("[")) {
      const bool timed = run.has("--event:time") && std::sscanf(line.c_str(), "[%16llx  ", &value) == 1;
      if (timed) line.erase(1, 18);
      if (line.starts_with("[tick")) continue;
      if (timed) lines.events.push_back({line, {TimeNs{value}, TimeNs{value}}});
      lines.flow.push_back(line);
    } else if (std::sscanf(line.c_str(), "%llx", &value) == 1) {
      lines.flow.push_back(hex16(value));
      if (new_block) lines.block_starts.push_back(value);
      new_block = false;
    } else {
      lines.flow.push_back(line);
    }
  }
  bring_to_one_form(lines.flow);
  return lines;
}

Lines decoded(const PttRun& run, const Made& made, const Way& way) {
  const test::Machine machine = test::make_machine(made.code);
  pt::DecoderOptions options = options_of(run);
  options.exact_only = way.exact;
  pt::Decoder decoder(machine.timeline, machine.contexts, options);
  Lines lines;
  Collector collector(run, lines);
  for (const AuxSegment& segment : test::cut_segments(made.trace)) {
    decoder.begin(segment);
    Batch batch;
    for (bool more = true; more;) {
      more = decoder.next(batch, way.batch_blocks);
      collector.add(batch, decoder.blocks());
    }
  }
  bring_to_one_form(lines.flow);
  return lines;
}

}  // namespace ptd::ptt
