// The QEMU plugin for user mode: passes QEMU's callbacks to UserProcess.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <sstream>

#include "capture/emulate/plugin/emulator_hooks.h"
#include "capture/emulate/plugin/kept_file.h"
#include "capture/emulate/plugin/mapped_file_id.h"
#include "capture/emulate/plugin/qemu_api.h"
#include "capture/emulate/plugin/user_process.h"
#include "capture/emulate/shared/refused_calls.h"
#include "capture/emulate/shared/user_exec.h"
#include "image/source/build_id_note.h"

#define PTD_EXPORT __attribute__((visibility("default")))

namespace ptd::emulate {
namespace {

// Version 2 of the plugin interface removed functions and version 3 changed qemu_plugin_insn_data() (qemu-plugin.h, "Versioning plugins").
// QEMU checks qemu_plugin_version before it calls the plugin, so the version is known from the functions that QEMU has.
constexpr int kFirstVersion = 1, kCopyVersion = 3, kNewestVersion = 4;
bool g_copies_insns = false;

int version_of_this_qemu() {
  if (dlsym(RTLD_DEFAULT, "qemu_plugin_read_memory_vaddr") != nullptr) return kNewestVersion;
  return dlsym(RTLD_DEFAULT, "qemu_plugin_n_vcpus") != nullptr ? kFirstVersion : kFirstVersion + 1;
}

/// System calls that change what is traced.
enum Call : uint8_t {
  kOther,
  kMmap,
  kMprotect,
  kMunmap,
  kRtSigaction,
  kMremap,
  kClone,
  kFork,
  kVfork,
  kExecve,
  kPrctl,
  kExecveat,
  kExitGroup,
};
struct CallNumber {
  int64_t number;
  Call call;
};
// linux "arch/x86/entry/syscalls/syscall_64.tbl"; "include/uapi/asm-generic/unistd.h", which aarch64 has.
constexpr CallNumber kCallsX86_64[] = {{9, kMmap},    {10, kMprotect}, {11, kMunmap},    {13, kRtSigaction},
                                       {25, kMremap}, {56, kClone},    {57, kFork},      {58, kVfork},
                                       {59, kExecve}, {157, kPrctl},   {322, kExecveat}, {231, kExitGroup}};
constexpr CallNumber kCallsAarch64[] = {{222, kMmap},  {226, kMprotect}, {215, kMunmap}, {134, kRtSigaction}, {216, kMremap},
                                        {220, kClone}, {221, kExecve},   {167, kPrctl},  {281, kExecveat},    {94, kExitGroup}};
constexpr uint64_t kMapAnonymous = 0x20, kPrSetName = 15;
constexpr size_t kCommBytes = 16;

/// Where a signal handler finds its arguments: guest registers at the start of QEMU's CPU state, in words (target/i386 "CPUX86State":
/// regs[16] first; target/arm "CPUARMState": sixteen registers of 32 bits, then xregs), and the frame of a signal (linux "struct
/// rt_sigframe": of x86-64 a return address, ucontext, siginfo; of aarch64 siginfo, ucontext).
struct SignalFrame {
  int stack_pointer, first_argument;
  bool has_restorer;
  uint64_t number, stack, place, siginfo;  // in the frame: first argument, stack pointer and instruction that were interrupted
  int link;                                // aarch64: the register with the return address,
  uint64_t link_before;                    // and what was interrupted has in it, in the frame
};
/// The next instruction, in words: after regs[16]; after regs and xregs.
constexpr size_t kProgramCounterX86_64 = 16, kProgramCounterAarch64 = 8 + 32;
constexpr SignalFrame kFrameX86_64{4, 7, true, 8 + 40 + 8 * 8, 8 + 40 + 15 * 8, 8 + 40 + 16 * 8, 8 + 40 + 256 + 8, 0, 0};
constexpr uint64_t kArmContext = 128 + 176;  // struct sigcontext: fault address, x0 .. x30, sp, pc
constexpr SignalFrame kFrameAarch64{
    8 + 31, 8, false, kArmContext + 8, kArmContext + 8 + 31 * 8, kArmContext + 8 + 32 * 8, 0, 8 + 30, kArmContext + 8 + 30 * 8};
/// Where an aarch64 handler returns to: mov x8, #__NR_rt_sigreturn; svc #0. Of the emulator, of the vdso or of a C library.
constexpr std::array<uint32_t, 2> kSigreturnAarch64{0xd2801168, 0xd4000001};
constexpr uint64_t kSiginfoCode = 8;

UserProcess g_process;
EmulatorCommand g_command;

bool is_aarch64() { return g_command.machine == kMachineAarch64; }
const SignalFrame& signal_frame() { return is_aarch64() ? kFrameAarch64 : kFrameX86_64; }

Call call_of(int64_t number) {
  const std::span<const CallNumber> calls = is_aarch64() ? std::span<const CallNumber>(kCallsAarch64) : std::span(kCallsX86_64);
  for (const CallNumber& call : calls) {
    if (call.number == number) return call.call;
  }
  return kOther;
}

// Reads the program's memory; false where there is none.
bool peek(uint64_t address, void* to, size_t bytes) {
  const iovec local{to, bytes}, remote{reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

template <class T>
bool peek(uint64_t address, T& value) {
  return peek(address, &value, sizeof value);
}

std::string peek_text(uint64_t address, size_t most) {
  std::string text;
  char c = 0;
  while (text.size() < most && peek(address + text.size(), c) && c != 0) text += c;
  return text;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Where this shared object lies.
std::string plugin_path() {
  Dl_info info{};
  return dladdr(&g_process, &info) != 0 && info.dli_fname != nullptr ? std::filesystem::absolute(info.dli_fname).string() : std::string();
}

/// Returns whether the processor raises the signal, at an instruction. Source: [Linux] arch/x86/kernel/traps.c.
bool is_fault(uint64_t number) {
  return number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE || number == SIGTRAP;
}

/// Reads the frame of a signal for `handler`; `number` is the handler's first argument, `link` its return address if that is in a register.
/// False if it is none. Without SA_SIGINFO the frame does not say whether the processor raised the signal or a process sent it: the
/// emulator's own signals do, unless the program had it blocked meanwhile.
bool read_frame(uint64_t frame, uint64_t handler, uint64_t number, uint64_t link, AsyncEvent& event) {
  const SignalFrame& form = signal_frame();
  uint64_t returns_to = 0;
  int32_t code = 0, told = 0;
  std::array<uint32_t, 2> returns{};
  const bool is_frame = form.has_restorer
                            ? peek(frame, returns_to) && g_process.is_restorer(returns_to)
                            : (peek(link, returns) && returns == kSigreturnAarch64) || (link != 0 && g_process.is_restorer(link));
  if (!is_frame || !peek(frame + form.place, event.ip) || !peek(frame + form.siginfo, told) ||
      !peek(frame + form.siginfo + kSiginfoCode, code))
    return false;
  event.inside =
      is_fault(number) && (g_process.has_siginfo(handler) ? code > 0 && told == static_cast<int32_t>(number) : !signal_was_sent(number));
  return true;
}

/// True if the block is a signal handler that was just entered; `event` says where the signal came. Of several signals that came at once
/// the handlers of all but the last have not run yet: each frame lies on the one before, and the first says where the program was.
bool signal_entry(const Block& entered, const uint64_t* registers, const Block* current, AsyncEvent& event) {
#if defined(__x86_64__)
  constexpr int kMostSignals = 64;
  const SignalFrame& form = signal_frame();
  uint64_t frame = registers[form.stack_pointer];
  if (!read_frame(frame, entered.ip, registers[form.first_argument], registers[form.link], event)) return false;
  for (int i = 0; i < kMostSignals && g_process.is_handler(event.ip) && (current == nullptr || current->ip != event.ip); ++i) {
    const uint64_t handler = event.ip;
    uint64_t below = 0, number = 0, link = 0;
    if (!peek(frame + form.stack, below) || !peek(frame + form.number, number) || !peek(frame + form.link_before, link) ||
        !read_frame(below, handler, number, link, event))
      break;
    frame = below;
  }
  return true;
#else
  (void)entered, (void)registers, (void)current, (void)event;
  return false;
#endif
}

// With a clock of work: the block that was entered last ran, up to where it was left.
void pass_work(UserThread& thread) {
  if (!work_clock().is_open() || thread.tracer.current() == nullptr) return;
  const Block& block = *thread.tracer.current();
  work_clock().pass(block, thread.left_at != 0 ? static_cast<unsigned>(block.index_of(thread.left_at)) : block.insns);
}

// Known code was changed: a PSB+ just before that moment and one just after it. Where both are one moment, one PSB+: two with the same time
// and nothing between them are what a doubled segment looks like.
void enter_dated(UserThread& thread, const Block& block) {
  const uint64_t first = thread.sync_first, last = thread.sync_last;
  thread.sync_first = thread.sync_last = 0;
  thread.encoder.request_psb();
  thread.tracer.enter(block, [first] { return first; });
  if (first == last) return;
  thread.encoder.set_time(last);
  thread.tracer.sync(block);
}

// The same where a handler begins: the signal comes before the change.
void enter_dated_handler(UserThread& thread, const Block& block, const AsyncEvent& event) {
  const uint64_t first = thread.sync_first, last = thread.sync_last;
  thread.sync_first = thread.sync_last = 0;
  thread.tracer.leave_async(event, first);
  if (first != last) thread.tracer.sync_outside();
  thread.encoder.request_psb();
  thread.tracer.enter(block, [last] { return last; });
}

void enter_plain(UserThread& thread, const Block& block) {
  if (block.ip == thread.left_at) thread.tracer.restart(block.ip, read_clock());
  return thread.sync_first != 0 ? enter_dated(thread, block) : thread.tracer.enter(block, read_clock);
}

void enter_watched(UserThread& thread, const Block& block, const uint64_t* registers) {
  AsyncEvent event;
  const bool dated = thread.sync_first != 0;
  // A handler may jump to another one, with its own frame.
  if (!signal_was_handled() || !signal_entry(block, registers, thread.tracer.current(), event)) return enter_plain(thread, block);
  event.inside = event.inside || event.ip == thread.left_at;
  forget_sent_signals();
  if (dated) return enter_dated_handler(thread, block, event);
  thread.tracer.enter_handler(block, event, read_clock());
}

void describe_map(UserThread& thread, uint64_t now, uint64_t address) {
  const auto& a = thread.call_args;
  if ((a[3] & kMapAnonymous) != 0) {
    if ((a[2] & kProtExec) != 0) {
      thread.event(now, "map",
                   std::to_string(address) + ' ' + std::to_string(a[1]) + " 0 0 0 0 " + std::to_string(a[2] & 7) + ' ' + hex_of("//anon"));
    } else {
      thread.event(now, "unmap", std::to_string(address) + ' ' + std::to_string(a[1]));
    }
    return;
  }
  // The host joins neighbours of one file, so the place is looked for inside.
  for (const std::string& map : file_maps()) {
    const MappedFileLine file(map);
    if (address < file.start || address >= file.start + file.size_bytes) continue;
    const auto fd = static_cast<int>(a[4]);
    std::ostringstream text;
    text << address << ' ' << a[1] << ' ' << file.offset_bytes + (address - file.start) << ' ' << file.major << ' ' << file.minor << ' '
         << file.inode << ' ' << (a[2] & 7) << ' ' << hex_of(file.path) << ' ' << hex_of(read_build_id(fd)) << ' '
         << hex_of(keep_unnamed(g_command.folder, file, {"/proc/self/fd/" + std::to_string(fd)})) << ' ' << written_at_ns(fd);
    thread.event(now, "map", text.str());
    if ((a[2] & kProtExec) == 0) return;
    g_process.note_file(address, a[1], (a[2] & kProtWrite) != 0);
    return g_process.show_file(address, a[1]);
  }
}

// Whether this process, or the one that it was forked from, has not told this text yet. Without a lock, which a fork could leave locked.
bool is_new(const std::string& text) {
  static std::array<std::atomic<uint64_t>, 512> told;
  const uint64_t key = std::hash<std::string>()(text) | 1;
  for (std::atomic<uint64_t>& slot : told) {
    uint64_t known = 0;
    if (slot.compare_exchange_strong(known, key)) return true;
    if (known == key) return false;
  }
  return false;
}

void tell_refused(UserThread& thread, int64_t number, int64_t result) {
  const std::string call = refused_call({g_command.machine, number, thread.call_args, result});
  if (!call.empty() && is_new(call)) thread.event(read_clock(), "call_refused", hex_of(program_path()) + ' ' + hex_of(call));
}

void after_call(UserThread& thread, Call call, int64_t result) {
  const auto& a = thread.call_args;
  if (work_clock().is_open()) work_clock().pass(kWorkTicksOfCall);
  if (call == kExecve || call == kExecveat) {  // it failed
    exec_failed();
    g_process.release();
  }
  if (result < 0 && result > -4096) return;
  const uint64_t now = read_clock();
  constexpr uint64_t kWriteAndExec = kProtWrite | kProtExec;
  if ((call == kMmap || call == kMprotect) && (a[2] & kWriteAndExec) == kWriteAndExec) g_process.note_writable_code();
  switch (call) {
    case kMmap:
      return describe_map(thread, now, static_cast<uint64_t>(result));
    case kMprotect:
      if ((a[2] & kProtWrite) != 0) g_process.note_writable(a[0], a[1]);
      if ((a[2] & kProtExec) == 0) return;
      thread.event(now, "exec_prot", std::to_string(a[0]) + ' ' + std::to_string(a[1]) + ' ' + std::to_string(a[2] & 7));
      return g_process.show_file(a[0], a[1]);
    case kMunmap:
      return thread.event(now, "unmap", std::to_string(a[0]) + ' ' + std::to_string(a[1]));
    case kClone:
      if ((a[0] & CLONE_THREAD) != 0) thread.event(now, "cloned", std::to_string(result) + ' ' + std::to_string(thread.called_at));
      return;
    case kMremap:
      return thread.event(now, "move",
                          std::to_string(a[0]) + ' ' + std::to_string(a[1]) + ' ' + std::to_string(result) + ' ' + std::to_string(a[2]));
    default:
      return;
  }
}

void on_sigaction_call(uint64_t number, uint64_t action) {
  struct {
    uint64_t handler, flags, restorer;
  } wanted{};
  if (action == 0 || !peek(action, wanted)) return;
  note_disposition(static_cast<int>(number), wanted.handler == 1);
  if (wanted.handler > 1) g_process.watch_handler(wanted.handler, wanted.restorer, (wanted.flags & SA_SIGINFO) != 0);
}

// Pointers to text, up to the one that is null. False where the program's memory ends: the system refuses such a list.
bool peek_list(uint64_t address, std::vector<std::string>& list) {
  constexpr size_t kMost = size_t{1} << 20, kMostText = size_t{128} << 10;  // linux "MAX_ARG_STRLEN"
  for (; address != 0 && list.size() < kMost; address += sizeof(uint64_t)) {
    uint64_t pointer = 0;
    if (!peek(address, pointer)) return false;
    if (pointer == 0) return true;
    char first = 0;
    if (!peek(pointer, first)) return false;
    list.push_back(peek_text(pointer, kMostText));
  }
  return address == 0;
}

// The target that /proc/N/exe has without the emulator: the program that process N runs. "" if N is not another emulator of this recording.
std::string traced_program(const std::string& given) {
  int pid = 0, used = 0;
  if (given == "/proc/self/exe" || given == "/proc/thread-self/exe") return program_path();
  if (std::sscanf(given.c_str(), "/proc/%d/exe%n", &pid, &used) != 1 || used != static_cast<int>(given.size())) return {};
  if (pid == getpid()) return program_path();
  std::error_code error;
  if (std::filesystem::read_symlink(given, error).string() != g_command.qemu) return {};
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::vector<std::string> words;
  for (std::string word; words.size() < 6 && std::getline(file, word, '\0');) words.push_back(word);
  if (words.size() < 4) return {};
  return words[3] == "-0" ? (words.size() > 5 ? words[5] : "") : words[3];
}

// The code executed so far belongs to the old name: a PSB+ dates it, as where tracing is switched off and on.
void rename_thread(UserThread& thread, uint64_t now, const char* kind, const std::string& name) {
  thread.event(now, kind, hex_of(name.substr(0, kCommBytes - 1)));
  thread.encoder.set_time(now);
  thread.tracer.sync_outside();
  thread.publish();
}

void on_exec(UserThread& thread, const std::string& given, uint64_t argv, uint64_t envp) {
  int fd = -1, used = 0;
  std::string path = traced_program(given);
  if (path.empty() && std::sscanf(given.c_str(), "/proc/self/fd/%d%n", &fd, &used) == 1 && used == static_cast<int>(given.size()))
    path = exec_path_of(fd, "");
  if (path.empty()) path = given;
  const ExecKind kind = exec_kind(path, g_command.machine);
  ignore_for_exec();
  const uint64_t now = read_clock();
  if (kind == ExecKind::foreign) thread.event(now, "escaped", hex_of(path));
  if (kind == ExecKind::foreign) (void)g_process.hold_others(&thread);
  std::vector<std::string> arguments, environment;
  if (kind != ExecKind::emulated || !peek_list(argv, arguments) || !peek_list(envp, environment)) return;
  (void)g_process.can_record_exec();
  (void)g_process.hold_others(&thread);
  rename_thread(thread, now, "exec", file_name(path));
  if (work_clock().is_open()) work_clock().pass(kWorkTicksOfCall);  // the next program's trace begins later than this one's ends
  exec_emulated(g_command, path, std::move(arguments), reinterpret_cast<char* const*>(envp));
  thread.event(read_clock(), "exec_failed", "");
  g_process.release();
}

// Threads that were stopped never leave the emulator's code, which would wait for them: the process ends here.
void on_exit_group(UserThread& thread, int status) {
  if (g_process.hold_others(&thread)) syscall(SYS_exit_group, status);
}

void before_call(UserThread& thread, int64_t number, const uint64_t* a) {
  pass_work(thread);
  const uint64_t now = read_clock();
  thread.tracer.leave(now);
  thread.publish();
  thread.call = number;
  thread.called_at = now;
  thread.left_at = 0;
  std::copy(a, a + 6, thread.call_args.begin());
  switch (call_of(number)) {
    case kRtSigaction:
      return on_sigaction_call(a[0], a[1]);
    case kExecve:
      return on_exec(thread, peek_text(a[0], 4096), a[1], a[2]);
    case kExecveat: {
      const std::string path = exec_path_of(static_cast<int>(a[0]), peek_text(a[1], 4096));
      return on_exec(thread, path, a[2], a[3]);
    }
    case kExitGroup:
      return on_exit_group(thread, static_cast<int>(a[0]));
    case kPrctl:
      if (char first = 0; a[0] == kPrSetName && peek(a[1], first)) rename_thread(thread, now, "comm", peek_text(a[1], kCommBytes));
      return;
    default:
      return;
  }
}

// --- QEMU's side ---

void on_translation(qemu_plugin_id_t, qemu_plugin_tb* tb);

void on_syscall(qemu_plugin_id_t, unsigned vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5,
                uint64_t a6, uint64_t, uint64_t) {
  UserThread* thread = g_process.thread(vcpu);
  if (thread == nullptr) return;
  const uint64_t arguments[6] = {a1, a2, a3, a4, a5, a6};
  before_call(*thread, number, arguments);
}

void on_syscall_return(qemu_plugin_id_t, unsigned vcpu, int64_t number, int64_t result) {
  const Call call = call_of(number);
  const bool forks = call == kFork || call == kVfork || call == kClone;
  if (forks && result == 0 && getpid() != g_process.pid()) return g_process.become_child(vcpu);
  UserThread* thread = g_process.thread(vcpu);
  if (thread == nullptr) return;
  tell_refused(*thread, number, result);
  after_call(*thread, call, result);
}

void on_vcpu_exit(qemu_plugin_id_t, unsigned vcpu) { g_process.remove_thread(vcpu); }

size_t program_counter() { return is_aarch64() ? kProgramCounterAarch64 : kProgramCounterX86_64; }
void on_death(int number, bool fault) { g_process.die_by_signal(number, fault, program_counter()); }
void on_jump() { UserProcess::note_jump(program_counter()); }

}  // namespace
}  // namespace ptd::emulate

extern "C" {

/// A block begins. `registers`: QEMU's CPU state, which generated code holds in a register (TCG_AREG0) while it calls.
__attribute__((used)) void ptd_block(unsigned vcpu, ptd::emulate::Block* block, const uint64_t* registers) {
  using namespace ptd::emulate;
  UserThread* thread = g_process.thread(vcpu);
  if (thread == nullptr) return;
  thread->registers = registers;
  pass_work(*thread);
  if (block->watched) {
    if (block->stale) g_process.entered_stale(*thread, *block);
    enter_watched(*thread, *block, registers);
    thread->left_at = 0;
  } else if ((thread->sync_first | thread->left_at) != 0) {
    enter_plain(*thread, *block);
    thread->left_at = 0;
  } else {
    thread->tracer.enter(*block, read_clock);
  }
  thread->publish();
  if (g_process.is_holding()) g_process.wait_for_release(*thread);
}

#if defined(__x86_64__)
void ptd_block_entry(unsigned vcpu, void* block);
asm(".text\n.globl ptd_block_entry\n.hidden ptd_block_entry\n.type ptd_block_entry,@function\n"
    "ptd_block_entry:\n  mov %rbp, %rdx\n  jmp ptd_block@PLT\n");
#else
void ptd_block_entry(unsigned vcpu, void* block) { ptd_block(vcpu, static_cast<ptd::emulate::Block*>(block), nullptr); }
#endif

PTD_EXPORT extern int qemu_plugin_version;
int qemu_plugin_version = ptd::emulate::version_of_this_qemu();  // initialized while QEMU loads the plugin

PTD_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc, char** argv);
int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc, char** argv) {
  using namespace ptd::emulate;
  if (info->version.cur < kFirstVersion || info->version.min > kNewestVersion) {
    (void)std::fprintf(stderr,
                       "ptdecode: this QEMU has versions %d to %d of the plugin interface; supported: %d to %d (qemu-user 7.2 to 10.0)\n",
                       info->version.min, info->version.cur, kFirstVersion, kNewestVersion);
    return 1;
  }
  g_copies_insns = info->version.cur >= kCopyVersion;
  const bool x86 = std::strcmp(info->target_name, "x86_64") == 0, arm = std::strcmp(info->target_name, "aarch64") == 0;
  if (info->system_emulation || (!x86 && !arm)) {
    (void)std::fprintf(stderr, "ptdecode: this plugin is for qemu-x86_64 and qemu-aarch64\n");
    return 1;
  }
  constexpr const char kFolder[] = "folder=";
  if (argc != 1 || std::strncmp(argv[0], kFolder, sizeof kFolder - 1) != 0) {
    (void)std::fprintf(stderr, "ptdecode: only 'ptdecode record --emulate' can start this plugin\n");
    return 1;
  }
  g_command.folder = argv[0] + sizeof kFolder - 1;
  std::error_code error;
  g_command.qemu = std::filesystem::read_symlink("/proc/self/exe", error).string();
  g_command.plugin = plugin_path();
  g_command.machine = arm ? kMachineAarch64 : kMachineX86_64;
  // The emulator has stopped the other threads by then ("fork_start").
  (void)pthread_atfork([] { g_process.note_fork(); }, nullptr, nullptr);
  (void)hook_emulator(on_death, on_jump, [] { return UserProcess::current_thread() != nullptr; });
  g_process.start(g_command.folder, arm ? ptd::ExecMode::a64 : ptd::ExecMode::bits64);
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
  qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
  qemu_plugin_register_vcpu_syscall_ret_cb(id, on_syscall_return);
  qemu_plugin_register_vcpu_exit_cb(id, on_vcpu_exit);
  return 0;
}
}

namespace ptd::emulate {
namespace {

/// The page of vsyscalls (arch/x86/include/uapi/asm/vsyscall.h). The emulator has no code there and does a vsyscall itself: QEMU 7.2
/// translates an instruction of 0 bytes there, QEMU 10 one of 1 byte, whose data it cannot read.
constexpr uint64_t kVsyscallPage = 0xffffffffff600000;
bool has_no_code(const qemu_plugin_tb* tb, size_t count) {
  return count == 1 &&
         ((qemu_plugin_tb_vaddr(tb) & ~uint64_t{0xfff}) == kVsyscallPage || qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, 0)) == 0);
}

// On a processor the page of vsyscalls cannot be executed: a fault, and the kernel returns to the caller.
void on_no_code(unsigned vcpu, void* address) {
  UserThread* thread = g_process.thread(vcpu);
  if (thread == nullptr) return;
  thread->tracer.leave_async({reinterpret_cast<uint64_t>(address), false}, read_clock());
  thread->publish();
}

void on_translation(qemu_plugin_id_t, qemu_plugin_tb* tb) {
  constexpr size_t kMostInsnBytes = 16;
  [[maybe_unused]] static const bool caught = (catch_fatal_signals(), true);  // QEMU has its handlers by now
  thread_local std::vector<SeenInsn> insns;
  thread_local std::vector<std::array<std::byte, kMostInsnBytes>> copies;
  insns.clear();
  const size_t count = qemu_plugin_tb_n_insns(tb);
  if (has_no_code(tb, count)) {
    return qemu_plugin_register_vcpu_tb_exec_cb(tb, on_no_code, QEMU_PLUGIN_CB_NO_REGS, reinterpret_cast<void*>(qemu_plugin_tb_vaddr(tb)));
  }
  copies.resize(std::max(copies.size(), count));
  for (size_t i = 0; i < count; ++i) {
    const qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
    const size_t bytes = std::min(qemu_plugin_insn_size(insn), kMostInsnBytes);
    if (g_copies_insns) (void)reinterpret_cast<CopyInsnData> (&qemu_plugin_insn_data)(insn, copies[i].data(), bytes);
    insns.push_back({g_copies_insns ? copies[i].data() : reinterpret_cast<InsnData>(&qemu_plugin_insn_data)(insn), bytes});
  }
  Block* block = g_process.translated(qemu_plugin_tb_vaddr(tb), insns);
  if (block != nullptr) qemu_plugin_register_vcpu_tb_exec_cb(tb, ptd_block_entry, QEMU_PLUGIN_CB_NO_REGS, block);
}

}  // namespace
}  // namespace ptd::emulate
