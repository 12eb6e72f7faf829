// An addon for Node.js 20 and later that announces the machine code of V8, without a change to the program: node -r ./node_announcer.node
// PROGRAM c++ -std=c++17 -O2 -shared -fPIC -I/usr/include/node -I.. node_announcer.cc ../ptd_announce.c -o node_announcer.node (README.md)
#include <fcntl.h>
#include <link.h>
#include <node.h>
#include <ptd_announce.h>
#include <unistd.h>
#include <uv.h>
#include <v8.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#if NODE_MAJOR_VERSION < 20
#error "V8 before 11 does not report all of its code: Node.js 20 or later is needed"
#endif

namespace {

/// Copies memory that may be gone: V8 does not say when code is freed. Returns false if some of it is not mapped readable.
bool read_own(uint64_t from, std::vector<char>& to) {
  static int ends[2] = {-1, -1};
  static const bool open = pipe2(ends, O_CLOEXEC) == 0;
  constexpr size_t kStep = 4096;  // PIPE_BUF: written at once
  for (size_t at = 0; at < to.size(); at += kStep) {
    const size_t size = std::min(kStep, to.size() - at);
    // The kernel returns EFAULT where the program would end.
    const ssize_t got = open ? write(ends[1], reinterpret_cast<const void*>(from + at), size) : -1;
    if (got <= 0 || read(ends[0], to.data() + at, static_cast<size_t>(got)) != got || static_cast<size_t>(got) != size) return false;
  }
  return true;
}

/// Code that is part of a file: V8's builtins.
bool is_in_file(uint64_t address) {
  return dl_iterate_phdr(
             [](dl_phdr_info* file, size_t, void* data) {
               const uint64_t offset = *static_cast<uint64_t*>(data) - file->dlpi_addr;
               return static_cast<int>(std::any_of(file->dlpi_phdr, file->dlpi_phdr + file->dlpi_phnum, [&](const ElfW(Phdr) & part) {
                 return part.p_type == PT_LOAD && offset - part.p_vaddr < part.p_memsz;
               }));
             },
             &address) != 0;
}

/// The machine code of one isolate. V8 reports nothing until somebody listens: the word is tested once per turn of the event loop and per
/// garbage collection. The collector moves code on several threads.
class IsolateCode {
 public:
  static void start(v8::Isolate* isolate) {
    auto* const self = new IsolateCode(isolate);  // lives until the environment ends
    {
      const std::lock_guard<std::mutex> hold(all_lock());
      all()[isolate] = self;
    }
    isolate->AddGCEpilogueCallback(on_collected, self, v8::kGCTypeAll);
    (void)uv_check_init(node::GetCurrentEventLoop(isolate), &self->turn_);
    self->turn_.data = self;
    (void)uv_check_start(&self->turn_, [](uv_check_t* turn) { static_cast<IsolateCode*>(turn->data)->look(); });
    uv_unref(reinterpret_cast<uv_handle_t*>(&self->turn_));
    node::AddEnvironmentCleanupHook(isolate, finish, self);
    self->look();
  }

 private:
  struct Code {
    std::vector<char> bytes;
    std::string name;
  };

  explicit IsolateCode(v8::Isolate* isolate)
      : isolate_(isolate),
        runtime_(ptd_announce_register(
            "V8", [](void* self) { static_cast<IsolateCode*>(self)->relist(); }, this)) {}

  static std::mutex& all_lock() {
    static std::mutex lock;
    return lock;
  }
  static std::map<v8::Isolate*, IsolateCode*>& all() {
    static std::map<v8::Isolate*, IsolateCode*> isolates;
    return isolates;
  }

  // On the isolate's thread, where V8 may walk its heap.
  void look() {
    const std::lock_guard<std::recursive_mutex> hold(lock_);
    const bool wanted = ptd_announce_enabled() != 0;
    if (wanted && listens_) return ptd_announce_poll(runtime_);
    if (wanted == listens_) return;
    listens_ = wanted;
    codes_.clear();
    if (!wanted) return isolate_->SetJitCodeEventHandler(v8::kJitCodeEventDefault, nullptr);
    listing_ = true;
    isolate_->SetJitCodeEventHandler(v8::kJitCodeEventEnumExisting, on_event);
    relisted_ = false;
    ptd_announce_poll(runtime_);
    if (!relisted_) relist();  // no reader has asked, but the code is older than this announcer
    listing_ = false;
  }

  static void on_event(const v8::JitCodeEvent* event) {
    IsolateCode* self = nullptr;
    {
      const std::lock_guard<std::mutex> hold(all_lock());
      const auto found = all().find(event->isolate);
      if (found != all().end()) self = found->second;
    }
    if (self == nullptr || event->code_type == v8::JitCodeEvent::BYTE_CODE) return;
    const std::lock_guard<std::recursive_mutex> hold(self->lock_);
    const auto address = reinterpret_cast<uint64_t>(event->code_start);
    switch (event->type) {
      case v8::JitCodeEvent::CODE_ADDED:
        if (is_in_file(address)) return;
        return self->add(address, event->code_len, std::string(event->name.str, event->name.len));
      case v8::JitCodeEvent::CODE_MOVED:
        return self->move(address, reinterpret_cast<uint64_t>(event->new_code_start), event->code_len);
      case v8::JitCodeEvent::CODE_REMOVED:
        return self->remove(address);
      default:
        return;
    }
  }

  void announce(uint8_t kind, uint64_t address, const Code& code, uint64_t old_address = 0, uint16_t flags = 0) const {
    ptd_announcement what{};
    what.runtime = runtime_;
    what.kind = kind;
    what.phase = PTD_ANNOUNCE_END;
    what.flags = flags;
    what.address = address;
    what.old_address = old_address;
    what.size = code.bytes.size();
    what.code = kind == PTD_ANNOUNCE_UNLOAD ? nullptr : code.bytes.data();
    what.name = code.name.c_str();
    ptd_announce_code(&what);
  }

  // Code that was freed, without an event, is forgotten when other code takes its place.
  void put(uint64_t address, Code code) {
    auto at = codes_.lower_bound(address);
    if (at != codes_.begin() && std::prev(at)->first + std::prev(at)->second.bytes.size() > address) --at;
    while (at != codes_.end() && at->first < address + code.bytes.size()) at = codes_.erase(at);
    codes_[address] = std::move(code);
  }

  void add(uint64_t address, uint64_t size, std::string name) {
    const auto* const bytes = reinterpret_cast<const char*>(address);
    put(address, {{bytes, bytes + size}, std::move(name)});
    if (!listing_) announce(PTD_ANNOUNCE_LOAD, address, codes_[address]);
  }

  void move(uint64_t from, uint64_t to, uint64_t size) {
    Code code;
    if (const auto known = codes_.find(from); known != codes_.end()) {
      code.name = std::move(known->second.name);
      codes_.erase(known);
    }
    const auto* const bytes = reinterpret_cast<const char*>(to);  // with calls relocated
    code.bytes.assign(bytes, bytes + size);
    announce(PTD_ANNOUNCE_MOVE, to, code, from);
    put(to, std::move(code));
  }

  void remove(uint64_t address) {
    const auto known = codes_.find(address);
    if (known == codes_.end()) return;
    announce(PTD_ANNOUNCE_UNLOAD, address, known->second);
    codes_.erase(known);
  }

  void relist() {
    const std::lock_guard<std::recursive_mutex> hold(lock_);
    relisted_ = true;
    const uint16_t flags = listing_ ? PTD_ANNOUNCE_RELISTED | PTD_ANNOUNCE_UNWATCHED : PTD_ANNOUNCE_RELISTED;
    for (const auto& [address, code] : codes_) announce(PTD_ANNOUNCE_LOAD, address, code, 0, flags);
  }

  // A collection changes the addresses of objects in code, without an event.
  void announce_changes() {
    const std::lock_guard<std::recursive_mutex> hold(lock_);
    for (auto at = codes_.begin(); at != codes_.end();) {
      Code now{std::vector<char>(at->second.bytes.size()), {}};
      std::vector<char>& old = at->second.bytes;
      if (!read_own(at->first, now.bytes)) {
        announce(PTD_ANNOUNCE_UNLOAD, at->first, at->second);
        at = codes_.erase(at);
        continue;
      }
      const auto first = std::mismatch(old.begin(), old.end(), now.bytes.begin()).first - old.begin();
      const auto last = old.rend() - std::mismatch(old.rbegin(), old.rend(), now.bytes.rbegin()).first;
      if (first < last) {
        announce(PTD_ANNOUNCE_PATCH, at->first + static_cast<uint64_t>(first),
                 {{now.bytes.begin() + first, now.bytes.begin() + last}, at->second.name});
        old = std::move(now.bytes);
      }
      ++at;
    }
  }

  static void on_collected(v8::Isolate* isolate, v8::GCType type, v8::GCCallbackFlags, void* data) {
    auto* const self = static_cast<IsolateCode*>(data);
    if ((ptd_announce_enabled() != 0) != self->listens_) {  // a program that computes does not come to its event loop
      isolate->RequestInterrupt([](v8::Isolate*, void* of) { static_cast<IsolateCode*>(of)->look(); }, self);
    } else if (self->listens_ && type == v8::kGCTypeMarkSweepCompact) {
      self->announce_changes();
    }
  }

  // The isolate's memory goes to others.
  static void finish(void* data, void (*done)(void*), void* of) {
    auto* const self = static_cast<IsolateCode*>(data);
    self->isolate_->SetJitCodeEventHandler(v8::kJitCodeEventDefault, nullptr);
    self->isolate_->RemoveGCEpilogueCallback(on_collected, self);
    {
      const std::lock_guard<std::mutex> hold(all_lock());
      all().erase(self->isolate_);
    }
    ptd_announce_unregister(self->runtime_);
    for (const auto& [address, code] : self->codes_) self->announce(PTD_ANNOUNCE_UNLOAD, address, code);
    self->done_ = [done, of] { done(of); };
    uv_close(reinterpret_cast<uv_handle_t*>(&self->turn_), [](uv_handle_t* turn) {
      auto* const ended = static_cast<IsolateCode*>(turn->data);
      ended->done_();
      delete ended;
    });
  }

  v8::Isolate* isolate_;
  uint32_t runtime_;
  uv_check_t turn_{};
  std::recursive_mutex lock_;
  std::map<uint64_t, Code> codes_;  // as announced, by address; disjoint
  bool listens_ = false;
  bool listing_ = false;  // V8 tells what exists, which relist() announces
  bool relisted_ = false;
  std::function<void()> done_;
};

}  // namespace

NODE_MODULE_INIT() {
  (void)exports;
  (void)module;
  IsolateCode::start(context->GetIsolate());
}
