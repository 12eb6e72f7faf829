// Hooks of C library functions that QEMU calls: its plugin interface has no callback for a program that dies.
#pragma once

#include <cstdint>

namespace ptd::emulate {

/// Called in the dying thread just before QEMU ends its own process by signal `number`, which the program has no handler for. `fault`: an
/// instruction of the program raised it; otherwise it was sent.
using DeathCallback = void (*)(int number, bool fault);
/// Called in a thread that jumps out of what it is doing, to the emulator's main loop.
using JumpCallback = void (*)();
/// Returns whether the calling thread is one of the program's. Called in signal handlers.
using ThreadQuery = bool (*)();

/// Replaces kill(), sigaction(), sigprocmask() and siglongjmp() in the tables through which the main program calls the C library. False if
/// it does not call kill() so: programs that die are then recorded up to the block that they died in.
bool hook_emulator(DeathCallback on_death, JumpCallback on_jump, ThreadQuery runs_program);
/// Returns whether the thread is in code that the emulator generated, or in a function or signal handler that was called from there.
[[nodiscard]] bool is_in_generated_code();
/// The program's handler of a signal begins: what was sent to this thread before has arrived.
void forget_sent_signals();
/// Returns whether signal `number` was sent to this thread since then.
[[nodiscard]] bool signal_was_sent(uint64_t number);
/// Returns whether the emulator has handled a signal in this thread since the last call, or that is not known.
[[nodiscard]] bool signal_was_handled();

/// The program begins: lets the emulator catch the signals of which the program dies, unless it does so already.
void catch_fatal_signals();
/// The program sets the disposition of signal `number`.
void note_disposition(int number, bool ignored);
/// Ignores, just before an exec, the signals that the program ignores: exec keeps only what the system ignores, and the emulator has
/// handlers for most signals that were ignored when the program began.
void ignore_for_exec();
/// Undoes ignore_for_exec().
void exec_failed();

}  // namespace ptd::emulate
