// The QEMU plugin for whole arm64 machines. It writes every vcpu's blocks as raw ground truth, from which the recorder makes ETMv4 packets.
// Needs plugin interface 4 and `-accel tcg,thread=single -icount shift=N,sleep=off`.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "capture/emulate/plugin/system_machine.h"
#include "capture/emulate/shared/system_control.h"
#include "capture/emulate/unit/truth_log.h"
#include "ptdecode/arm_insn.h"

namespace ptd::emulate {
namespace {

constexpr uint64_t kInsnBytes = 4, kVectorBytes = 0x80, kVectorsBytes = 0x800;

struct Config {
  std::string folder = ".";
  uint64_t ns_per_insn = 8;  // -icount shift=3
  uint64_t stamp_ns = 1024;  // between timestamps
};

struct Translated : TranslatedBlock {
  ArmInsn last;                 ///< its last instruction
  bool writes_context = false;  ///< CONTEXTIDR_EL1
  bool loops_inside = false;    ///< ends in a branch to one of its instructions but the first
  bool may_be_vector = false;   ///< is where the entry of an exception vector can be
};

struct Vcpu {
  Vcpu(unsigned index, const Config& config) : number(index), truth(bytes) {
    file = std::fopen((config.folder + "/cpu" + std::to_string(index) + ".log").c_str(), "wb");
  }
  void commit();
  unsigned number;
  std::vector<std::byte> bytes;
  TruthLog truth;
  FILE* file = nullptr;
  const Translated* last = nullptr;   // the block that it entered last
  const Block* last_block = nullptr;  // the same, where it ran
  bool reached_end = false;           // of that block, if it loops inside
  bool has_context = false, context_written = true;
  uint64_t context = 0;
  uint64_t stamp_due = 0;
  VcpuCounts counts;
};

struct Machine : SystemMachine<Vcpu, Translated> {
  Config config;
  FILE* blocks = nullptr;
};

Machine g_machine;

void Vcpu::commit() { write_out(bytes, file, g_machine.failed_writes); }

/// Adds a block to the store, and to the file of blocks if it is new there: address, number of instructions, bytes.
Block* add_block(uint64_t ip, std::span<const SeenInsn> seen) {
  const BlockStore::Added added = g_machine.store.add(ip, ExecMode::a64, seen);
  if (added.block == nullptr || !added.is_new) return added.block;
  const uint64_t head[] = {ip, added.block->insns};
  const bool written = g_machine.blocks != nullptr && std::fwrite(head, sizeof(head), 1, g_machine.blocks) == 1 &&
                       std::fwrite(added.block->bytes, added.block->size_bytes, 1, g_machine.blocks) == 1;
  if (!written) ++g_machine.failed_writes;
  return added.block;
}

/// [ETMv4] "Exception instruction trace packet", TYPE, by the vector and [ARM] "ESR_EL1", EC.
unsigned type_of(uint64_t vector) {
  enum : unsigned {
    kCall = 2,
    kTrap = 3,
    kSystemError = 4,
    kInsnDebug = 6,
    kDataDebug = 7,
    kAlignment = 10,
    kInsnFault = 11,
    kDataFault = 12,
    kIrq = 14,
    kFiq = 15
  };
  constexpr unsigned kKinds[] = {0, kIrq, kFiq, kSystemError};
  if (const unsigned kind = kKinds[vector / kVectorBytes % 4]; kind != 0) return kind;
  switch (g_machine.glue.read(GuestRegister::esr_el1) >> 26 & 0x3f) {
    case 0x15:  // SVC
      return kCall;
    case 0x20:
    case 0x21:
      return kInsnFault;
    case 0x22:
    case 0x26:
      return kAlignment;
    case 0x24:
    case 0x25:
      return kDataFault;
    case 0x34:
    case 0x35:
      return kDataDebug;
    case 0x30:  // breakpoint, single step, BRK
    case 0x31:
    case 0x32:
    case 0x33:
    case 0x3c:
      return kInsnDebug;
    default:
      return kTrap;
  }
}

/// Records which instructions `vcpu` executed of the block that it entered last. The flow continued at `next`. `fault`: the instruction
/// there raised an exception. Returns the number of instructions that retired.
unsigned finish_block(Vcpu& vcpu, uint64_t next, bool fault) {
  const Block& block = *vcpu.last_block;
  const ArmInsn& last = vcpu.last->last;
  const bool branches = last.cls == ArmClass::direct || last.cls == ArmClass::indirect;
  const bool inside = next >= block.ip && next < block.end && (next - block.ip) % kInsnBytes == 0;
  const bool goes_there = last.cls == ArmClass::indirect ||
                          (branches && next == block.last_ip + static_cast<uint64_t>(last.displacement)) ||
                          (next == block.end && (!branches || last.conditional));
  // Interrupts are taken between blocks, other exceptions anywhere.
  const bool whole = vcpu.last->loops_inside && inside && next != block.ip ? vcpu.reached_end : inside ? goes_there && !fault : goes_there;
  const auto count = static_cast<unsigned>(whole ? block.insns : inside ? (next - block.ip) / kInsnBytes : 0);
  if (whole) {
    vcpu.truth.block(block.number);
  } else if (inside) {
    ++vcpu.counts.stops_inside;
    if (count != 0) vcpu.truth.part(block.number, 0, count);
  } else {  // not known
    ++vcpu.counts.irregular;
    vcpu.truth.lose();
    vcpu.truth.recover();
    vcpu.has_context = false;
  }
  vcpu.counts.insns += count;
  if (block.kernel) vcpu.counts.kernel_insns += count;
  return count;
}

/// Advances the clock past the block that any vcpu entered last, and returns the current time. `retired`: used if that vcpu is `vcpu`.
uint64_t advance_clock(const Vcpu& vcpu, unsigned retired) {
  Machine& m = g_machine;
  bool halted = true;
  if (m.running != nullptr && m.running->last != nullptr) {
    m.clock.count((m.running == &vcpu ? retired : m.running->last_block->insns) * m.config.ns_per_insn);
    halted = m.running->last->last.cls == ArmClass::wait;
  }
  (void)m.clock.settle(m.glue.settled_time(), halted);
  return m.clock.now();
}

/// Logs the exception level and the context id that apply to the trace from here on.
void note_context(Vcpu& vcpu, const Block& block) {
  if (vcpu.last != nullptr && vcpu.last->writes_context) vcpu.context_written = true;
  const uint64_t level = block.kernel ? 1 : 0;
  uint64_t id = vcpu.context >> 8;
  if (vcpu.context_written) id = g_machine.glue.read(GuestRegister::contextidr_el1) & 0xffffffff;
  vcpu.context_written = false;
  const uint64_t context = id << 8 | level;
  if (vcpu.has_context && context == vcpu.context) return;
  vcpu.has_context = true;
  vcpu.context = context;
  vcpu.truth.event(TruthEvent::context, context);
}

/// Whether the block that `vcpu` entered last leads to `next` without an indirect branch.
bool leads_to(const Vcpu& vcpu, uint64_t next) {
  if (vcpu.last_block == nullptr || vcpu.last->last.cls == ArmClass::indirect) return false;
  const bool branches = vcpu.last->last.cls == ArmClass::direct;
  const uint64_t target = vcpu.last_block->last_ip + static_cast<uint64_t>(vcpu.last->last.displacement);
  return (branches && next == target) || (next == vcpu.last_block->end && (!branches || vcpu.last->last.conditional));
}

void on_block(unsigned told, void* data) {
  Machine& m = g_machine;
  if (!m.tracing) return;
  const auto& next = *static_cast<const Translated*>(data);
  const unsigned index = m.glue.current_vcpu(told);
  if (index >= kMaxVcpus) return;
  if (m.vcpus[index] == nullptr) m.vcpus[index] = std::make_unique<Vcpu>(index, m.config);
  Vcpu& vcpu = *m.vcpus[index];
  const Block& block =
      next.running([&](uint64_t ip) { return leads_to(vcpu, ip); }, [&] { return m.glue.read(GuestRegister::pc); }, add_block);
  const bool event = next.may_be_vector && block.ip - m.glue.read(GuestRegister::vbar_el1) < kVectorsBytes;
  const uint64_t goes_on = event ? m.glue.read(GuestRegister::elr_el1) : block.ip;
  const bool interrupt = event && block.ip / kVectorBytes % 4 != 0;
  const unsigned retired = vcpu.last != nullptr ? finish_block(vcpu, goes_on, event && !interrupt) : 0;
  const uint64_t now = advance_clock(vcpu, retired);
  if (event && vcpu.last != nullptr) {
    ++vcpu.counts.events;
    vcpu.truth.event(static_cast<TruthEvent>(static_cast<unsigned>(TruthEvent::exception) + type_of(block.ip)), goes_on);
  }
  note_context(vcpu, block);
  if (now >= vcpu.stamp_due || event || vcpu.last == nullptr || vcpu.last->last.detail == ArmDetail::eret) {
    vcpu.stamp_due = now + m.config.stamp_ns;
    if (vcpu.last == nullptr) vcpu.truth.psb(0, now);
    vcpu.truth.time(now);
  }
  vcpu.last = &next;
  vcpu.last_block = &block;
  vcpu.reached_end = false;
  m.running = &vcpu;
  if (vcpu.bytes.size() >= kCommitBytes) vcpu.commit();
}

void on_last_insn(unsigned told, void*) {
  const unsigned index = g_machine.glue.current_vcpu(told);
  if (index < kMaxVcpus && g_machine.vcpus[index] != nullptr) g_machine.vcpus[index]->reached_end = true;
}

/// Code of AArch32 begins, which is not traced: the flow is lost up to the next A64 code.
void on_a32(unsigned told, void*) {
  Machine& m = g_machine;
  const unsigned index = m.glue.current_vcpu(told);
  if (!m.tracing || index >= kMaxVcpus || m.vcpus[index] == nullptr || m.vcpus[index]->last == nullptr) return;
  Vcpu& vcpu = *m.vcpus[index];
  (void)advance_clock(vcpu, finish_block(vcpu, m.glue.read(GuestRegister::elr_el1), false));  // by an ERET
  ++vcpu.counts.irregular;
  vcpu.truth.lose();
  vcpu.truth.recover();
  vcpu.has_context = false;
  vcpu.last = nullptr;
  vcpu.last_block = nullptr;
}

void write_summary() {
  SummaryFile summary(g_machine.config.folder);
  summary.line("arm64", 1);
  summary.line("failed_writes", g_machine.failed_writes);
  summary.lines(g_machine.clock);
  for (const auto& vcpu : g_machine.vcpus) {
    if (vcpu != nullptr) summary.lines(vcpu->number, vcpu->counts);
  }
}

void end_trace() {
  Machine& m = g_machine;
  if (m.ended || !m.tracing) return;
  m.tracing = false;
  m.ended = true;
  for (const auto& vcpu : m.vcpus) {
    if (vcpu == nullptr) continue;
    vcpu->truth.time(m.clock.now());
    vcpu->truth.end();
    vcpu->commit();
    if (vcpu->file != nullptr && std::fclose(vcpu->file) != 0) ++m.failed_writes;
  }
  if (m.blocks != nullptr && std::fclose(m.blocks) != 0) ++m.failed_writes;
  write_summary();
}

void attach(qemu_plugin_id_t id);

// Has QEMU translate all code again: with calls of on_block() while the machine is traced, without them before and after, where they would
// only cost time.
void translate_again() { qemu_plugin_reset(g_machine.id, attach); }

void on_command(unsigned, void* data) {
  Machine& m = g_machine;
  const auto command = static_cast<SystemCommand>(reinterpret_cast<uintptr_t>(data));
  if (command == SystemCommand::start && !m.ended && !m.tracing) {
    m.tracing = true;
    translate_again();
  } else if (command == SystemCommand::stop && m.tracing) {
    end_trace();
    translate_again();
  }
}

uint32_t word_at(const std::byte* code) {
  uint32_t word = 0;
  std::memcpy(&word, code, sizeof(word));
  return word;
}

void on_translation(qemu_plugin_id_t, qemu_plugin_tb* tb) {
  constexpr uint32_t kWritesContext = 0xd518d020, kAnyRegister = 0x1f;  // MSR CONTEXTIDR_EL1, Xt
  Machine& m = g_machine;
  const size_t count = qemu_plugin_tb_n_insns(tb);
  static std::vector<std::byte> bytes;
  static std::vector<SeenInsn> seen;
  // QEMU's pc is that of A64 code, and keeps its value where AArch32 code runs.
  if (m.tracing && m.glue.read(GuestRegister::pc) != qemu_plugin_tb_vaddr(tb)) {
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_a32, QEMU_PLUGIN_CB_R_REGS, nullptr);
    return;
  }
  bytes.resize(count * kInsnBytes);
  seen.clear();
  bool writes_context = false;
  for (size_t i = 0; i < count; ++i) {
    qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
    std::byte* at = bytes.data() + i * kInsnBytes;
    if (qemu_plugin_insn_size(insn) != kInsnBytes || qemu_plugin_insn_data(insn, at, kInsnBytes) != kInsnBytes) return;  // not A64
    seen.push_back({at, kInsnBytes});
    const uint32_t word = word_at(at), command = (word ^ kControlMovz) >> 5;
    writes_context = writes_context || (word & ~kAnyRegister) == kWritesContext;
    if (((word ^ kControlMovz) & kAnyRegister) == 0 && (command == 1 || command == 2))
      qemu_plugin_register_vcpu_insn_exec_cb(insn, on_command, QEMU_PLUGIN_CB_R_REGS, reinterpret_cast<void*>(uintptr_t{command}));
  }
  if (!m.tracing || count == 0) return;
  Block* block = add_block(qemu_plugin_tb_vaddr(tb), seen);
  if (block == nullptr) return;
  Translated translated;
  translated.block = translated.current = block;
  translated.last = classify_a64(word_at(bytes.data() + (count - 1) * kInsnBytes));
  translated.writes_context = writes_context;
  const uint64_t target = block->last_ip + static_cast<uint64_t>(translated.last.displacement);
  translated.loops_inside =
      translated.last.cls == ArmClass::indirect || (translated.last.cls == ArmClass::direct && target > block->ip && target < block->end);
  translated.may_be_vector = block->kernel && block->ip % kVectorBytes == 0;
  m.translations.push_back(std::move(translated));
  qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_R_REGS, &m.translations.back());
  if (m.translations.back().loops_inside)
    qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_tb_get_insn(tb, count - 1), on_last_insn, QEMU_PLUGIN_CB_NO_REGS, nullptr);
}

void attach(qemu_plugin_id_t id) {
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
  qemu_plugin_register_atexit_cb(
      id, [](qemu_plugin_id_t, void*) { end_trace(); }, nullptr);
}

bool take_argument(const std::string& name, const std::string& value) {
  Config& config = g_machine.config;
  if (name == "out") {
    config.folder = value;
  } else if (name == "stamp_ns") {
    config.stamp_ns = std::strtoull(value.c_str(), nullptr, 0);
  } else if (name == "ns_per_insn") {
    config.ns_per_insn = std::strtoull(value.c_str(), nullptr, 0);
  } else {
    return false;
  }
  return true;
}

}  // namespace
}  // namespace ptd::emulate

extern "C" {

PTD_EXPORT int qemu_plugin_version = ptd::emulate::kPluginVersion;

PTD_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc, char** argv) {
  using namespace ptd::emulate;
  Config& config = g_machine.config;
  std::string why = start_plugin(*info, "aarch64", {argv, static_cast<size_t>(argc)}, take_argument);
  if (why.empty())
    (void)g_machine.glue.attach(
        {GuestRegister::pc, GuestRegister::elr_el1, GuestRegister::esr_el1, GuestRegister::vbar_el1, GuestRegister::contextidr_el1}, why);
  if (why.empty()) {
    g_machine.blocks = std::fopen((config.folder + "/blocks").c_str(), "wb");
    if (g_machine.blocks == nullptr) why = "cannot write to " + config.folder;
  }
  if (!why.empty()) return refuse_plugin(why);
  g_machine.id = id;
  attach(id);
  return 0;
}

}  // extern "C"
