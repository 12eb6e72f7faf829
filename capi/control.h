// Control: the caller's callbacks of a long operation.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "capi/handle.h"
#include "capi/message.h"
#include "ptdecode/ptdecode.h"

namespace ptd::capi {

/// Calls the callbacks of a ptd_control, one at a time. Once cancelled, it stays so. Any thread.
class Control {
 public:
  /// False: the size of the struct is wrong. Null: there are no callbacks.
  [[nodiscard]] bool set(const ptd_control* control) { return control == nullptr || read_struct(control, control_); }

  /// The handle whose operation it controls. Call before the operation begins.
  void set_owner(uintptr_t handle) { owner_ = handle; }

  [[nodiscard]] uintptr_t owner() const { return owner_; }

  /// Names the operation where it has no handle.
  [[nodiscard]] uintptr_t number() const { return reinterpret_cast<uintptr_t>(this); }

  [[nodiscard]] bool cancelled() {
    if (control_.cancel_flag != nullptr && __atomic_load_n(control_.cancel_flag, __ATOMIC_RELAXED) != 0) cancelled_ = true;
    if (cancelled_ || control_.cancelled == nullptr) return cancelled_;
    const std::lock_guard lock(mutex_);
    const CallbackScope scope(owner_);
    if (!cancelled_ && control_.cancelled(control_.user) != 0) cancelled_ = true;
    return cancelled_;
  }
  void check() {
    if (cancelled()) throw Cancelled();
  }
  /// Calls the caller's `progress` if `done_bytes` has grown by a MiB, or is all.
  void progress(uint64_t done_bytes, uint64_t total_bytes) {
    if (control_.progress == nullptr) return;
    const std::lock_guard lock(mutex_);
    total_bytes_ = total_bytes;
    if (done_bytes < told_bytes_ + kProgressBytes && (done_bytes != total_bytes || told_bytes_ == total_bytes)) return;
    told_bytes_ = done_bytes;
    const CallbackScope scope(owner_);
    control_.progress(control_.user, done_bytes, total_bytes);
  }
  /// The operation has ended: `progress` is called with the last total, unless that is what it was called with.
  void finish() { progress(total_bytes_, total_bytes_); }

 private:
  static constexpr uint64_t kProgressBytes = 1U << 20;
  ptd_control control_ = PTD_INIT(ptd_control);
  std::mutex mutex_;
  std::atomic<bool> cancelled_{false};
  uint64_t told_bytes_ = 0, total_bytes_ = 0;
  uintptr_t owner_ = 0;  ///< 0: none
};

}  // namespace ptd::capi
