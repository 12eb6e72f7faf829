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

/// The copy of the kernel's code is from after the boot. What ran at an address first is written to the copy, so that it becomes the code
/// at the start; what the copy has no place for (init code, which the kernel frees) gives records at the start. Each later change of the
/// log gives a record at its time. Not thread-safe.
class BootCode {
 public:
  using Sink = std::function<Status(const perfio::TextPokeRecord& poke, uint64_t time_ns)>;
  /// Changes the copy `core`. `to_ns` converts the log's times to those of records. A log that does not exist is empty, and the copy stays
  /// as it is then. Errors: of the file system; of the copy.
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
  struct Piece {
    uint64_t time = 0, address = 0;
    std::vector<std::byte> bytes;
  };
  /// Sorts the log into what ran first and what changed later; returns what belongs into the copy.
  std::vector<Piece> sort_log(Bytes log);
  /// Adds changes at the end of the log, after which the image is the copy as it was. `first`: what sort_log() returned.
  void end_at_copy(const std::vector<Piece>& first);
  [[nodiscard]] bool in_copy(uint64_t address, uint64_t& offset_bytes) const;
  Page& page_at(uint64_t address);
  /// Writes to the image; returns whether it changed. `old`, if not null, gets the bytes before if all are known, else nothing.
  bool apply(uint64_t address, Bytes code, std::vector<std::byte>* old);

  std::vector<Piece> changes_;  ///< in order of time
  uint64_t end_ = 0;            ///< the log's last time
  std::shared_ptr<const ElfFile> core_;
  std::function<uint64_t(uint64_t)> to_ns_;
  size_t at_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
};

}  // namespace ptd::emulate
