// Mappings whose file became shorter: see shrunk_files.h.
#include "image/base/shrunk_files.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <new>

namespace ptd {
namespace {

/// One mapping. The atomics are all that the signal handler reads; the rest is protected by Registry::mutex.
struct Slot {
  std::atomic<uintptr_t> begin{0};  ///< 0: free
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> faulted{false};
  std::string path;
  std::pair<uint64_t, uint64_t> identity;
  bool reported = false;
};

constexpr size_t kChunkSlots = 64;

/// Slots are never freed, so the handler can follow the list at any time.
struct Chunk {
  std::array<Slot, kChunkSlots> slots;
  Chunk* next = nullptr;
};

struct Registry {
  std::mutex mutex;
  std::vector<Slot*> free;  ///< its capacity is the number of all slots: adding one never throws
  size_t slots = 0;
  std::vector<std::string> shrunk;  ///< paths, in the order in which they were noticed
};

std::atomic<Chunk*> g_chunks{nullptr};
std::atomic<uint64_t> g_shrunk{0};
std::atomic<uintptr_t> g_page_bytes{4096};
static_assert(std::atomic<Chunk*>::is_always_lock_free && std::atomic<uintptr_t>::is_always_lock_free);

/// Never destroyed: mappings may end after static objects.
Registry& registry() {
  static auto* const all = new Registry();
  return *all;
}

Slot* slot_of(uintptr_t address) {
  for (Chunk* chunk = g_chunks.load(std::memory_order_acquire); chunk != nullptr; chunk = chunk->next) {
    for (Slot& slot : chunk->slots) {
      const uintptr_t begin = slot.begin.load(std::memory_order_acquire), end = slot.end.load(std::memory_order_acquire);
      // A slot that is being reused has no stable begin. The slot of the faulting address is stable: its file is in use.
      if (begin != 0 && address >= begin && address < end && slot.begin.load(std::memory_order_acquire) == begin) return &slot;
    }
  }
  return nullptr;
}

/// Maps zero pages from the faulting page to the end of its mapping. Async-signal-safe.
bool replace_pages(uintptr_t address) {
  Slot* slot = slot_of(address);
  if (slot == nullptr) return false;
  const uintptr_t page = address & ~(g_page_bytes.load(std::memory_order_relaxed) - 1);
  void* const from = reinterpret_cast<void*>(page);  // NOLINT(performance-no-int-to-ptr): an address from the kernel
  // Writable: libelf maps files so that it can change them in memory.
  if (::mmap(from, slot->end.load() - page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    return false;
  if (!slot->faulted.exchange(true)) g_shrunk.fetch_add(1);
  return true;
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  const bool is_fault = info->si_code > 0;
  if (info->si_code != BUS_ADRERR || !replace_pages(reinterpret_cast<uintptr_t>(info->si_addr))) {
    std::signal(signal, SIG_DFL);          // the access faults again, and ends the process
    if (!is_fault) (void)::raise(signal);  // sent by a process
  }
  errno = saved;
}

void install_handler() {
  g_page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction current {};
  if (::sigaction(SIGBUS, nullptr, &current) != 0 || (current.sa_flags & SA_SIGINFO) != 0 || current.sa_handler != SIG_DFL) return;
  struct sigaction ours {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigemptyset(&ours.sa_mask);
  (void)::sigaction(SIGBUS, &ours, nullptr);
}

/// Restores the default action when the library is unloaded.
struct HandlerOwner {
  HandlerOwner() = default;
  HandlerOwner(const HandlerOwner&) = delete;
  HandlerOwner& operator=(const HandlerOwner&) = delete;
  ~HandlerOwner() {
    struct sigaction current {};
    if (::sigaction(SIGBUS, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_bus_error)
      std::signal(SIGBUS, SIG_DFL);
  }
};

/// Whether the same file is still at its path, and shorter. A file that was replaced or removed keeps its bytes.
bool is_shorter(const Slot& slot) {
  struct stat info {};
  return ::stat(slot.path.c_str(), &info) == 0 && std::pair<uint64_t, uint64_t>(info.st_dev, info.st_ino) == slot.identity &&
         static_cast<uint64_t>(info.st_size) < slot.end.load() - slot.begin.load();
}

/// With the mutex held.
void note_shorter(Registry& all, Slot& slot) {
  if (slot.reported) return;
  if (!slot.faulted.exchange(true)) g_shrunk.fetch_add(1);
  slot.reported = true;
  try {
    all.shrunk.push_back(slot.path);
  } catch (const std::bad_alloc&) {  // counted, without its name
  }
}

void note_if_shorter(Registry& all, Slot& slot) {
  if (!slot.reported && (slot.faulted.load() || is_shorter(slot))) note_shorter(all, slot);
}

void note_size(Registry& all, std::pair<uint64_t, uint64_t> identity, uint64_t size_bytes) {
  for (Chunk* chunk = g_chunks.load(); chunk != nullptr; chunk = chunk->next) {
    for (Slot& slot : chunk->slots) {
      const uintptr_t begin = slot.begin.load();
      if (begin != 0 && slot.identity == identity && size_bytes < slot.end.load() - begin) note_shorter(all, slot);
    }
  }
}

}  // namespace

void watch_mapping(Bytes mapping, const std::string& path, std::pair<uint64_t, uint64_t> identity) {
  static std::once_flag once;
  std::call_once(once, install_handler);
  static const HandlerOwner owner;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  note_size(all, identity, mapping.size());
  if (all.free.empty()) {
    all.free.reserve(all.slots + kChunkSlots);
    auto* chunk = new Chunk();
    all.slots += kChunkSlots;
    chunk->next = g_chunks.load();
    for (Slot& slot : chunk->slots) all.free.push_back(&slot);
    g_chunks.store(chunk, std::memory_order_release);
  }
  Slot& slot = *all.free.back();
  slot.path = path;
  all.free.pop_back();
  slot.identity = identity;
  slot.reported = false;
  slot.faulted = false;
  const auto begin = reinterpret_cast<uintptr_t>(mapping.data());
  slot.end.store(begin + mapping.size(), std::memory_order_release);
  slot.begin.store(begin, std::memory_order_release);
}

void note_size(std::pair<uint64_t, uint64_t> identity, uint64_t size_bytes) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  note_size(all, identity, size_bytes);
}

void unwatch_mapping(Bytes mapping) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  Slot* slot = slot_of(reinterpret_cast<uintptr_t>(mapping.data()));
  if (slot == nullptr) return;
  note_if_shorter(all, *slot);
  slot->begin.store(0, std::memory_order_release);
  all.free.push_back(slot);
}

std::optional<MappedPlace> mapped_place(Bytes part) {
  const std::lock_guard lock(registry().mutex);
  const auto first = reinterpret_cast<uintptr_t>(part.data());
  const Slot* slot = part.empty() ? nullptr : slot_of(first);
  if (slot == nullptr || slot->end.load() - first < part.size()) return std::nullopt;
  const uintptr_t begin = slot->begin.load();
  return MappedPlace{slot->path, first - begin, slot->end.load() - begin};
}

uint64_t shrunk_file_count() { return g_shrunk.load(std::memory_order_acquire); }

std::vector<std::string> shrunk_files(uint64_t known) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (Chunk* chunk = g_chunks.load(); chunk != nullptr; chunk = chunk->next) {
    for (Slot& slot : chunk->slots) {
      if (slot.begin.load() != 0) note_if_shorter(all, slot);
    }
  }
  if (known >= all.shrunk.size()) return {};
  return {all.shrunk.begin() + static_cast<std::ptrdiff_t>(known), all.shrunk.end()};
}

std::optional<Error> shrunk_error(uint64_t known) {
  const std::vector<std::string> files = shrunk_files(known);
  if (shrunk_file_count() == known) return std::nullopt;
  return Error{ErrorCode::changed, (files.empty() ? std::string("a file") : files.front()) + " became shorter while it was read", 0};
}

}  // namespace ptd
