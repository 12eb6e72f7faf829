// Files by build id through libdebuginfod, as elfutils' debuginfod.h declares it.
#include "image/source/debuginfod.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace ptd {
namespace {

constexpr size_t kMaxBuildIdLetters = 128;

bool is_hex(const std::string& text) {
  return !text.empty() && text.size() <= kMaxBuildIdLetters &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

struct Debuginfod::Library {
  using Begin = void* (*)();
  using End = void (*)(void*);
  using Find = int (*)(void* client, const unsigned char* build_id, int build_id_bytes, char** path);  // length 0: hex text
  void* handle = nullptr;
  void* client = nullptr;
  End end = nullptr;
  Find executable = nullptr, debug = nullptr;

  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (client != nullptr) end(client);  // the library itself stays: others in the process may use it
  }
  template <typename Function>
  bool take(Function& function, const char* name) const {
    void* symbol = ::dlsym(handle, name);
    static_assert(sizeof function == sizeof symbol);
    std::memcpy(&function, &symbol, sizeof symbol);
    return function != nullptr;
  }
  bool open() {
    handle = ::dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
    Begin begin = nullptr;
    if (handle == nullptr || !take(begin, "debuginfod_begin") || !take(end, "debuginfod_end") ||
        !take(executable, "debuginfod_find_executable") || !take(debug, "debuginfod_find_debuginfo"))
      return false;
    client = begin();
    return client != nullptr;
  }
};

std::shared_ptr<Debuginfod> Debuginfod::open() {
  const char* urls = std::getenv("DEBUGINFOD_URLS");
  if (urls == nullptr || *urls == '\0') return nullptr;
  auto library = std::make_unique<Library>();
  return library->open() ? std::shared_ptr<Debuginfod>(new Debuginfod(std::move(library))) : nullptr;
}

Debuginfod::Debuginfod(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Debuginfod::~Debuginfod() = default;

std::string Debuginfod::find(const std::string& build_id, bool debug) {
  if (!is_hex(build_id)) return {};
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = known_.try_emplace({build_id, debug});
  if (!is_new || !trouble_.empty()) return known->second;
  char* path = nullptr;
  const auto* id = reinterpret_cast<const unsigned char*>(build_id.c_str());
  const int fd = (debug ? library_->debug : library_->executable)(library_->client, id, 0, &path);
  if (fd >= 0) {
    if (path != nullptr) known->second = path;
    ::close(fd);
  } else if (fd != -ENOENT) {
    trouble_ = std::strerror(-fd);
  }
  std::free(path);
  return known->second;
}

std::string Debuginfod::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

}  // namespace ptd
