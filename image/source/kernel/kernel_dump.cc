// read_kernel_dump(), with declarations from libkdumpfile's kdumpfile.h. The library trusts the dump, so a process of its own calls it and
// sends what it reads as messages, which this process checks.
#include "image/source/kernel/kernel_dump.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "image/base/fd.h"
#include "image/base/system_error.h"
#include "image/source/build_id.h"
#include "image/source/elf_file.h"
#include "image/source/kernel/forked_work.h"
#include "image/source/library_function.h"

namespace ptd {
namespace {

constexpr uint64_t kPageBytes = 4096, kPieceBytes = 16 * kPageBytes, kMostBytes = 512ULL << 20, kMostRangeBytes = 256ULL << 20;
// Linux has 200,000 names of 20 letters on average, none longer than 512 (KSYM_NAME_LEN).
constexpr size_t kMostNames = 2U << 20, kMostNameLetters = 512, kMostNamesLetters = 128U << 20;
constexpr ForkedWork::Limits kLimits{.silence = std::chrono::seconds(60), .cpu_seconds = 60, .memory_bytes = 2ULL << 30};

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
        !take(library.read, "kdump_read") || !take(library.line, "kdump_vmcoreinfo_line") ||
        !take(library.symbol, "kdump_vmcoreinfo_symbol"))
      return {};
    return library;
  }
};

/// Returns the family of processors with libkdumpfile's or uname's name of an architecture.
CodeFamily family_of_name(std::string_view arch) {
  if (arch == "x86_64" || arch == "ia32" || (arch.size() == 4 && arch.starts_with('i') && arch.ends_with("86"))) return CodeFamily::x86;
  return arch == "aarch64" || arch.starts_with("arm") ? CodeFamily::arm : CodeFamily::unknown;
}

/// An open dump. Not thread-safe. Never closed, because libkdumpfile can crash when it frees a dump that it could not open.
class Dump {
 public:
  static Result<Dump> open(const Library& library, int file, const std::string& path, const std::string& arch) {
    Dump dump(library, library.make());
    if (dump.handle_ == nullptr || library.open(dump.handle_, 1, &file) != Library::kOk) {
      const char* const reason = dump.handle_ == nullptr ? "no memory" : library.error(dump.handle_);
      return Error{ErrorCode::unknown_format, path + ": not a dump of a machine's memory (libkdumpfile: " + reason + ")", 0};
    }
    Library::Attribute known{};
    const bool has_arch = library.get(dump.handle_, "arch.name", &known) == Library::kOk && known.type == Library::kString;
    if (has_arch && !arch.empty() && family_of_name(known.string) != family_of_name(arch))
      return Error{ErrorCode::bad_format,
                   path + " is of a machine of another architecture (" + known.string + ") than the recording (" + arch + ")", 0};
    if (!has_arch) dump.set("arch.name", arch.c_str());
    dump.set("addrxlat.ostype", "linux");
    return dump;
  }

  /// Returns the number of bytes that could be read.
  size_t read(uint64_t address, std::span<std::byte> bytes) const {
    size_t size = bytes.size();
    return library_->read(handle_, Library::kKernelVirtual, address, bytes.data(), &size) == Library::kOk ? bytes.size()
                                                                                                          : std::min(size, bytes.size());
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
  Dump(const Library& library, void* handle) : library_(&library), handle_(handle) {}
  void set(const char* key, const char* value) const {
    Library::Attribute attribute{};
    attribute.type = Library::kString;
    attribute.string = value;
    library_->set(handle_, key, &attribute);  // without it, reads fail
  }
  const Library* library_;
  void* handle_;
};

/// The tables that scripts/kallsyms.c of Linux writes: names as tokens, and addresses relative to one base.
class NameTables {
 public:
  /// Returns whether the dump has the tables.
  bool read(const Dump& dump) {
    const uint64_t names = dump.symbol("kallsyms_names"), tokens = dump.symbol("kallsyms_token_table");
    uint32_t count = 0;
    if (!dump.read_value(dump.symbol("kallsyms_num_syms"), count) || count == 0 || count > kMostNames || names == 0 || tokens <= names)
      return false;
    names_.resize(std::min<uint64_t>(tokens - names, uint64_t{count} * kMostNameBytes));
    offsets_.resize(count);
    token_text_.resize(kTokenBytes);
    names_.resize(dump.read(names, std::as_writable_bytes(std::span(names_))));
    token_text_.resize(dump.read(tokens, std::as_writable_bytes(std::span(token_text_))));
    return dump.read(dump.symbol("kallsyms_offsets"), std::as_writable_bytes(std::span(offsets_))) == offsets_.size() * sizeof(int32_t) &&
           dump.read_value(dump.symbol("kallsyms_token_index"), token_index_) &&
           dump.read_value(dump.symbol("kallsyms_relative_base"), base_);
  }
  /// Returns the names, with addresses of which `_stext` is known; empty if neither form of addresses gives it, or if a name is malformed.
  [[nodiscard]] std::vector<KernelSymbol> decode(uint64_t stext) const {
    std::vector<KernelSymbol> symbols;
    symbols.reserve(offsets_.size());
    size_t at = 0, letters = 0;
    std::optional<size_t> known;
    for (const int32_t offset : offsets_) {
      std::string text = next_name(at);
      letters += text.size();
      if (text.size() < 2 || letters > kMostNamesLetters) return {};
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
    return symbols;
  }

 private:
  static constexpr uint32_t kMostNameBytes = 64;
  static constexpr size_t kTokenBytes = 65536;

  // A length in one or two bytes (7 bits each), then numbers of tokens. "" if malformed.
  std::string next_name(size_t& at) const {
    if (at >= names_.size()) return {};
    size_t length = names_[at++];
    if (length >= 0x80 && at < names_.size()) length = (length & 0x7f) | (size_t{names_[at++]} << 7);
    if (length > names_.size() - at) return {};
    std::string name;
    for (const size_t end = at + length; at < end; ++at) {
      for (size_t letter = token_index_[names_[at]]; letter < token_text_.size() && token_text_[letter] != 0; ++letter) {
        if (name.size() > kMostNameLetters) return {};  // a letter for the type, then the name
        name += token_text_[letter];
      }
    }
    return name;
  }

  std::vector<uint8_t> names_;
  std::vector<char> token_text_;
  std::array<uint16_t, 256> token_index_{};
  std::vector<int32_t> offsets_;
  uint64_t base_ = 0;
};

using Pages = std::vector<std::pair<uint64_t, uint64_t>>;  ///< begin and end

/// Returns whole pages, sorted and disjoint.
Pages pages_of(const std::vector<std::pair<Ip, uint64_t>>& wanted) {
  Pages pages;
  for (const auto& [ip, size] : wanted) {
    const uint64_t first = ip.value / kPageBytes * kPageBytes, length = std::min({size, kMostRangeBytes, ~ip.value - kPageBytes});
    if (size != 0) pages.emplace_back(first, (ip.value + length + kPageBytes - 1) / kPageBytes * kPageBytes);
  }
  std::ranges::sort(pages);
  Pages merged;
  for (const auto& [first, end] : pages) {
    if (merged.empty() || first > merged.back().second) merged.emplace_back(first, end);
    merged.back().second = std::max(merged.back().second, end);
  }
  return merged;
}

enum class MessageKind : uint32_t { error, text_start, build_id, code, symbol, bad_names, end };

/// What the process that reads the dump sends; `size_bytes` bytes follow.
struct Message {
  MessageKind kind = MessageKind::end;
  uint32_t detail = 0;   ///< ErrorCode, or the type of a symbol
  uint64_t address = 0;  ///< of code, of a symbol or of _stext
  uint64_t size_bytes = 0;
};

class Sender {
 public:
  explicit Sender(int output) : output_(output) {}
  void send(const Message& message, std::string_view content = {}) {
    Message whole = message;
    whole.size_bytes = content.size();
    pending_.append(reinterpret_cast<const char*>(&whole), sizeof whole);  // NOLINT: for another process of this program
    pending_.append(content);
    if (pending_.size() >= kPieceBytes) flush();
  }
  void flush() {
    if (!write_all(output_, pending_.data(), pending_.size())) ::_exit(1);
    pending_.clear();
  }

 private:
  int output_;
  std::string pending_;
};

/// Sends the pages that are in the dump. Returns whether there are any.
bool send_code(const Dump& dump, const Pages& pages, Sender& sender) {
  std::string bytes;
  uint64_t left_bytes = kMostBytes;
  bool has_code = false;
  for (const auto& [first, end] : pages) {
    for (uint64_t at = first; at < end && left_bytes > 0;) {
      const size_t size = std::min({end - at, kPieceBytes, left_bytes});
      bytes.resize(size);
      const size_t got = dump.read(at, std::as_writable_bytes(std::span(bytes)));
      if (got != 0) sender.send({MessageKind::code, 0, at}, std::string_view(bytes).substr(0, got));
      has_code = has_code || got != 0;
      const bool is_missing = got < size;
      at = (at + got) / kPageBytes * kPageBytes + (is_missing ? kPageBytes : 0);
      left_bytes -= std::min(left_bytes, got + (is_missing ? kPageBytes : 0));
    }
  }
  return has_code;
}

Status send_kernel(const Library& library, int file, const std::string& path, const std::string& arch, const Pages& pages, Sender& sender) {
  const auto dump = Dump::open(library, file, path, arch);
  if (!dump.ok()) return dump.error();
  const uint64_t stext = dump->symbol("_stext");
  if (stext == 0) return Error{ErrorCode::missing_part, path + " has no VMCOREINFO, so that the kernel's page tables cannot be found", 0};
  sender.send({MessageKind::text_start, 0, stext});
  sender.send({MessageKind::build_id}, dump->line("BUILD-ID").substr(0, kPieceBytes));
  if (!send_code(*dump, pages, sender)) return Error{ErrorCode::missing_part, path + " contains nothing of the kernel's code", 0};
  sender.flush();
  NameTables tables;
  if (!tables.read(*dump)) return {};
  const std::vector<KernelSymbol> symbols = tables.decode(stext);
  if (symbols.empty()) sender.send({MessageKind::bad_names});
  for (const KernelSymbol& symbol : symbols) {
    sender.send({MessageKind::symbol, static_cast<uint8_t>(symbol.type), symbol.address}, symbol.name);
  }
  return {};
}

/// Builds the kernel from messages. They may come from a process whose memory a forged dump has overwritten.
class Receiver {
 public:
  explicit Receiver(const Pages& pages) : pages_(pages) {}

  /// Returns false if the message cannot be right.
  [[nodiscard]] bool add(const Message& message, std::string content) {
    switch (message.kind) {
      case MessageKind::error:
        error_ = Error{static_cast<ErrorCode>(message.detail), std::move(content), 0};
        return message.detail <= 0xffff && !name_of(error_->code).empty();
      case MessageKind::text_start:
        kernel_.stext = message.address;
        return true;
      case MessageKind::build_id:
        kernel_.build_id = normalize_build_id(content);
        return true;
      case MessageKind::code:
        return add_code(message.address, std::as_bytes(std::span(content)));
      case MessageKind::symbol:
        letters_ += content.size();
        if (content.empty() || content.size() > kMostNameLetters || letters_ > kMostNamesLetters || kernel_.symbols.size() >= kMostNames)
          return false;
        kernel_.symbols.push_back({message.address, static_cast<char>(message.detail), std::move(content), {}});
        return true;
      case MessageKind::bad_names:
        kernel_.has_bad_names = true;
        return true;
      case MessageKind::end:
        break;
    }
    return false;
  }
  Result<KernelDump> finish() && {
    if (error_) return *error_;
    close();
    std::ranges::stable_sort(kernel_.symbols, {}, &KernelSymbol::address);
    return std::move(kernel_);
  }

 private:
  bool add_code(uint64_t address, Bytes bytes) {
    const auto after = std::ranges::upper_bound(pages_, address, {}, &Pages::value_type::first);
    if (bytes.empty() || after == pages_.begin() || address >= std::prev(after)->second ||
        bytes.size() > std::prev(after)->second - address)
      return false;
    const uint64_t end = begin_ + code_.size();
    all_bytes_ += bytes.size();
    if (address < end || all_bytes_ > kMostBytes) return false;
    if (address != end || code_.empty()) {
      close();
      begin_ = address;
    }
    code_.insert(code_.end(), bytes.begin(), bytes.end());
    return kernel_.ranges.size() <= kMostBytes / kPageBytes + pages_.size();
  }
  void close() {
    if (!code_.empty()) kernel_.ranges.push_back({Ip{begin_}, own_bytes(code_)});
    code_.clear();
  }

  const Pages& pages_;
  KernelDump kernel_;
  std::optional<Error> error_;
  std::vector<std::byte> code_;  // of the last range, which begins at begin_
  uint64_t begin_ = 0, all_bytes_ = 0;
  size_t letters_ = 0;
};

Result<KernelDump> receive(ForkedWork& work, const std::string& path, const Pages& pages) {
  Receiver receiver(pages);
  for (;;) {
    Message message;
    bool is_read = work.read(std::as_writable_bytes(std::span(&message, 1)));
    if (is_read && message.kind == MessageKind::end) return std::move(receiver).finish();
    std::string content;
    if (is_read && message.size_bytes <= kPieceBytes) {
      content.resize(message.size_bytes);
      is_read = work.read(std::as_writable_bytes(std::span(content)));
    }
    if (!is_read) {
      const ForkedWork::End end = work.stop();
      return Error{ErrorCode::bad_format,
                   path + (end.crashed ? ": the dump is damaged" : ": the dump cannot be read") + ": the process that read it " + end.how,
                   0};
    }
    if (message.size_bytes > kPieceBytes || !receiver.add(message, std::move(content)))
      return Error{ErrorCode::bad_format, path + ": the dump is damaged: the process that read it sent wrong data", 0};
  }
}

}  // namespace

Result<KernelDump> read_kernel_dump(const std::string& path, const std::string& arch, const std::vector<std::pair<Ip, uint64_t>>& wanted) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return system_error(path);
  const Library* const library = Library::instance();
  if (library == nullptr)
    return Error{ErrorCode::missing_program, path + ": dumps of memory need libkdumpfile (package libkdumpfile10)", 0};
  const Pages pages = pages_of(wanted);
  const auto work = ForkedWork::start(path, kLimits, [&](int output) {
    Sender sender(output);
    const Status status = send_kernel(*library, file.get(), path, arch, pages, sender);
    if (!status.ok())
      sender.send({MessageKind::error, static_cast<uint32_t>(status.error().code)},
                  std::string_view(status.error().message).substr(0, kPieceBytes));
    sender.send({MessageKind::end});
    sender.flush();
  });
  if (!work.ok()) return work.error();
  return receive(**work, path, pages);
}

}  // namespace ptd
