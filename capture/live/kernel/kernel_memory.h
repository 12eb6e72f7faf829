// KernelMemory: the running kernel's memory through /proc/kcore, and copies of its text in the form of perf's kcore_dir.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd::live {

inline constexpr uint64_t kPage = 4096;

struct MemoryExtent {
  uint64_t address = 0, size_bytes = 0;
};

/// Reads the memory of the running kernel. Needs CAP_SYS_RAWIO and CONFIG_PROC_KCORE. Not thread-safe.
class KernelMemory {
 public:
  /// Errors: file_open; file_format if /proc/kcore is not an ELF core of this machine.
  static Result<std::unique_ptr<KernelMemory>> open();
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  /// Returns the current bytes of an extent (not atomically: it takes several reads); the kernel returns holes as zeros. Fewer bytes than
  /// requested if the kernel maps no more.
  [[nodiscard]] std::vector<std::byte> read(MemoryExtent extent) const;
  /// Same for memory that may be freed meanwhile: returns nothing unless all of it is mapped. For unmapped areas some kernels return the
  /// data of the previous read ([Linux] 6.1 mm/vmalloc.c, vread(), and fs/proc/kcore.c), so each page is read after a page with known
  /// content.
  [[nodiscard]] std::vector<std::byte> read_mapped(MemoryExtent extent) const;
  /// Returns the value of the line "NUMBER(name)=0x..." of vmcoreinfo, which a kernel has for debuggers of dumps.
  [[nodiscard]] std::optional<uint64_t> number(std::string_view name) const;

 private:
  explicit KernelMemory(int fd) : fd_(fd) {}
  Status read_segments();

  struct Segment {
    uint64_t address = 0, size_bytes = 0, offset_bytes = 0;
  };
  int fd_;
  std::vector<Segment> segments_;
  std::string notes_;
};

/// Returns the value of the line "NUMBER(name)=0x..." of vmcoreinfo; nothing if `text` has none.
[[nodiscard]] std::optional<uint64_t> vmcoreinfo_number(std::string_view text, std::string_view name);

/// The code ranges of the kernel's address space: its text, modules, and code created at run time (BPF, trampolines, slots), by page.
struct KernelText {
  MemoryExtent text;                 ///< _stext to _etext, whole pages
  std::vector<MemoryExtent> others;  ///< in order of address, apart from each other
};
/// Builds it from the text of /proc/kallsyms and the current /proc/modules. Errors: usage if the addresses are hidden (kptr_restrict).
[[nodiscard]] Result<KernelText> find_kernel_text(std::string_view kallsyms);

/// Writes DIR/kcore (ELF core of the current code), DIR/kallsyms (the given text) and DIR/modules. Creates DIR.
[[nodiscard]] Status copy_kernel(const KernelMemory& memory, const std::string& kallsyms, const std::string& dir);

/// Reads a file of /proc or /sys, whose size is not known in advance.
[[nodiscard]] Result<std::string> read_text_file(const std::string& path);
/// Returns its first line without the end; "" if it cannot be read.
[[nodiscard]] std::string first_line(const std::string& path);

struct ModuleLine {
  std::string name;
  MemoryExtent extent;
};
/// Returns the current /proc/modules.
[[nodiscard]] std::vector<ModuleLine> list_modules();

}  // namespace ptd::live
