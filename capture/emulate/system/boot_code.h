// BootCode: changes of the kernel's code before its own records say what changes, from what the emulator ran (plugin/code_log.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "image/base/mapped_file.h"
#include "image/source/elf_file.h"
#include "perfio/format/records.h"
#include "ptdecode/error.h"

namespace ptd::emulate {

/// Keeps the image that a decoder has: the copy of the kernel's code, then each change in order of time. A change of the log that leaves it as it is
/// gives no record. Not thread-safe.
class BootCode {
 public:
  using Sink = std::function<Status(const perfio::TextPokeRecord& poke, uint64_t time_ns)>;
  /// `to_ns` converts the log's times to those of records. A log that does not exist is empty. Errors: of the copy.
  static Result<BootCode> open(const std::string& log, const std::string& core, std::function<uint64_t(uint64_t)> to_ns);

  /// Passes the changes before `time_ns`, as TEXT_POKE records. Errors: of the sink.
  Status up_to(uint64_t time_ns, const Sink& sink);
  /// A record of the kernel itself.
  void on_poke(const perfio::TextPokeRecord& poke) { (void)apply(poke.addr, poke.new_bytes, nullptr); }

 private:
  static constexpr uint64_t kPageBytes = 4096;
  struct Page {
    std::byte bytes[kPageBytes];
    bool known[kPageBytes] = {};
  };
  Page& page_at(uint64_t address);
  /// Writes to the image; returns whether it changed. `old`, if not null, gets the bytes before if all are known, else nothing.
  bool apply(uint64_t address, Bytes code, std::vector<std::byte>* old);

  std::shared_ptr<const MappedFile> log_;
  std::shared_ptr<const ElfFile> core_;
  std::function<uint64_t(uint64_t)> to_ns_;
  size_t at_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
};

}  // namespace ptd::emulate
