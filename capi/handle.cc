// Handles of the C API: see handle.h.
//
// A handle is kTag | generation | index of a slot. A slot's state is generation | type | number of uses at this moment. Slots are used
// again with the next generation, and their memory is never freed, so any number may be looked up at any time.
#include "capi/handle.h"

#include <sys/stat.h>

#include <array>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "capi/message.h"

namespace ptd::capi {

namespace {

constexpr unsigned kIndexBits = 24, kGenerationShift = kIndexBits, kTypeShift = 24, kStateGenerationShift = 32;
constexpr uint64_t kTag = 0xdULL << 60;  // no address of user space has these bits
constexpr uint64_t kTagMask = 0xfULL << 60, kIndexMask = (1ULL << kIndexBits) - 1, kLastGeneration = 0xffffffffULL;
constexpr size_t kChunkSlots = 256, kChunks = (1U << kIndexBits) / kChunkSlots;

struct Slot {
  std::atomic<uint64_t> state{0};
  std::shared_ptr<void> object;  // written only by the thread that adds or removes
};

struct Registry {
  std::array<std::atomic<Slot*>, kChunks> chunks{};
  std::mutex mutex;  // of what follows
  std::vector<uint32_t> free;
  uint32_t used = 0;
};

// Never destroyed: handles may be used while the process ends.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

constexpr uint64_t idle_state(uint64_t generation, HandleType type) {
  return (generation << kStateGenerationShift) | (static_cast<uint64_t>(type) << kTypeShift);
}

struct Place {
  Slot* slot = nullptr;  // null: no handle has this number
  uint32_t index = 0;
  uint64_t generation = 0;
};

Place place_of(uintptr_t handle) {
  if ((handle & kTagMask) != kTag) return {};
  const auto index = static_cast<uint32_t>(handle & kIndexMask);
  Slot* chunk = registry().chunks[index / kChunkSlots].load(std::memory_order_acquire);
  if (chunk == nullptr) return {};
  return {chunk + index % kChunkSlots, index, (handle & ~kTagMask) >> kGenerationShift & kLastGeneration};
}

// The index of a slot that no handle uses. Its state has the generation to use.
uint32_t take_slot() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (!all.free.empty()) {
    const uint32_t index = all.free.back();
    all.free.pop_back();
    return index;
  }
  if (all.used == kChunks * kChunkSlots) throw std::bad_alloc();
  if (all.used % kChunkSlots == 0) {
    all.free.reserve(all.used + kChunkSlots);  // so that giving back never allocates
    all.chunks[all.used / kChunkSlots].store(new Slot[kChunkSlots], std::memory_order_release);
  }
  return all.used++;
}

// The state is that of `generation`, without users. Ends that generation.
void give_back(const Place& place) {
  const std::shared_ptr<void> last = std::move(place.slot->object);  // destroyed after the slot is free
  if (place.generation == kLastGeneration) return;                   // numbers would come again
  Registry& all = registry();
  place.slot->state.store(idle_state(place.generation + 1, HandleType::none), std::memory_order_release);
  const std::lock_guard lock(all.mutex);
  all.free.push_back(place.index);
}

thread_local uintptr_t callback_owner = 0;

uintptr_t number_of(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

}  // namespace

CallbackScope::CallbackScope(uintptr_t handle) : outer_(callback_owner) { callback_owner = handle; }
CallbackScope::~CallbackScope() { callback_owner = outer_; }

bool in_callback_of(uintptr_t handle) { return handle == callback_owner; }

uintptr_t add_handle(HandleType type, std::shared_ptr<void> object) {
  const uint32_t index = take_slot();
  Slot& slot = registry().chunks[index / kChunkSlots].load(std::memory_order_acquire)[index % kChunkSlots];
  const uint64_t generation = slot.state.load(std::memory_order_acquire) >> kStateGenerationShift;
  slot.object = std::move(object);
  slot.state.store(idle_state(generation, type), std::memory_order_release);
  return kTag | (generation << kGenerationShift) | index;
}

ptd_code remove_handle(HandleType type, uintptr_t handle) {
  const Place place = place_of(handle);
  if (place.slot == nullptr) return PTD_ERROR_INVALID_HANDLE;
  uint64_t expected = idle_state(place.generation, type);
  if (place.slot->state.compare_exchange_strong(expected, idle_state(place.generation, HandleType::none), std::memory_order_acq_rel)) {
    give_back(place);
    return PTD_OK;
  }
  return expected >> kTypeShift == idle_state(place.generation, type) >> kTypeShift ? PTD_ERROR_IN_USE : PTD_ERROR_INVALID_HANDLE;
}

ExclusiveUse::ExclusiveUse(HandleType type, uintptr_t handle) {
  const Place place = place_of(handle);
  if (place.slot == nullptr) return;
  const uint64_t idle = idle_state(place.generation, type);
  uint64_t expected = idle;
  if (!place.slot->state.compare_exchange_strong(expected, idle + 1, std::memory_order_acquire)) {
    if (expected >> kTypeShift == idle >> kTypeShift) code_ = PTD_ERROR_IN_USE;
    return;
  }
  slot_ = place.slot;
  object_ = place.slot->object.get();
  code_ = PTD_OK;
}

// No other thread changes the state of a slot in use.
ExclusiveUse::~ExclusiveUse() {
  if (slot_ == nullptr) return;
  std::atomic<uint64_t>& state = static_cast<Slot*>(slot_)->state;
  state.store(state.load(std::memory_order_relaxed) - 1, std::memory_order_release);
}

// A recording is used only while its pointer is copied.
std::shared_ptr<const OpenedRecording> find(const ptd_recording* handle) {
  const Place place = place_of(number_of(handle));
  if (place.slot == nullptr) return nullptr;
  const uint64_t idle = idle_state(place.generation, HandleType::recording);
  uint64_t state = idle;
  while (!place.slot->state.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) {
    if (state >> kTypeShift != idle >> kTypeShift) return nullptr;
  }
  std::shared_ptr<const OpenedRecording> found = std::static_pointer_cast<const OpenedRecording>(place.slot->object);
  place.slot->state.fetch_sub(1, std::memory_order_release);
  return found;
}

ptd_recording* add(std::shared_ptr<const OpenedRecording> recording) {
  // Only find() gives it out, as const.
  auto object = std::const_pointer_cast<OpenedRecording>(std::move(recording));
  return reinterpret_cast<ptd_recording*>(add_handle(HandleType::recording, std::move(object)));
}

std::optional<Error> OpenedRecording::shrunk_error(bool sizes) const {
  if (!sizes && shrunk_file_count() == shrunk_before) return std::nullopt;
  return ptd::shrunk_error(shrunk_before);
}

Error OpenedRecording::cause_of(const Error& error) const {
  return error.code == ErrorCode::cancelled ? error : shrunk_error(true).value_or(error);
}

const std::vector<Finding>& OpenedRecording::findings() const {
  const std::lock_guard lock(findings_mutex_);
  if (!findings_) {
    std::vector<Finding> read = recording->findings();
    if (const auto error = shrunk_error(true)) throw Failure(*error);
    findings_ = std::move(read);
  }
  return *findings_;
}

FileStamp stamp_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || (S_ISDIR(info.st_mode) && ::stat((path + "/data").c_str(), &info) != 0) || S_ISDIR(info.st_mode))
    return {};
  return {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

std::optional<Error> OpenedRecording::replaced_error() const {
  const FileStamp now = stamp_of(options.path);
  if (now == stamp || now == FileStamp{}) return std::nullopt;  // reading a file that is not there says so itself
  return Error{ErrorCode::changed, options.path + " was replaced or changed since it was opened", 0};
}

bool remove(const ptd_recording* handle) {
  for (;;) {
    const ptd_code code = remove_handle(HandleType::recording, number_of(handle));
    if (code != PTD_ERROR_IN_USE) return code == PTD_OK;
    std::this_thread::yield();  // until find() has copied the pointer
  }
}

}  // namespace ptd::capi
