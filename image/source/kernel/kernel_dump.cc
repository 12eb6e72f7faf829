// read_kernel_dump(), with declarations from libkdumpfile's kdumpfile.h.
#include "image/source/kernel/kernel_dump.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>

#include "image/base/interrupt.h"
#include "image/base/system_error.h"
#include "image/source/build_id.h"
#include "image/source/library_function.h"

namespace ptd {
namespace {

constexpr uint64_t kPageBytes = 4096, kPieceBytes = 16 * kPageBytes, kMostBytes = 512ULL << 20, kMostRangeBytes = 256ULL << 20;

/// libkdumpfile's functions, ABI version 10 (0.5).
struct Library {
  struct Attribute {
    int type = 0;
    union {
      uint64_t number;
      const char* string;
    };
  };
  static constexpr int kOk = 0, kString = 4, kKernelVirtual = 2;
  void* (*make)() = nullptr;
  void (*free)(void* dump) = nullptr;
  int (*open)(void* dump, unsigned count, const int* files) = nullptr;
  const char* (*error)(void* dump) = nullptr;
  int (*set)(void* dump, const char* key, const Attribute* value) = nullptr;
  int (*get)(void* dump, const char* key, Attribute* value) = nullptr;
  int (*read)(void* dump, int space, uint64_t address, void* buffer, size_t* bytes) = nullptr;
  int (*line)(void* dump, const char* key, char** value) = nullptr;
  int (*symbol)(void* dump, const char* name, uint64_t* address) = nullptr;

  /// Returns null if the library is not installed.
  static const Library* instance() {
    static const std::optional<Library> loaded = load();
    return loaded ? &*loaded : nullptr;
  }

 private:
  static std::optional<Library> load() {
    void* const handle = ::dlopen("libkdumpfile.so.10", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return {};
    const auto take = [handle](auto& function, const char* name) { return take_function(handle, name, function); };
    Library library;
    if (!take(library.make, "kdump_new") || !take(library.free, "kdump_free") || !take(library.open, "kdump_open_fdset") ||
        !take(library.error, "kdump_get_err") || !take(library.set, "kdump_set_attr") || !take(library.get, "kdump_get_attr") ||
        !take(library.read, "kdump_read") || !take(library.line, "kdump_vmcoreinfo_line") || !take(library.symbol, "kdump_vmcoreinfo_symbol"))
      return {};
    return library;
  }
};

/// An open dump. Not thread-safe.
class Dump {
 public:
  static Result<std::unique_ptr<Dump>> open(const std::string& path, const std::string& arch) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return system_error(path);
    std::unique_ptr<Dump> dump(new Dump(file));
    const Library* const library = Library::instance();
    if (library == nullptr) return Error{ErrorCode::missing_program, path + ": dumps of memory need libkdumpfile (package libkdumpfile10)", 0};
    dump->library_ = library;
    dump->handle_ = library->make();
    if (dump->handle_ == nullptr || library->open(dump->handle_, 1, &file) != Library::kOk) {
      const char* const reason = dump->handle_ == nullptr ? "no memory" : library->error(dump->handle_);
      return Error{ErrorCode::unknown_format, path + ": not a dump of a machine's memory (libkdumpfile: " + reason + ")", 0};
    }
    Library::Attribute known{};
    if (library->get(dump->handle_, "arch.name", &known) != Library::kOk) dump->set("arch.name", arch.c_str());
    dump->set("addrxlat.ostype", "linux");
    return dump;
  }
  ~Dump() {
    if (handle_ != nullptr) library_->free(handle_);
    ::close(file_);
  }
  Dump(const Dump&) = delete;
  Dump& operator=(const Dump&) = delete;

  /// Returns the number of bytes that could be read.
  size_t read(uint64_t address, std::span<std::byte> bytes) const {
    size_t size = bytes.size();
    return library_->read(handle_, Library::kKernelVirtual, address, bytes.data(), &size) == Library::kOk ? bytes.size() : std::min(size, bytes.size());
  }
  template <class T>
  [[nodiscard]] bool read_value(uint64_t address, T& value) const {
    return address != 0 && read(address, std::as_writable_bytes(std::span(&value, 1))) == sizeof value;
  }
  /// Returns the value of a line of VMCOREINFO; "" if it has none.
  [[nodiscard]] std::string line(const char* key) const {
    char* text = nullptr;
    if (library_->line(handle_, key, &text) != Library::kOk || text == nullptr) return {};
    std::string value(text);
    std::free(text);  // NOLINT: allocated by the library
    return value;
  }
  /// Returns the address of a symbol in VMCOREINFO; 0 if it has none.
  [[nodiscard]] uint64_t symbol(const char* name) const {
    uint64_t address = 0;
    return library_->symbol(handle_, name, &address) == Library::kOk ? address : 0;
  }

 private:
  explicit Dump(int file) : file_(file) {}
  void set(const char* key, const char* value) const {
    Library::Attribute attribute{};
    attribute.type = Library::kString;
    attribute.string = value;
    library_->set(handle_, key, &attribute);  // without it, reads fail
  }
  const Library* library_ = nullptr;
  void* handle_ = nullptr;
  int file_;
};

/// The tables that scripts/kallsyms.c of Linux writes: names as tokens, and addresses relative to one base.
class NameTables {
 public:
  /// Returns whether the dump has the tables.
  bool read(const Dump& dump) {
    const uint64_t names = dump.symbol("kallsyms_names"), tokens = dump.symbol("kallsyms_token_table");
    uint32_t count = 0;
    if (!dump.read_value(dump.symbol("kallsyms_num_syms"), count) || count == 0 || count > kMostNames || names == 0 || tokens <= names) return false;
    names_.resize(std::min<uint64_t>(tokens - names, uint64_t{count} * kMostNameBytes));
    offsets_.resize(count);
    token_text_.resize(kTokenBytes);
    names_.resize(dump.read(names, std::as_writable_bytes(std::span(names_))));
    token_text_.resize(dump.read(tokens, std::as_writable_bytes(std::span(token_text_))));
    return dump.read(dump.symbol("kallsyms_offsets"), std::as_writable_bytes(std::span(offsets_))) == offsets_.size() * sizeof(int32_t) &&
           dump.read_value(dump.symbol("kallsyms_token_index"), token_index_) && dump.read_value(dump.symbol("kallsyms_relative_base"), base_);
  }
  /// Returns the names, with addresses of which `_stext` is known; empty if neither form of addresses gives it.
  [[nodiscard]] std::vector<KernelSymbol> decode(uint64_t stext) const {
    std::vector<KernelSymbol> symbols;
    symbols.reserve(offsets_.size());
    size_t at = 0;
    std::optional<size_t> known;
    for (const int32_t offset : offsets_) {
      std::string text = next_name(at);
      if (text.size() < 2) return {};
      if (text == "T_stext" || text == "t_stext") known = symbols.size();
      symbols.push_back({static_cast<uint32_t>(offset), text[0], text.substr(1), {}});
    }
    if (!known) return {};
    // CONFIG_KALLSYMS_ABSOLUTE_PERCPU: negative offsets are relative to base - 1, others are addresses in the per-cpu section.
    const bool is_negative = offsets_[*known] < 0;
    for (size_t i = 0; i < symbols.size(); ++i) {
      const int64_t offset = offsets_[i];
      if (!is_negative) symbols[i].address += base_;
      if (is_negative && offset < 0) symbols[i].address = base_ - 1 - static_cast<uint64_t>(offset);
    }
    if (symbols[*known].address != stext) return {};
    std::ranges::stable_sort(symbols, {}, &KernelSymbol::address);
    return symbols;
  }

 private:
  static constexpr uint32_t kMostNames = 4U << 20, kMostNameBytes = 64;
  static constexpr size_t kTokenBytes = 65536;

  // A length in one or two bytes (7 bits each), then numbers of tokens.
  std::string next_name(size_t& at) const {
    if (at >= names_.size()) return {};
    size_t length = names_[at++];
    if (length >= 0x80 && at < names_.size()) length = (length & 0x7f) | (size_t{names_[at++]} << 7);
    if (length > names_.size() - at) return {};
    std::string name;
    for (const size_t end = at + length; at < end; ++at) {
      for (size_t letter = token_index_[names_[at]]; letter < token_text_.size() && token_text_[letter] != 0; ++letter) name += token_text_[letter];
    }
    return name;
  }

  std::vector<uint8_t> names_;
  std::vector<char> token_text_;
  std::array<uint16_t, 256> token_index_{};
  std::vector<int32_t> offsets_;
  uint64_t base_ = 0;
};

/// Returns whole pages, sorted and disjoint.
std::vector<std::pair<uint64_t, uint64_t>> pages_of(const std::vector<std::pair<Ip, uint64_t>>& wanted) {
  std::vector<std::pair<uint64_t, uint64_t>> pages;
  for (const auto& [ip, size] : wanted) {
    const uint64_t first = ip.value / kPageBytes * kPageBytes, length = std::min({size, kMostRangeBytes, ~ip.value - kPageBytes});
    if (size != 0) pages.emplace_back(first, (ip.value + length + kPageBytes - 1) / kPageBytes * kPageBytes);
  }
  std::ranges::sort(pages);
  std::vector<std::pair<uint64_t, uint64_t>> merged;
  for (const auto& [first, end] : pages) {
    if (merged.empty() || first > merged.back().second) merged.emplace_back(first, end);
    merged.back().second = std::max(merged.back().second, end);
  }
  return merged;
}

void read_range(const Dump& dump, uint64_t first, uint64_t end, uint64_t& left_bytes, std::vector<MemoryRange>& ranges) {
  std::vector<std::byte> bytes;
  uint64_t begin = first;
  const auto close = [&](uint64_t next) {
    if (!bytes.empty()) ranges.push_back({Ip{begin}, own_bytes(bytes)});
    bytes.clear();
    begin = next;
  };
  for (uint64_t at = first; at < end && left_bytes > 0;) {
    check_interrupt();
    const size_t size = std::min({end - at, kPieceBytes, left_bytes}), before = bytes.size();
    bytes.resize(before + size);
    const size_t got = dump.read(at, std::span(bytes).subspan(before));
    bytes.resize(before + got);
    const bool is_missing = got < size;
    at = (at + got) / kPageBytes * kPageBytes + (is_missing ? kPageBytes : 0);
    left_bytes -= std::min(left_bytes, got + (is_missing ? kPageBytes : 0));
    if (is_missing) close(at);
  }
  close(end);
}

}  // namespace

Result<KernelDump> read_kernel_dump(const std::string& path, const std::string& arch, const std::vector<std::pair<Ip, uint64_t>>& wanted) {
  const auto dump = Dump::open(path, arch);
  if (!dump.ok()) return dump.error();
  KernelDump kernel;
  kernel.stext = (*dump)->symbol("_stext");
  if (kernel.stext == 0) return Error{ErrorCode::missing_part, path + " has no VMCOREINFO, so that the kernel's page tables cannot be found", 0};
  kernel.build_id = normalize_build_id((*dump)->line("BUILD-ID"));
  uint64_t left_bytes = kMostBytes;
  for (const auto& [first, end] : pages_of(wanted)) read_range(**dump, first, end, left_bytes, kernel.ranges);
  if (kernel.ranges.empty()) return Error{ErrorCode::missing_part, path + " contains nothing of the kernel's code", 0};
  NameTables tables;
  if (tables.read(**dump)) kernel.symbols = tables.decode(kernel.stext);
  return kernel;
}

}  // namespace ptd
