// Handles of the C API: opaque numbers that are looked up, so that a freed or foreign handle is an error and never an access.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/table/column.h"
#include "image/base/shrunk_files.h"
#include "ptdecode/ptdecode.h"
#include "ptdecode/recording.h"

namespace ptd::capi {

/// Strings that a recording's handles have given out. Any thread may call.
class StringPool {
 public:
  /// The same text, valid as long as the pool. U+FFFD replaces what is not UTF-8.
  [[nodiscard]] const char* keep(std::string_view text) {
    const std::lock_guard lock(mutex_);
    return strings_.insert(valid_utf8(text)).first->c_str();
  }

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> strings_;
};

/// What tells whether a path still names the same content.
struct FileStamp {
  uint64_t device = 0, inode = 0, size_bytes = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
/// Of a file, or of the file `data` in a directory of perf. All 0 for another directory, and for what is not there.
[[nodiscard]] FileStamp stamp_of(const std::string& path);

/// The object of a ptd_recording handle. Immutable once opened; shared by the handle and by every cursor and table made from it.
struct OpenedRecording {
  std::shared_ptr<const void> memory;  ///< what options.path names, of a recording from memory
  std::unique_ptr<const Recording> recording;
  OpenOptions options;  ///< with which it was opened
  FileStamp stamp;      ///< of options.path, from before it was opened
  mutable StringPool strings;
  uint64_t shrunk_before = shrunk_file_count();  ///< files that are known to be cut before it is opened
  /// Returns the error of a call that may have read zero bytes, because a file of this process became shorter since `shrunk_before`;
  /// nothing if none did. Without `sizes`, which costs a system call per file, only reads past the end are noticed. Any thread.
  [[nodiscard]] std::optional<Error> shrunk_error(bool sizes) const;
  /// Returns the error to report where a read failed with `error`: shrunk_error() if there is one, else `error`. Any thread.
  [[nodiscard]] Error cause_of(const Error& error) const;
  /// Returns the error of a call that reads options.path again: it is another file now, or has another content. Any thread.
  [[nodiscard]] std::optional<Error> replaced_error() const;
  /// recording->findings(), read at the first call. Throws Failure if a file became shorter before they were read. Any thread.
  [[nodiscard]] const std::vector<Finding>& findings() const;

 private:
  mutable std::mutex findings_mutex_;
  mutable std::optional<std::vector<Finding>> findings_;
};

/// The recording of a handle, null if the handle is NULL, freed or of another type. Any thread.
[[nodiscard]] std::shared_ptr<const OpenedRecording> find(const ptd_recording* handle);
/// Registers a recording; never null.
[[nodiscard]] ptd_recording* add(std::shared_ptr<const OpenedRecording> recording);
/// Frees the handle; false if it is not one.
bool remove(const ptd_recording* handle);

/// What a handle number is for.
enum class HandleType : uint8_t { none, recording, builder, cursor };

/// While it lives, this thread runs a callback of the operation of a handle: using or freeing that handle is PTD_ERROR_IN_USE, also from a
/// thread of the library while no call is in progress, which could end only after itself.
class CallbackScope {
 public:
  explicit CallbackScope(uintptr_t handle);
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

 private:
  uintptr_t outer_;
};

/// True in a callback of the operation of that handle. Any thread.
[[nodiscard]] bool in_callback_of(uintptr_t handle);

/// Registers an object; never 0. Any thread.
[[nodiscard]] uintptr_t add_handle(HandleType type, std::shared_ptr<void> object);
/// Frees the handle of an object that one thread uses at a time. PTD_ERROR_IN_USE: it is in use.
[[nodiscard]] ptd_code remove_handle(HandleType type, uintptr_t handle);

/// The object of a handle, for one thread at a time: from its construction to its destruction every other use of the handle is an error.
/// Costs one atomic compare and exchange, and one store.
class ExclusiveUse {
 public:
  ExclusiveUse(HandleType type, uintptr_t handle);
  ~ExclusiveUse();
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

  /// PTD_OK, PTD_ERROR_INVALID_HANDLE or PTD_ERROR_IN_USE.
  [[nodiscard]] ptd_code code() const { return code_; }
  /// With PTD_OK only.
  template <typename Object>
  [[nodiscard]] Object& object() const {
    return *static_cast<Object*>(object_);
  }

 private:
  void* slot_ = nullptr;
  void* object_ = nullptr;
  ptd_code code_ = PTD_ERROR_INVALID_HANDLE;
};

}  // namespace ptd::capi
