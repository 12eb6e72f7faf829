// Operations of the library that Python can interrupt, and their errors.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "ptdecode/ptdecode_plan.h"

namespace ptd_python {

namespace nb = nanobind;

inline constexpr auto kPoll = std::chrono::milliseconds(50);  // between two looks at signals and progress

inline nb::object error_type;  // ptdecode.Error, set by the package

/// Raises ptdecode.Error(code, name, message) and frees the message.
[[noreturn]] inline void raise(ptd_code code, char* message) {
  const std::string text = message != nullptr ? message : ptd_code_name(code);
  ptd_free(message);
  nb::object error = error_type(code, ptd_code_name(code), text);
  PyErr_SetObject(error_type.ptr(), error.ptr());
  throw nb::python_error();
}

/// Calls a function of the library, which gets the place of its message, and raises its error. The message is read after the call.
template <typename Call>
void check(const Call& call) {
  char* message = nullptr;
  const ptd_code code = call(&message);
  if (code != PTD_OK) raise(code, message);
}

/// Whether the system counts this thread as the first one of the process, also in a forked child. Any thread may have imported the module.
/// Limitation: in a program that starts the interpreter on another thread, no thread takes signals while it waits.
inline bool on_main_thread() { return syscall(SYS_gettid) == getpid(); }

/// Cancellation and progress of one operation. The callbacks of the library touch only atomics; Python is called from poll() alone.
struct Control {
  ptd_control control = PTD_INIT(ptd_control);
  std::atomic<bool> cancel = false;
  std::atomic<uint64_t> done = 0, total = 0;
  nb::object progress;  // called with (done, total); None: nothing

  explicit Control(nb::object progress_callback) : progress(std::move(progress_callback)) {
    control.user = this;
    control.cancelled = [](void* user) { return static_cast<Control*>(user)->cancel ? 1 : 0; };
    control.progress = [](void* user, uint64_t done_bytes, uint64_t total_bytes) {
      static_cast<Control*>(user)->total = total_bytes;
      static_cast<Control*>(user)->done = done_bytes;
    };
  }
  /// Whether this thread has signals to take or progress to report. Needs no GIL.
  [[nodiscard]] bool needs_polls() const { return on_main_thread() || progress.ptr() != Py_None; }
  /// For the garbage collector: from here on, no progress is reported.
  void forget_progress() { const nb::object released = std::exchange(progress, nb::none()); }
  /// With the GIL. False: the progress callback or, on the main thread, a signal handler raised; the exception is set.
  bool poll() {
    if (PyErr_CheckSignals() != 0) return false;
    if (progress.is_none() || total == 0) return true;
    PyObject* result =
        PyObject_CallFunction(progress.ptr(), "KK", static_cast<unsigned long long>(done), static_cast<unsigned long long>(total));
    Py_XDECREF(result);
    return result != nullptr;
  }
};

/// Runs `work` without the GIL. Where this thread has progress to report or signals to take, which the main thread does, the work runs on
/// another thread. If a callback or a signal handler raises, the work is cancelled, waited for, and the exception stays set. Returns false
/// in that case.
template <typename Work>
bool run(Control& control, const Work& work) {
  if (!control.needs_polls()) {
    const nb::gil_scoped_release unlocked;
    work();
    return true;
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false, good = true;
  std::thread worker;
  {
    const nb::gil_scoped_release unlocked;
    worker = std::thread([&] {
      work();
      const std::lock_guard lock(mutex);
      over = true;
      changed.notify_all();
    });
  }
  for (;;) {
    bool finished = false;
    {
      const nb::gil_scoped_release unlocked;
      std::unique_lock lock(mutex);
      finished = changed.wait_for(lock, kPoll, [&] { return over; });
    }
    if (good && !control.poll()) {
      good = false;
      control.cancel = true;
    }
    if (finished) break;
  }
  const nb::gil_scoped_release unlocked;
  worker.join();
  return good;
}

/// The same as check(), without the GIL: `call` gets the control of the operation, too. `discard` frees the result if Python interrupts it.
template <typename Call, typename Discard = void (*)()>
void run_checked(
    const Call& call, const Discard& discard = [] {}) {
  Control control{nb::none()};
  char* message = nullptr;
  ptd_code code = PTD_OK;
  if (!run(control, [&] { code = call(control.control, &message); })) {
    ptd_free(message);
    discard();
    throw nb::python_error();
  }
  if (code != PTD_OK) raise(code, message);
}

}  // namespace ptd_python
