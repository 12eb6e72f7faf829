// Handles of the C API: see handle.h.
#include "capi/handle.h"

#include <map>
#include <mutex>

namespace ptd::capi {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<uintptr_t, std::shared_ptr<const OpenedRecording>> recordings;
  uintptr_t next = 1;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

uintptr_t number_of(const ptd_recording* handle) { return reinterpret_cast<uintptr_t>(handle); }

}  // namespace

std::shared_ptr<const OpenedRecording> find(const ptd_recording* handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto at = all.recordings.find(number_of(handle));
  return at == all.recordings.end() ? nullptr : at->second;
}

ptd_recording* add(std::shared_ptr<const OpenedRecording> recording) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.recordings.emplace(all.next, std::move(recording));
  return reinterpret_cast<ptd_recording*>(all.next++);
}

bool remove(const ptd_recording* handle) {
  Registry& all = registry();
  std::shared_ptr<const OpenedRecording> last;  // destroyed after the lock is released
  const std::lock_guard lock(all.mutex);
  const auto at = all.recordings.find(number_of(handle));
  if (at == all.recordings.end()) return false;
  last = std::move(at->second);
  all.recordings.erase(at);
  return true;
}

}  // namespace ptd::capi
