// Runs the demonstration's kernel on two cpus while it patches itself.
#include "tests/demo/runner.h"

#include <algorithm>
#include <cstdio>

namespace ptd::demo {
namespace {

constexpr uint64_t kFirstTsc = 90'000'000'000, kStartSkewTsc = 700;
constexpr uint64_t kInstructionTsc = 12, kTrapTsc = 90, kCallLatencyTsc = 1500, kTextMapTsc = 3000;
constexpr uint64_t kBetweenChangesTsc = 30'000, kAfterLastTsc = 60'000;
constexpr uint64_t kLoopsOfThread = 20;  ///< rounds of a worker before the other thread of its cpu runs
constexpr uint64_t kPerCpuData = 0xffff888000010000, kStacks = 0xffffc90000000000, kStackBytes = 0x4000;
constexpr uint64_t kPieceBytes = 16384;
constexpr uint64_t kFrameIp = 40, kFrameStack = 16;  ///< words of an interrupt frame, below its top

uint64_t fnv1a(uint64_t hash, uint64_t byte) { return (hash ^ byte) * 0x100000001b3; }

}  // namespace

uint64_t perf_time(uint64_t tsc) {
  const uint64_t quotient = tsc >> kTimeShift, rest = tsc & ((uint64_t{1} << kTimeShift) - 1);
  return kTimeZero + quotient * kTimeMult + (rest * kTimeMult >> kTimeShift);
}

void Truth::instruction(uint64_t ip, const std::vector<std::byte>& bytes, uint64_t tsc) {
  for (unsigned shift = 0; shift < 64; shift += 8) ips_ = fnv1a(ips_, ip >> shift & 0xff);
  for (const std::byte b : bytes) bytes_ = fnv1a(bytes_, static_cast<uint64_t>(b));
  if (++count_ % kPeriod != 0) return;
  char line[128];
  (void)std::snprintf(line, sizeof(line), "%llu %016llx %016llx %llx %llu\n", static_cast<unsigned long long>(count_),
                      static_cast<unsigned long long>(ips_), static_cast<unsigned long long>(bytes_), static_cast<unsigned long long>(ip),
                      static_cast<unsigned long long>(tsc));
  text_ += line;
}

std::string Truth::text() const {
  if (count_ % kPeriod == 0) return text_;
  char line[96];
  (void)std::snprintf(line, sizeof(line), "%llu %016llx %016llx end\n", static_cast<unsigned long long>(count_),
                      static_cast<unsigned long long>(ips_), static_cast<unsigned long long>(bytes_));
  return text_ + line;
}

Runner::Runner(const Kernel& kernel) : kernel_(kernel), changes_(plan_changes(kernel)) {
  memory_.write(kernel.text.base, kernel.text.code);
  memory_.write(kernel.module.base, kernel.module.code);
  hooks_ = {{kernel.at("demo_worker.next_work"), &Runner::at_next_work},
            {kernel.at("text_poke.map"), &Runner::at_text_map},
            {kernel.at("text_poke.write"), &Runner::at_text_write},
            {kernel.at("text_poke_sync.send"), &Runner::at_sync_send},
            {kernel.at("synchronize_rcu_tasks.wait"), &Runner::at_grace_start},
            {kernel.at("perf_event_text_poke_output.write"), &Runner::at_poke_record},
            {kernel.at("perf_event_ksymbol.write"), &Runner::at_symbol_record},
            {kernel.at("poke_int3_handler.emulate"), &Runner::at_emulate},
            {kernel.at("prepare_task_switch.write"), &Runner::at_switch_out},
            {kernel.at("__switch_to_asm.swap"), &Runner::at_swap},
            {kernel.at("finish_task_switch.write"), &Runner::at_switch_in}};
  for (int number = 0; number < kCpus; ++number) start_side(number);
  next_change_tsc_ = kFirstTsc + kBetweenChangesTsc;
}

void Runner::start_side(int number) {
  Side& side = sides_[static_cast<size_t>(number)];
  const auto n = static_cast<uint64_t>(number);
  side.cpu.number = number;
  side.cpu.tsc = kFirstTsc + n * kStartSkewTsc;
  side.cpu.gs_base = kPerCpuData + n * 0x1000;
  for (uint64_t i = 0; i < 2; ++i) {
    Task task;
    task.tid = static_cast<int32_t>(101 + 10 * n + i);
    task.comm = "demo/" + std::to_string(n) + (i == 0 ? "-a" : "-b");
    task.stack = kStacks + (4 * n + i + 1) * kStackBytes;
    side.tasks.push_back(task);
  }
  side.cpu.trap_stack = kStacks + (4 * n + 3) * kStackBytes;
  side.cpu.ip = kernel_.at("kthread");
  side.cpu.regs[rsp] = side.tasks[0].stack;
  side.cpu.regs[rbx] = 0x1234567 + number;
  push(memory_, side.cpu, 0);
  // The second thread's stack is that of a call of schedule().
  Cpu second;
  second.regs[rsp] = side.tasks[1].stack;
  const uint64_t frame = 0, random = 0x7654321 + n;
  for (const uint64_t word : {uint64_t{0}, kernel_.at("kthread"), frame, kernel_.at("schedule.resume"), frame, random})
    push(memory_, second, word);
  side.tasks[1].stack = second.regs[rsp];
}

void Runner::record(const Side& side, perfio::Payload payload) {
  sideband_.push_back({perf_time(side.cpu.tsc), side.cpu.number, side.tasks[side.current].tid, std::move(payload)});
}

void Runner::at_next_work(Side& side) {
  ++side.loops;
  if (changing_ && changes_[next_change_].cpu == side.cpu.number) {
    changing_ = false;
    next_change_tsc_ = side.cpu.tsc + kBetweenChangesTsc;
    if (++next_change_ == changes_.size()) end_tsc_ = side.cpu.tsc + kAfterLastTsc;
  }
  if (grace_for_ == side.cpu.number && side.loops >= grace_loops_) {
    memory_.set_value(kGracePending, 4, 0);
    grace_for_ = -1;
  }
  const char* work = nullptr;
  if (!changing_ && next_change_ < changes_.size() && changes_[next_change_].cpu == side.cpu.number && side.cpu.tsc >= next_change_tsc_) {
    changing_ = true;
    const Change& change = changes_[next_change_];
    if (!change.emulated.empty()) emulated_[change.emulated_at] = change.emulated;
    work = change.function.c_str();
  } else if (side.loops % kLoopsOfThread == 0) {
    work = "schedule";
  }
  if (work != nullptr) side.cpu.regs[rax] = kernel_.at(work);
  memory_.set_value(side.cpu.gs_base + kHasWork, 4, work != nullptr ? 1 : 0);
}

void Runner::at_text_map(Side& side) { side.cpu.tsc += kTextMapTsc; }

void Runner::at_text_write(Side&) {
  auto& writes = changes_[next_change_].writes;
  const TextWrite& write = writes.front();
  memory_.write(write.address, write.bytes);
  memory_.set_value(kMorePokes, 4, write.more ? 1 : 0);
  if (!write.emulated.empty()) emulated_[write.address] = write.emulated;
  writes.pop_front();
}

void Runner::at_sync_send(Side& side) {
  call_target_ = other(side).cpu.number;
  call_tsc_ = side.cpu.tsc + kCallLatencyTsc;
}

// Two rounds of the other cpu's loop: it has left the function it was in.
void Runner::at_grace_start(Side& side) {
  if (grace_for_ >= 0 || memory_.value(kGracePending, 4) == 0) return;
  grace_for_ = other(side).cpu.number;
  grace_loops_ = other(side).loops + 2;
}

void Runner::at_poke_record(Side& side) {
  auto& records = changes_[next_change_].records;
  const PokeRecord& poke = records.front();
  if (poke.old_bytes.empty()) memory_.write(poke.address, poke.new_bytes);
  record(side, perfio::TextPokeRecord{poke.address, poke.old_bytes, poke.new_bytes});
  records.pop_front();
}

void Runner::at_symbol_record(Side& side) {
  constexpr uint16_t kOutOfLine = 2;
  auto& symbols = changes_[next_change_].symbols;
  const SymbolRecord& symbol = symbols.front();
  record(side, perfio::KsymbolRecord{symbol.address, static_cast<uint32_t>(symbol.size_bytes), kOutOfLine, symbol.unregister, symbol.name});
  symbols.pop_front();
}

// Continues the trapped cpu as if it had executed the new instruction.
void Runner::at_emulate(Side& side) {
  const uint64_t frame_ip = side.cpu.trap_stack - kFrameIp, frame_stack = side.cpu.trap_stack - kFrameStack;
  const uint64_t site = memory_.value(frame_ip, 8) - 1;
  const std::vector<std::byte>& instruction = emulated_.at(site);
  uint64_t distance = 0;
  for (size_t i = instruction.size(); i-- > 1;) distance = distance << 8 | static_cast<uint64_t>(instruction[i]);
  const uint64_t behind = site + 5, target = behind + static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(distance)));
  const bool is_call = instruction.front() == std::byte{0xe8}, is_jump = instruction.front() == std::byte{0xe9};
  memory_.set_value(frame_ip, 8, is_call || is_jump ? target : behind);
  if (!is_call) return;
  const uint64_t stack = memory_.value(frame_stack, 8) - 8;
  memory_.set_value(stack, 8, behind);
  memory_.set_value(frame_stack, 8, stack);
}

void Runner::at_switch_out(Side& side) {
  const int32_t next = side.tasks[1 - side.current].tid;
  record(side, perfio::SwitchRecord{true, false, true, next, next});
}

void Runner::at_swap(Side& side) {
  side.tasks[side.current].stack = side.cpu.regs[rsp];
  side.current = 1 - side.current;
  side.cpu.regs[rsi] = side.tasks[side.current].stack;
}

void Runner::at_switch_in(Side& side) {
  const int32_t previous = side.tasks[1 - side.current].tid;
  record(side, perfio::SwitchRecord{false, false, true, previous, previous});
}

bool Runner::step(Side& side) {
  Cpu& cpu = side.cpu;
  PtStream& stream = *side.stream;
  stream.timing(cpu.tsc);
  stream.psb_if_due(cpu.ip, cpu.tsc);
  if (call_target_ == cpu.number && cpu.tsc >= call_tsc_ && cpu.interrupts) {
    call_target_ = -1;
    stream.event(cpu.ip, kernel_.at("asm_sysvec_call_function"));
    enter_interrupt(memory_, cpu, kernel_.at("asm_sysvec_call_function"));
    cpu.tsc += kTrapTsc;
    return true;
  }
  if (const auto hook = hooks_.find(cpu.ip); hook != hooks_.end()) (this->*hook->second)(side);
  constexpr size_t kMaxInstructionBytes = 15;
  std::vector<std::byte> bytes = memory_.copy(cpu.ip, kMaxInstructionBytes);
  const Step did = run_one(memory_, cpu, kernel_.at("asm_exc_int3"));
  if (did.did == Did::stuck) return false;
  if (did.did == Did::breakpoint) {
    stream.event(did.ip, cpu.ip);
    ++side.breakpoints;
    cpu.tsc += kTrapTsc;
    return emulated_.count(did.ip) != 0;
  }
  bytes.resize(did.length_bytes);
  side.truth.instruction(did.ip, bytes, cpu.tsc);
  if (did.did == Did::conditional) stream.conditional(did.taken);
  if (did.did == Did::indirect) stream.indirect(cpu.ip);
  cpu.tsc += kInstructionTsc;
  return true;
}

bool Runner::run() {
  for (Side& side : sides_) {
    record(side, perfio::ItraceStartRecord{side.tasks[0].tid, side.tasks[0].tid});
    side.stream->start(side.cpu.ip, side.cpu.tsc);
  }
  for (;;) {
    Side& side = sides_[0].cpu.tsc <= sides_[1].cpu.tsc ? sides_[0] : sides_[1];
    if (side.cpu.tsc >= end_tsc_) break;
    if (!step(side)) {
      (void)std::fprintf(stderr, "cpu %d is stuck at %llx\n", side.cpu.number, static_cast<unsigned long long>(side.cpu.ip));
      return false;
    }
    const uint64_t taken = side.pieces.empty() ? 0 : side.pieces.back().end_bytes;
    // A piece ends between two packets: hardware writes whole packets out before the ring is read, and perf 6.1 relies on it.
    if (side.stream->bytes().size() >= taken + kPieceBytes) side.pieces.push_back({side.stream->bytes().size(), side.cpu.tsc});
  }
  for (Side& side : sides_) {
    side.stream->stop(side.cpu.ip);
    side.pieces.push_back({side.stream->bytes().size(), side.cpu.tsc});
  }
  return true;
}

}  // namespace ptd::demo
