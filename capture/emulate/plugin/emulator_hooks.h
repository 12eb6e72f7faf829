// Hooks of C library functions that QEMU calls: its plugin interface has no callback for a program that dies.
#pragma once

namespace ptd::emulate {

/// Called in the dying thread just before QEMU ends its own process by signal `number`, which the program has no handler for. `fault`: an
/// instruction of the program raised it; otherwise it was sent.
using DeathCallback = void (*)(int number, bool fault);

/// Replaces kill() and sigaction() in the tables through which the main program calls the C library. False if it does not call them so:
/// programs that die are then recorded up to the block that they died in.
bool hook_emulator(DeathCallback on_death);
/// The program's handler of a signal begins: what was sent to this thread before has arrived.
void forget_sent_signals();

/// The program sets the disposition of signal `number`.
void note_disposition(int number, bool ignored);
/// Ignores, just before an exec, the signals that the program ignores: exec keeps only what the system ignores, and the emulator has handlers
/// for most signals that were ignored when the program began.
void ignore_for_exec();
/// Undoes ignore_for_exec().
void exec_failed();

}  // namespace ptd::emulate
