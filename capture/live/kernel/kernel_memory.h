// KernelMemory: the running kernel's memory through /proc/kcore, and copies of its text in the form of perf's kcore_dir.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd::live {

struct MemoryExtent {
  uint64_t address = 0, size_bytes = 0;
};

/// Reads the memory of the kernel that runs. Needs CAP_SYS_RAWIO and CONFIG_PROC_KCORE. One thread.
class KernelMemory {
 public:
  /// Errors: file_open; file_format if /proc/kcore is no ELF core of this machine.
  static Result<std::unique_ptr<KernelMemory>> open();
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  /// The bytes of an extent as they are at this moment (not at one moment: it takes several reads); holes read as zeros where the kernel
  /// says so. Fewer bytes than asked for if the kernel maps no more.
  [[nodiscard]] std::vector<std::byte> read(MemoryExtent extent) const;
  /// The same for memory that may be freed meanwhile: nothing unless all of it is mapped. Where no area is alive, some kernels hand out
  /// what the file was read for before ([Linux] 6.1 mm/vmalloc.c, vread(), and fs/proc/kcore.c); each page is read behind one that is
  /// known.
  [[nodiscard]] std::vector<std::byte> read_mapped(MemoryExtent extent) const;

 private:
  explicit KernelMemory(int fd) : fd_(fd) {}
  Status read_segments();

  struct Segment {
    uint64_t address = 0, size_bytes = 0, offset_bytes = 0;
  };
  int fd_;
  std::vector<Segment> segments_;
};

/// What of the kernel's address space is code: its text, modules, and what was made at run time (BPF, trampolines, slots), page by page.
struct KernelText {
  MemoryExtent text;                 ///< _stext to _etext, whole pages
  std::vector<MemoryExtent> others;  ///< in order of address, apart from each other
};
/// From the text of /proc/kallsyms, and /proc/modules as it is now. Errors: usage if the addresses are hidden (kptr_restrict).
[[nodiscard]] Result<KernelText> find_kernel_text(std::string_view kallsyms);

/// Writes DIR/kcore (ELF core of the code as it is now), DIR/kallsyms (the text given) and DIR/modules. DIR is created.
[[nodiscard]] Status copy_kernel(const KernelMemory& memory, const std::string& kallsyms, const std::string& dir);

/// A file of /proc or /sys, whose size is not known beforehand.
[[nodiscard]] Result<std::string> read_text_file(const std::string& path);

struct ModuleLine {
  std::string name;
  MemoryExtent extent;
};
/// /proc/modules now.
[[nodiscard]] std::vector<ModuleLine> list_modules();

}  // namespace ptd::live
