// The QEMU plugin for whole machines: every vcpu's blocks -> packets and ground truth. Needs plugin interface 4 and
// `-accel tcg,thread=single -icount shift=N,sleep=off`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/emulate/plugin/code_log.h"
#include "capture/emulate/plugin/system_machine.h"
#include "capture/emulate/shared/system_control.h"
#include "capture/emulate/unit/block_tracer.h"
#include "capture/emulate/unit/code_segment.h"

namespace ptd::emulate {
namespace {

constexpr unsigned kVectors = 256, kGateBytes = 16;

struct Config {
  std::string folder = ".";
  bool trace_user = true, with_truth = true;
  bool boot = false;         // from the kernel's first instruction on
  uint64_t ns_per_insn = 8;  // -icount shift=3
  PtEncoderOptions encoder;
};

struct Translated : TranslatedBlock {
  bool ends_with_mov_cr3 = false, ends_with_rdtsc = false;
};

struct Vcpu {
  explicit Vcpu(unsigned index, const Config& config);
  void define(const Block& block);
  void commit();
  void close();

  unsigned number;
  std::vector<std::byte> packets, truth_bytes;
  std::vector<uint64_t> psbs;  // offset and time of each
  PtEncoder encoder;
  TruthLog truth;
  BlockTracer tracer;
  const Translated* last = nullptr;   // the block that it entered last
  const Block* last_block = nullptr;  // the same, where it ran
  uint64_t last_ended = 0;            // when it was left, for whatever
  uint64_t known_psbs = 0;
  uint64_t kernel_insns = 0;  // of those that retired
  std::vector<bool> defined;
  FILE* packet_file = nullptr;
  FILE* truth_file = nullptr;
  FILE* psb_file = nullptr;
};

struct Counts {
  uint64_t tsc_reads = 0, tsc_reads_wrong = 0, tsc_error_max_ns = 0;  // RDTSCs of the guest, and how far the trace's clock was off
  uint64_t foreign_index = 0, mismatched_lengths = 0, unknown_mode = 0;
};

struct Machine : SystemMachine<Vcpu, Translated> {
  Config config;
  std::unordered_map<uint64_t, unsigned> handlers;  // entry -> vector
  bool kernel_runs = false;                         // boot: what ran before it (the firmware, the decompressor) is not traced
  CodeLog code;                                     // boot
  uint64_t last_entered = 0;  // when a block was entered last: code that is translated now is at least as old as the end of that block
  Counts counts;
};

Machine g_machine;

Vcpu::Vcpu(unsigned index, const Config& config)
    : number(index), encoder(config.encoder, packets), truth(truth_bytes), tracer(encoder, config.with_truth ? &truth : nullptr, true) {
  const std::string name = config.folder + "/cpu" + std::to_string(index);
  packet_file = std::fopen((name + ".pt").c_str(), "wb");
  psb_file = std::fopen((name + ".psb").c_str(), "wb");
  if (config.with_truth) truth_file = std::fopen((name + ".truth").c_str(), "wb");
}

void Vcpu::define(const Block& block) {
  if (!g_machine.config.with_truth || (block.number < defined.size() && defined[block.number])) return;
  if (block.number >= defined.size()) defined.resize(block.number + 1024);
  defined[block.number] = true;
  truth.put(static_cast<uint64_t>(TruthTag::define));
  for (const uint64_t field : {uint64_t{block.number}, block.ip, uint64_t{block.insns}}) truth.put(field);
  for (unsigned i = 0; i < block.insns; ++i) truth.put(block.lengths[i]);
  truth_bytes.insert(truth_bytes.end(), block.bytes, block.bytes + block.size_bytes);
}

void Vcpu::commit() {
  encoder.taken(packets.size());
  uint64_t& failures = g_machine.failed_writes;
  write_out(packets, packet_file, failures);
  write_out(psbs, psb_file, failures);
  write_out(truth_bytes, truth_file, failures);
}

void Vcpu::close() {
  for (FILE** file : {&packet_file, &psb_file, &truth_file}) {
    if (*file != nullptr && std::fclose(*file) != 0) ++g_machine.failed_writes;
    *file = nullptr;
  }
}

bool has_error_code(unsigned vector) {
  constexpr uint64_t kWithCode = 1ULL << 8 | 1ULL << 10 | 1ULL << 11 | 1ULL << 12 | 1ULL << 13 | 1ULL << 14 | 1ULL << 17 | 1ULL << 21 |
                                 1ULL << 29 | 1ULL << 30;  // [SDM] volume 3, "Protected-Mode Exceptions and Interrupts"
  return vector < 64 && (kWithCode >> vector & 1) != 0;
}

/// Where the event came that brought the flow to the handler of `vector`, from the frame that was pushed ([SDM] volume 3, "64-Bit Mode
/// Stack Frame").
AsyncEvent event_of(unsigned vector) {
  constexpr unsigned kDebug = 1, kNmi = 2, kBreakpoint = 3, kOverflow = 4, kPageFault = 14, kExceptions = 32;
  constexpr uint64_t kInstructionFetch = 1U << 4;
  const uint64_t stack = g_machine.glue.read(GuestRegister::rsp);
  AsyncEvent event;
  event.ip = g_machine.glue.peek(stack + (has_error_code(vector) ? 8 : 0)).value_or(0);
  event.inside = vector < kExceptions && vector != kDebug && vector != kNmi && vector != kBreakpoint && vector != kOverflow;
  if (vector == kPageFault && (g_machine.glue.peek(stack).value_or(0) & kInstructionFetch) != 0) event.inside = false;
  return event;
}

/// Whether the flow goes on at `next` after `last` by itself, as far as the block says.
bool follows(const Block& last, uint64_t next) {
  if (last.kind == BlockEnd::jcc) return next == last.target || next == last.end;
  if (last.kind == BlockEnd::plain) return next == last.end;
  if (last.kind == BlockEnd::jump || last.kind == BlockEnd::call || last.kind == BlockEnd::call_next) return next == last.target;
  return true;
}

/// Whether `last` leads to `next` by itself and to at most one other address: by a conditional or direct branch, or without one.
bool leads_to(const Block* last, uint64_t next) {
  if (last == nullptr) return false;
  switch (last->kind) {
    case BlockEnd::jcc:
    case BlockEnd::plain:
    case BlockEnd::jump:
    case BlockEnd::call:
    case BlockEnd::call_next:
      return follows(*last, next);
    default:
      return false;
  }
}

/// While the machine boots, its descriptor tables are not known: an event is recognised by the frame that it pushed, which says where it
/// came and in which code segment. False if there is none, or the flow needs none.
bool guess_event(const Block& last, const Block& next, AsyncEvent& event) {
  if (!next.kernel || (follows(last, next.ip) && last.kind != BlockEnd::far)) return false;
  const uint64_t stack = g_machine.glue.read(GuestRegister::rsp);
  for (const uint64_t code_bytes : {0, 8}) {  // of the error code
    const uint64_t ip = g_machine.glue.peek(stack + code_bytes).value_or(0),
                   segment = g_machine.glue.peek(stack + code_bytes + 8).value_or(0);
    if (segment != kKernelCode && segment != kUserCode && segment != kUserCode32) continue;
    const bool inside = last.index_of(ip) >= 0;
    if (!inside && !follows(last, ip)) continue;
    event.ip = ip;
    event.inside = inside && (code_bytes != 0 || !follows(last, ip));
    return true;
  }
  return false;
}

/// Reads the interrupt descriptor table: from here on its entries are known as the targets of events.
void read_descriptors(uint64_t table) {
  for (unsigned vector = 0; vector < kVectors; ++vector) {
    const auto low = g_machine.glue.peek(table + uint64_t{vector} * kGateBytes),
               high = g_machine.glue.peek(table + uint64_t{vector} * kGateBytes + 8);
    if (!low || !high || (*low >> 47 & 1) == 0) continue;  // not present
    const uint64_t entry = (*low & 0xffff) | (*low >> 48) << 16 | (*high & 0xffffffff) << 32;
    g_machine.handlers.emplace(entry, vector);
    g_machine.store.for_each_at(entry, [](Block& block) { block.watched = true; });
  }
}

void write_summary() {
  SummaryFile summary(g_machine.config.folder);
  const PtEncoderOptions& options = g_machine.config.encoder;
  summary.line("return_compression", options.return_compression ? 1 : 0);
  summary.line("cyc", options.cyc ? 1 : 0);
  summary.line("mtc", options.mtc ? 1 : 0);
  summary.line("mtc_period", options.mtc_period);
  summary.line("tsc_per_ctc", options.tsc_per_ctc);
  summary.line("bus_ratio", options.bus_ratio);
  summary.line("trace_user", g_machine.config.trace_user ? 1 : 0);
  const Counts& counts = g_machine.counts;
  summary.line("tsc_reads", counts.tsc_reads);
  summary.line("tsc_reads_wrong", counts.tsc_reads_wrong);
  summary.line("tsc_error_max_ns", counts.tsc_error_max_ns);
  summary.line("foreign_index", counts.foreign_index);
  summary.line("mismatched_lengths", counts.mismatched_lengths);
  summary.line("unknown_mode", counts.unknown_mode);
  summary.line("failed_writes", g_machine.failed_writes);
  summary.lines(g_machine.clock);
  for (const auto& vcpu : g_machine.vcpus) {
    if (vcpu == nullptr) continue;
    const BlockTracer::Counts& traced = vcpu->tracer.counts();
    summary.lines(vcpu->number, {traced.insns, vcpu->kernel_insns, traced.events, traced.irregular, traced.stops_inside});
    summary.line("cpu" + std::to_string(vcpu->number) + "_compressed_returns", vcpu->encoder.counts().compressed_returns);
  }
}

void end_trace() {
  if (g_machine.ended || !g_machine.tracing) return;
  g_machine.failed_writes += g_machine.code.failures();
  g_machine.tracing = false;
  g_machine.ended = true;
  for (const auto& vcpu : g_machine.vcpus) {
    if (vcpu == nullptr) continue;
    // What the block entered last did is not known: the trace ends before it, as where an interrupt switches a trace off.
    if (vcpu->tracer.current() != nullptr) vcpu->encoder.disable_async(vcpu->tracer.current()->ip);
    vcpu->tracer.stop();
    vcpu->commit();
    vcpu->close();
  }
  write_summary();
}

void attach(qemu_plugin_id_t id);

// Has QEMU translate all code again: with calls of on_block() while the machine is traced, without them before and after, where they would
// only cost time. QEMU does so once the running block has ended.
void translate_again() { qemu_plugin_reset(g_machine.id, attach); }

void on_command(unsigned, void* data) {
  const auto command = static_cast<SystemCommand>(reinterpret_cast<uintptr_t>(data));
  if (command == SystemCommand::start && !g_machine.ended) {
    if (g_machine.handlers.empty()) read_descriptors(g_machine.glue.read(GuestRegister::rax));
    g_machine.code.close();  // from here on the kernel's own records say what changes
    if (g_machine.tracing) return;
    g_machine.tracing = true;
    translate_again();
  } else if (command == SystemCommand::stop && g_machine.tracing) {
    end_trace();
    translate_again();
  }
}

/// Instructions of the block that `vcpu` entered last which QEMU counted, now that it goes on at `next`.
unsigned counted(const Vcpu& vcpu, uint64_t next, const AsyncEvent* event) {
  const Block& block = *vcpu.last_block;
  if (event == nullptr && (next == block.end || (next == block.target && block.kind != BlockEnd::plain))) return block.insns;
  if (event != nullptr && !event->inside) next = event->ip;
  const int inside = event != nullptr && event->inside ? block.index_of(event->ip) : block.index_of(next);
  if (event != nullptr && event->inside && inside >= 0) return static_cast<unsigned>(inside);
  const bool branches_there = block.kind != BlockEnd::plain && (next == block.target || next == block.end);
  const bool stopped = inside > 0 && inside + 1 < block.insns && !branches_there;
  return stopped ? static_cast<unsigned>(inside) : block.insns;
}

/// Advances the clock past the block that was entered last, on whichever vcpu, and returns the time now.
uint64_t advance_clock(const Vcpu& vcpu, uint64_t next, const AsyncEvent* event) {
  Machine& m = g_machine;
  bool halted = true;
  if (m.running != nullptr && m.running->last != nullptr) {
    Vcpu& before = *m.running;
    // Another vcpu runs after a slice's end only: the whole block ran, and the time is settled.
    m.clock.count((&before == &vcpu ? counted(before, next, event) : before.last_block->insns) * m.config.ns_per_insn);
    halted = before.last_block->detail == InsnDetail::hlt;
  }
  const uint64_t ended = m.clock.settle(m.glue.settled_time(), halted);
  if (m.running != nullptr) m.running->last_ended = ended;
  return m.clock.now();
}

// The block that just ended read the TSC: is it the time that the trace has?
void check_clock(const Vcpu& vcpu) {
  const uint64_t read = (g_machine.glue.read(GuestRegister::rdx) << 32) | (g_machine.glue.read(GuestRegister::rax) & 0xffffffff);
  const uint64_t error = read > vcpu.last_ended ? read - vcpu.last_ended : vcpu.last_ended - read;
  Counts& counts = g_machine.counts;
  ++counts.tsc_reads;
  if (error != 0) ++counts.tsc_reads_wrong;
  counts.tsc_error_max_ns = std::max(counts.tsc_error_max_ns, error);
}

/// What `vcpu` did since it entered its last block, now that it enters another.
void enter_block(Vcpu& vcpu, const Block& block, const AsyncEvent* event, uint64_t now) {
  BlockTracer& tracer = vcpu.tracer;
  const Translated* last = tracer.current() != nullptr ? vcpu.last : nullptr;
  const uint64_t goes_on = event != nullptr ? event->ip : block.ip;
  const bool whole = last != nullptr && goes_on == vcpu.last_block->end;
  if (whole && last->ends_with_rdtsc && event == nullptr) check_clock(vcpu);
  if (whole && last->ends_with_mov_cr3) {
    tracer.cr3_written(g_machine.glue.read(GuestRegister::cr3), vcpu.last_ended);
  } else if (last != nullptr) {
    vcpu.encoder.set_time(vcpu.last_ended);
  }
  if (!vcpu.encoder.enabled()) vcpu.encoder.set_cr3(g_machine.glue.read(GuestRegister::cr3));
  const bool unknown = block.mode == ExecMode::unknown;
  if (unknown || (!g_machine.config.trace_user && !block.kernel)) {
    if (unknown && tracer.current() != nullptr) ++g_machine.counts.unknown_mode;
    if (tracer.current() != nullptr) tracer.leave(vcpu.last_ended);
    return;
  }
  vcpu.define(block);
  if (event != nullptr && vcpu.encoder.enabled()) {
    tracer.enter_handler(block, *event, now);
  } else {
    tracer.enter(block, [now] { return now; });
  }
}

void on_block(unsigned told, void* data) {
  Machine& m = g_machine;
  if (!m.tracing) return;
  const auto& next = *static_cast<const Translated*>(data);
  const unsigned index = m.glue.current_vcpu(told);
  if (index != told) ++m.counts.foreign_index;
  if (index >= kMaxVcpus) return;
  if (m.vcpus[index] == nullptr) m.vcpus[index] = std::make_unique<Vcpu>(index, m.config);
  Vcpu& vcpu = *m.vcpus[index];
  AsyncEvent event;
  const AsyncEvent* told_event = nullptr;
  const Block& block =
      next.running([&](uint64_t ip) { return leads_to(vcpu.last_block, ip); }, [&] { return m.glue.read(GuestRegister::rip); },
                   [&](uint64_t ip, std::span<const SeenInsn> insns) { return m.store.add(ip, next.block->mode, insns).block; });
  if (block.watched) {
    event = event_of(m.handlers.find(block.ip)->second);
    told_event = &event;
  } else if (m.config.boot && m.handlers.empty() && vcpu.tracer.current() != nullptr && guess_event(*vcpu.tracer.current(), block, event)) {
    told_event = &event;
  }
  const uint64_t now = advance_clock(vcpu, block.ip, told_event);
  m.last_entered = now;
  const uint64_t retired = vcpu.tracer.counts().insns;
  enter_block(vcpu, block, told_event, now);
  if (vcpu.last != nullptr && vcpu.last_block->kernel) vcpu.kernel_insns += vcpu.tracer.counts().insns - retired;
  vcpu.last = &next;
  vcpu.last_block = &block;
  if (vcpu.encoder.counts().psb != vcpu.known_psbs) {
    vcpu.known_psbs = vcpu.encoder.counts().psb;
    vcpu.psbs.insert(vcpu.psbs.end(), {vcpu.encoder.last_psb_offset(), vcpu.encoder.time()});
  }
  if (vcpu.packets.size() + vcpu.truth_bytes.size() >= kCommitBytes) vcpu.commit();
  m.running = &vcpu;
}

bool is_mov_cr3(const std::byte* code, size_t size) {
  if (size > 3 && (code[0] & std::byte{0xf0}) == std::byte{0x40}) ++code, --size;
  return size == 3 && code[0] == std::byte{0x0f} && code[1] == std::byte{0x22} && (static_cast<unsigned>(code[2]) & 0x38) == 0x18;
}
bool is_rdtsc(const std::byte* code, size_t size) { return size == 2 && code[0] == std::byte{0x0f} && code[1] == std::byte{0x31}; }

/// The command that an instruction gives to the tracer, 0 if none.
unsigned command_of(const std::byte* code, size_t size) {
  constexpr uint8_t kNop[] = {0x0f, 0x1f, 0x80};
  uint32_t word = 0;
  if (size != 7 || std::memcmp(code, kNop, sizeof(kNop)) != 0) return 0;
  std::memcpy(&word, code + sizeof(kNop), sizeof(word));
  return (word & ~0xffU) == kControlTag ? word & 0xff : 0;
}

void on_translation(qemu_plugin_id_t, qemu_plugin_tb* tb) {
  constexpr size_t kMaxInsnBytes = 15;
  Machine& m = g_machine;
  const size_t count = qemu_plugin_tb_n_insns(tb);
  static std::vector<std::byte> bytes;
  static std::vector<SeenInsn> seen;
  bytes.resize(count * kMaxInsnBytes);
  seen.clear();
  for (size_t i = 0; i < count; ++i) {
    qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
    std::byte* at = bytes.data() + i * kMaxInsnBytes;
    const size_t size = qemu_plugin_insn_size(insn);
    (void)qemu_plugin_insn_data(insn, at, size);
    seen.push_back({at, size});
    if (const unsigned command = command_of(at, size); command != 0) {
      qemu_plugin_register_vcpu_insn_exec_cb(insn, on_command, QEMU_PLUGIN_CB_R_REGS, reinterpret_cast<void*>(uintptr_t{command}));
    }
  }
  if (!m.tracing) return;
  const uint64_t ip = qemu_plugin_tb_vaddr(tb);
  if (m.config.boot) {
    constexpr uint64_t kRealModeEnd = 1U << 20;  // other processors begin there, in real mode
    if (!m.kernel_runs && is_kernel_half(Ip{ip})) {
      m.kernel_runs = true;
      translate_again();  // some of the kernel's code ran at its physical address, untraced, and would not be translated again
    }
    if (!m.kernel_runs || ip < kRealModeEnd) return;
  }
  // A translation is of one mode: QEMU makes another one where the same code runs in another mode.
  const BlockStore::Added added = m.store.add(ip, mode_of_code(ip, [&] { return m.glue.read(GuestRegister::cs); }), seen);
  if (added.block == nullptr) return;
  if (added.is_new && added.block->mismatch) ++m.counts.mismatched_lengths;
  if (m.handlers.count(added.block->ip) != 0) added.block->watched = true;
  if (added.block->kernel) m.code.see(m.last_entered == 0 ? 0 : m.last_entered - 1, ip, added.block->code());
  const std::byte* last = static_cast<const std::byte*>(seen.back().data);
  m.translations.push_back(
      {{added.block, added.block, {}}, is_mov_cr3(last, seen.back().size_bytes), is_rdtsc(last, seen.back().size_bytes)});
  qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_R_REGS, &m.translations.back());
}

void attach(qemu_plugin_id_t id) {
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
  qemu_plugin_register_atexit_cb(
      id, [](qemu_plugin_id_t, void*) { end_trace(); }, nullptr);
}

bool take_argument(const std::string& name, const std::string& value) {
  Config& config = g_machine.config;
  const bool on = value == "on" || value == "1" || value == "true";
  const auto number = [&] { return std::strtoull(value.c_str(), nullptr, 0); };
  if (name == "out")
    config.folder = value;
  else if (name == "boot")
    config.boot = on;
  else if (name == "truth")
    config.with_truth = on;
  else if (name == "long_tnt")
    config.encoder.long_tnt = on;
  else if (name == "cyc_threshold")
    config.encoder.cyc_threshold = static_cast<uint8_t>(number());
  else if (name == "user")
    config.trace_user = on;
  else if (name == "retcomp")
    config.encoder.return_compression = on;
  else if (name == "cyc")
    config.encoder.cyc = on;
  else if (name == "mtc")
    config.encoder.mtc = on;
  else if (name == "mtc_period")
    config.encoder.mtc_period = static_cast<uint8_t>(number());
  else if (name == "psb_bytes")
    config.encoder.psb_period_bytes = static_cast<uint32_t>(number());
  else if (name == "ns_per_insn")
    config.ns_per_insn = number();
  else
    return false;
  return true;
}

}  // namespace
}  // namespace ptd::emulate

extern "C" {

PTD_EXPORT int qemu_plugin_version = ptd::emulate::kPluginVersion;

PTD_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc, char** argv) {
  using namespace ptd::emulate;
  Config& config = g_machine.config;
  config.encoder.pip = true;
  config.encoder.mtc_period = 3;
  config.encoder.tsc_per_ctc = 40;  // a crystal of 25 MHz below a TSC of 1 GHz
  config.encoder.bus_ratio = 10;
  std::string why = start_plugin(*info, "x86_64", {argv, static_cast<size_t>(argc)}, take_argument);
  if (why.empty())
    (void)g_machine.glue.attach(
        {GuestRegister::rax, GuestRegister::rdx, GuestRegister::rsp, GuestRegister::cr3, GuestRegister::rip, GuestRegister::cs}, why);
  if (why.empty() && config.boot && !g_machine.code.open(config.folder + "/code")) why = "cannot write to " + config.folder;
  if (!why.empty()) return refuse_plugin(why);
  g_machine.id = id;
  g_machine.tracing = config.boot;
  attach(id);
  return 0;
}

}  // extern "C"
