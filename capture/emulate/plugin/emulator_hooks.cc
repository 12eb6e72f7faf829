// Hooks of libc functions in the emulator: entries of its global offset table.
#include "capture/emulate/plugin/emulator_hooks.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

namespace ptd::emulate {
namespace {

using HostHandler = void (*)(int, siginfo_t*, void*);
constexpr int kSignals = 65;
constexpr int kPassedCode = -0x1000;  // added to a signal's code; those of the system are greater (asm-generic/siginfo.h)

DeathCallback g_on_death = nullptr;
JumpCallback g_on_jump = nullptr;
ThreadQuery g_runs_program = nullptr;
std::array<HostHandler, kSignals> g_host_handlers{};  // the emulator's
// Signals that were ignored when this program began, and that it has not set since. The emulator takes over most of them for itself.
std::atomic<uint64_t> g_inherited{0};
std::atomic<bool> g_program_runs{false};
// Signals whose disposition is changed for an exec, and what it was.
uint64_t g_changed = 0;
std::array<struct sigaction, kSignals> g_before_exec{};
// Signals whose disposition the emulator read when it began: those that exist for the program.
uint64_t g_read = 0;
// Signals that are caught in the emulator's place (catch_fatal()).
std::atomic<uint64_t> g_caught{0};
// Signals that were sent to this thread. Its storage exists from the thread's start: a signal handler uses it.
__attribute__((tls_model("initial-exec"))) thread_local uint64_t tl_sent = 0;
// The emulator has handled a signal since the flag was cleared. Known only if its sigprocmask() is replaced.
__attribute__((tls_model("initial-exec"))) thread_local bool tl_handled = false;
bool g_sees_handling = false;
// A signal that is caught in the emulator's place has reached this thread. 0: none.
__attribute__((tls_model("initial-exec"))) thread_local int tl_fatal = 0;

bool stops_only(int number) {
  return number == 0 || number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU || number == SIGCONT;
}

uint64_t bit_of(int number) { return number > 0 && number < kSignals ? uint64_t{1} << (number - 1) : 0; }

bool is_function(const struct sigaction& action) { return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN; }

void forget_inherited(int number) { (void)g_inherited.fetch_and(~bit_of(number)); }

// Signals of which a program dies unless it has a handler or ignores them.
bool is_fatal(int number) {
  return number > 0 && number < kSignals && number != SIGKILL && !stops_only(number) && number != SIGCHLD && number != SIGURG &&
         number != SIGWINCH;
}

// The emulator's handler, which it has for faults in any case.
HostHandler emulators_handler() { return g_host_handlers[SIGSEGV]; }

bool comes_from_instructions(int number) {
  return number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE || number == SIGTRAP;
}

// QEMU ends itself so (linux-user/signal.c, "dump_core_and_abort"); the program's own kill() does not pass through here.
int on_kill(pid_t pid, int number) {
  if (pid == getpid() && !stops_only(number)) g_on_death(number, comes_from_instructions(number) && (tl_sent & bit_of(number)) == 0);
  return ::kill(pid, number);
}

// QEMU's own threads block all signals but those of faults (util/qemu-thread-posix.c, "qemu_thread_create"), and its handler needs a thread
// of the program: it crashes if such a signal was sent while those had it blocked. Leaves the signal to the program's threads, with a code
// that a thread other than the first may send (rt_sigqueueinfo(2)).
bool pass_to_program(int number, const siginfo_t& info, ucontext_t& interrupted) {
  if (info.si_code > 0 || gettid() == getpid() || sigismember(&interrupted.uc_sigmask, SIGTERM) != 1 || g_runs_program()) return false;
  siginfo_t passed = info;
  passed.si_code += kPassedCode;
  sigaddset(&interrupted.uc_sigmask, number);
  return syscall(SYS_rt_sigqueueinfo, getpid(), number, &passed) == 0;
}

void on_host_signal(int number, siginfo_t* info, void* context) {
  if (info != nullptr && context != nullptr) {
    const int error = errno;
    if (info->si_code <= kPassedCode) info->si_code -= kPassedCode;
    const bool passed = pass_to_program(number, *info, *static_cast<ucontext_t*>(context));
    errno = error;
    if (passed) return;
  }
  if (info != nullptr && info->si_code <= 0) tl_sent |= bit_of(number);
  if (number <= 0 || number >= kSignals) return;
  if ((g_caught & bit_of(number)) != 0) tl_fatal = number;
  const HostHandler own = g_host_handlers[static_cast<size_t>(number)];
  const HostHandler handler = own != nullptr ? own : emulators_handler();
  if (handler != nullptr) handler(number, info, context);
}

// QEMU 7.2 catches all signals of which a program dies, and ends itself by kill(). QEMU 10 leaves those without a core dump to the system,
// which ends the process at once, so that the last instructions are not known. Its handler for the others serves these too: it lets the
// thread go to the main loop, which calls sigprocmask() before it handles the signal.
void catch_fatal(struct sigaction& action, int number) {
  if (action.sa_handler != SIG_DFL || !is_fatal(number) || emulators_handler() == nullptr) return;
  action.sa_sigaction = on_host_signal;
  action.sa_flags |= SA_SIGINFO;
  sigfillset(&action.sa_mask);
  g_caught |= bit_of(number);
}

[[noreturn]] void end_by(int number) {
  g_on_death(number, false);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  (void)::sigaction(number, &action, nullptr);
  (void)::kill(getpid(), number);
  sigset_t others;
  sigfillset(&others);
  sigdelset(&others, number);
  for (;;) sigsuspend(&others);
}

// The main loop blocks all signals, those of faults included, while it handles one (linux-user/signal.c, "process_pending_signals"). The
// program has not blocked the signal: the emulator blocks what the program does. QEMU 10 itself would remove the plugin's calls from the
// code of the other threads before it ends ("preexit_cleanup").
int on_sigprocmask(int how, const sigset_t* set, sigset_t* old) {
  const bool handles = how == SIG_SETMASK && set != nullptr && sigismember(set, SIGSEGV) == 1;
  if (handles) tl_handled = true;
  if (handles && tl_fatal != 0) {
    const int number = std::exchange(tl_fatal, 0);
    if ((g_caught & bit_of(number)) != 0) end_by(number);  // otherwise another thread has just set a handler
  }
  return ::sigprocmask(how, set, old);
}

// The emulator sets SA_SIGINFO also with SIG_IGN and SIG_DFL (linux-user/signal.c, "do_sigaction").
int on_sigaction(int number, const struct sigaction* action, struct sigaction* old) {
  if (number <= 0 || number >= kSignals) return ::sigaction(number, action, old);
  if (action != nullptr && g_program_runs) forget_inherited(number);
  HostHandler& handler = g_host_handlers[static_cast<size_t>(number)];
  const HostHandler before = handler;
  struct sigaction ours {};
  if (action == nullptr && !g_program_runs) g_read |= bit_of(number);
  if (action != nullptr) {
    ours = *action;
    g_caught &= ~bit_of(number);
    if ((action->sa_flags & SA_SIGINFO) != 0) {  // not the emulator's own end (linux-user/signal.c, "die_with_signal")
      if (is_function(*action)) {
        handler = action->sa_sigaction;
        ours.sa_sigaction = on_host_signal;
      } else {
        handler = nullptr;
        catch_fatal(ours, number);
      }
    }
  }
  const int result = ::sigaction(number, action != nullptr ? &ours : nullptr, old);
  if (result == 0 && old != nullptr && (old->sa_flags & SA_SIGINFO) != 0 && old->sa_sigaction == on_host_signal) old->sa_sigaction = before;
  return result;
}

[[noreturn]] void on_siglongjmp(sigjmp_buf target, int value) {
  g_on_jump();
  siglongjmp(target, value);
}

// Generated code belongs to no object that the linker knows, and has no unwind information: it is the last frame.
_Unwind_Reason_Code note_frame(_Unwind_Context* frame, void* generated) {
  int before_call = 0;
  const auto ip = static_cast<uintptr_t>(_Unwind_GetIPInfo(frame, &before_call));
  dl_find_object object{};
  *static_cast<bool*>(generated) = ip != 0 && _dl_find_object(reinterpret_cast<void*>(ip - (before_call == 0 ? 1 : 0)), &object) != 0;
  return *static_cast<bool*>(generated) ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

bool replace(void** slot, void* function) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) & ~(page_bytes - 1));
  if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  *slot = function;
  (void)mprotect(page, page_bytes, PROT_READ);
  return true;
}

/// What the dynamic section of a loaded program says of its calls into libraries.
struct CallTable {
  const ElfW(Rela) * entries = nullptr;
  size_t count = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
};

CallTable table_of(const ElfW(Dyn) * dynamic) {
  CallTable table;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const auto address = static_cast<uintptr_t>(dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_JMPREL) table.entries = reinterpret_cast<const ElfW(Rela)*>(address);
    if (dynamic->d_tag == DT_PLTRELSZ) table.count = dynamic->d_un.d_val / sizeof(ElfW(Rela));
    if (dynamic->d_tag == DT_SYMTAB) table.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
    if (dynamic->d_tag == DT_STRTAB) table.names = reinterpret_cast<const char*>(address);
  }
  if (table.entries == nullptr || table.symbols == nullptr || table.names == nullptr) table.count = 0;
  return table;
}

// The first object is the main program.
int hook_main_program(dl_phdr_info* info, size_t, void* hooked) {
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const CallTable table = table_of(reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
    for (size_t k = 0; k < table.count; ++k) {
      const char* name = table.names + table.symbols[ELF64_R_SYM(table.entries[k].r_info)].st_name;
      auto** slot = reinterpret_cast<void**>(info->dlpi_addr + table.entries[k].r_offset);
      if (std::strcmp(name, "kill") == 0) *static_cast<bool*>(hooked) = replace(slot, reinterpret_cast<void*>(on_kill));
      if (std::strcmp(name, "sigprocmask") == 0) g_sees_handling = replace(slot, reinterpret_cast<void*>(on_sigprocmask));
      if (std::strcmp(name, "sigaction") == 0) (void)replace(slot, reinterpret_cast<void*>(on_sigaction));
      if (std::strcmp(name, "siglongjmp") == 0 || std::strcmp(name, "__longjmp_chk") == 0)
        (void)replace(slot, reinterpret_cast<void*>(on_siglongjmp));
    }
  }
  return 1;
}

}  // namespace

bool hook_emulator(DeathCallback on_death, JumpCallback on_jump, ThreadQuery runs_program) {
  bool hooked = false;
  g_on_death = on_death;
  g_on_jump = on_jump;
  g_runs_program = runs_program;
  for (int number = 1; number < kSignals; ++number) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) g_inherited |= bit_of(number);
  }
  (void)dl_iterate_phdr(hook_main_program, &hooked);
  return hooked;
}

bool is_in_generated_code() {
  bool generated = false;
  (void)_Unwind_Backtrace(note_frame, &generated);
  return generated;
}

void forget_sent_signals() { tl_sent = 0; }

bool signal_was_sent(uint64_t number) { return number < kSignals && (tl_sent & bit_of(static_cast<int>(number))) != 0; }

bool signal_was_handled() { return std::exchange(tl_handled, false) || !g_sees_handling; }

void catch_fatal_signals() {
  for (int number = 1; number < kSignals; ++number) {
    struct sigaction now {};
    if ((g_read & bit_of(number)) == 0 || ::sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    catch_fatal(now, number);
    (void)::sigaction(number, &now, nullptr);
  }
}

// QEMU does not pass the program's disposition of these on to the system: it needs the first two for faults, and QEMU 10 sends the
// program's SIGABRT by another number.
void note_disposition(int number, bool ignored) {
  g_program_runs = true;
  if (number != SIGSEGV && number != SIGBUS && number != SIGABRT) return;
  forget_inherited(number);
  if (ignored) g_inherited |= bit_of(number);
}

void ignore_for_exec() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (int number = 1; number < kSignals; ++number) {
    if ((g_inherited & bit_of(number)) != 0 && ::sigaction(number, &ignore, &g_before_exec[static_cast<size_t>(number)]) == 0)
      g_changed |= bit_of(number);
  }
}

void exec_failed() {
  for (int number = 1; number < kSignals; ++number) {
    if ((g_changed & bit_of(number)) != 0) (void)::sigaction(number, &g_before_exec[static_cast<size_t>(number)], nullptr);
  }
  g_changed = 0;
}

}  // namespace ptd::emulate
