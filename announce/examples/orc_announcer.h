// Announces what LLVM's ORC JIT loads and frees. LLVM 14; RTDyldObjectLinkingLayer::registerJITEventListener().
#pragma once

#include <llvm/ExecutionEngine/JITEventListener.h>
#include <llvm/ExecutionEngine/RuntimeDyld.h>
#include <llvm/Object/ObjectFile.h>
#include <ptd_announce.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

/// Thread-safe. Must outlive the JIT.
class OrcAnnouncer : public llvm::JITEventListener {
 public:
  OrcAnnouncer()
      : runtime_(ptd_announce_register(
            "LLVM ORC", [](void* self) { static_cast<OrcAnnouncer*>(self)->relist(); }, this)) {}
  ~OrcAnnouncer() override { ptd_announce_unregister(runtime_); }

  /// The code is final, and does not run yet.
  void notifyObjectLoaded(ObjectKey key, const llvm::object::ObjectFile& object, const llvm::RuntimeDyld::LoadedObjectInfo& info) override {
    std::vector<Code> codes;
    for (const llvm::object::SectionRef& section : object.sections()) {
      if (section.isText() && section.getSize() != 0) add_section(object, section, info.getSectionLoadAddress(section), codes);
    }
    const std::lock_guard<std::recursive_mutex> hold(lock_);
    for (const Code& code : codes) announce(PTD_ANNOUNCE_LOAD, code, 0);
    live_[key] = std::move(codes);
  }
  /// The memory is freed after this.
  void notifyFreeingObject(ObjectKey key) override {
    const std::lock_guard<std::recursive_mutex> hold(lock_);
    for (const Code& code : live_[key]) announce(PTD_ANNOUNCE_UNLOAD, code, 0);
    live_.erase(key);
  }

 private:
  struct Code {
    uint64_t address, size;
    std::string name;
  };

  // A section in pieces: from each function to the next.
  static void add_section(const llvm::object::ObjectFile& object, const llvm::object::SectionRef& section, uint64_t address,
                          std::vector<Code>& codes) {
    std::map<uint64_t, std::string> names{{0, "code"}};
    for (const llvm::object::SymbolRef& symbol : object.symbols()) {
      auto home = symbol.getSection();
      auto type = symbol.getType();
      auto name = symbol.getName();
      auto offset = symbol.getAddress();  // in an object file: within the section
      const bool fits = home && type && name && offset && *home == section && *type == llvm::object::SymbolRef::ST_Function;
      if (fits) names[*offset - section.getAddress()] = name->str();
      llvm::consumeError(home.takeError());
      llvm::consumeError(type.takeError());
      llvm::consumeError(name.takeError());
      llvm::consumeError(offset.takeError());
    }
    for (auto at = names.begin(); at != names.end(); ++at) {
      const uint64_t end = std::next(at) == names.end() ? section.getSize() : std::next(at)->first;
      if (at->first < end) codes.push_back({address + at->first, end - at->first, at->second});
    }
  }
  void announce(uint8_t kind, const Code& code, uint16_t flags) const {
    ptd_announcement what{};
    what.runtime = runtime_;
    what.kind = kind;
    what.phase = PTD_ANNOUNCE_END;
    what.flags = flags;
    what.address = code.address;
    what.size = code.size;
    what.name = code.name.c_str();
    if (kind == PTD_ANNOUNCE_LOAD) what.code = reinterpret_cast<const void*>(code.address);
    ptd_announce_code(&what);
  }
  // Called from an announcement, which may hold the lock.
  void relist() {
    const std::lock_guard<std::recursive_mutex> hold(lock_);
    for (const auto& [key, codes] : live_) {
      for (const Code& code : codes) announce(PTD_ANNOUNCE_LOAD, code, PTD_ANNOUNCE_RELISTED);
    }
  }

  uint32_t runtime_;
  std::recursive_mutex lock_;
  std::map<ObjectKey, std::vector<Code>> live_;
};
