// execve in the emulator.
#include "capture/emulate/shared/user_exec.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "image/base/environment.h"

namespace ptd::emulate {
namespace {

constexpr int kMaxScriptDepth = 4;  // as the kernel follows them

struct Program {
  bool is_elf = false;
  uint16_t machine = 0;  ///< of a 64-bit little-endian program
  std::string path;
  std::string missing;              ///< the interpreter that cannot be run
  std::vector<std::string> before;  ///< what a script's interpreter gets in place of argv[0]
};

// "#!interpreter [one argument]", blanks around either left out.
bool parse_script(const std::string& head, std::string& interpreter, std::string& argument) {
  const std::string line = head.substr(2, head.find('\n') - 2);
  constexpr const char* kBlanks = " \t";
  const size_t begin = line.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return false;
  const size_t end = line.find_first_of(kBlanks, begin);
  interpreter = line.substr(begin, end == std::string::npos ? end : end - begin);
  const size_t more = end == std::string::npos ? end : line.find_first_not_of(kBlanks, end);
  if (more != std::string::npos) argument = line.substr(more, line.find_last_not_of(kBlanks) + 1 - more);
  return true;
}

#if defined(__aarch64__)
constexpr uint16_t kHostMachine = kMachineAarch64;
#else
constexpr uint16_t kHostMachine = kMachineX86_64;
#endif
constexpr std::array kSysrootsX86_64 = {"/etc/qemu-binfmt/x86_64", "/usr/gnemul/qemu-x86_64"};
constexpr std::array kSysrootsAarch64 = {"/etc/qemu-binfmt/aarch64", "/usr/gnemul/qemu-aarch64"};

bool read_at(int fd, uint64_t offset, void* to, size_t bytes) {
  return offset <= INT64_MAX && pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

// The dynamic linker that a 64-bit program asks for (PT_INTERP); "" if none. Offsets: [gABI] Elf64_Ehdr, Elf64_Phdr.
std::string dynamic_linker_of(const std::string& path) {
  constexpr uint64_t kTableAt = 32, kCountAt = 56, kEntryBytes = 56, kOffsetAt = 8, kSizeAt = 32;
  constexpr uint32_t kInterpreter = 3;
  std::array<char, 4096> name{};
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  uint64_t table = 0, offset = 0, size = 0;
  uint16_t count = 0;
  bool found = false;
  if (read_at(fd, kTableAt, &table, sizeof table) && read_at(fd, kCountAt, &count, sizeof count)) {
    for (uint64_t i = 0; i < count && !found; ++i) {
      const uint64_t entry = table + i * kEntryBytes;
      uint32_t type = 0;
      if (!read_at(fd, entry, &type, sizeof type)) break;
      found = type == kInterpreter && read_at(fd, entry + kOffsetAt, &offset, sizeof offset) &&
              read_at(fd, entry + kSizeAt, &size, sizeof size) && size < name.size() && read_at(fd, offset, name.data(), size);
    }
  }
  if (fd >= 0) close(fd);
  return found ? name.data() : "";
}

// Whether the emulator of `machine` finds no such dynamic linker, and so the kernel none either.
bool lacks_linker(const std::string& linker, uint16_t machine) {
  if (linker.empty()) return false;
  const std::string sysroot = environment::qemu_sysroot();
  const auto exists = [&](const std::string& root) { return access((root + linker).c_str(), F_OK) == 0; };
  const auto& sysroots = machine == kMachineAarch64 ? kSysrootsAarch64 : kSysrootsX86_64;
  if ((!sysroot.empty() && exists(sysroot)) || std::any_of(sysroots.begin(), sysroots.end(), exists)) return false;
  return !exists("");
}

Program resolve(const std::string& path, int depth = 0) {
  Program program;
  program.path = path;
  if (access(path.c_str(), X_OK) != 0) {
    if (depth != 0) program.missing = path;
    return program;
  }
  const std::string head = head_of(path);
  constexpr size_t kMachineAt = 18;
  if (head.size() > kMachineAt + 1 && head.compare(0, 4, "\177ELF") == 0) {
    const auto byte = [&](size_t at) { return static_cast<uint8_t>(head[at]); };
    program.is_elf = true;
    if (byte(4) == 2 && byte(5) == 1) program.machine = static_cast<uint16_t>(byte(kMachineAt) | byte(kMachineAt + 1) << 8);
    const std::string linker = program.machine == kHostMachine ? dynamic_linker_of(path) : std::string();
    if (!lacks_linker(linker, program.machine)) return program;
    program.is_elf = false;
    program.machine = 0;
    program.missing = linker;
    return program;
  }
  std::string interpreter, argument;
  if (head.size() < 2 || head.compare(0, 2, "#!") != 0 || depth == kMaxScriptDepth || !parse_script(head, interpreter, argument)) {
    return program;
  }
  program = resolve(interpreter, depth + 1);
  if (program.before.empty()) program.before.push_back(interpreter);
  if (!argument.empty()) program.before.push_back(argument);
  program.before.push_back(path);
  return program;
}

}  // namespace

std::string head_of(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::array<char, 256> head{};
  const ssize_t count = read(fd, head.data(), head.size());
  close(fd);
  return count > 0 ? std::string(head.data(), static_cast<size_t>(count)) : std::string();
}

uint16_t machine_of(const std::string& path) { return resolve(path).machine; }

std::string missing_interpreter(const std::string& path) { return resolve(path).missing; }

std::string missing_linker(const std::string& path) {
  const Program program = resolve(path);
  const std::string linker = program.is_elf && program.machine != 0 ? dynamic_linker_of(program.path) : std::string();
  return lacks_linker(linker, program.machine) ? linker : std::string();
}

ExecKind exec_kind(const std::string& path, uint16_t machine) {
  const Program program = resolve(path);
  if (!program.is_elf) return ExecKind::refused;
  return program.machine == machine ? ExecKind::emulated : ExecKind::foreign;
}

const char* emulator_of(uint16_t machine) { return machine == kMachineAarch64 ? "qemu-aarch64" : "qemu-x86_64"; }

std::string exec_path_of(int fd, const std::string& path) {
  if (!path.empty() && (path.front() == '/' || fd == AT_FDCWD)) return path;
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  std::array<char, 4096> name{};
  const ssize_t length = readlink(link.c_str(), name.data(), name.size());
  if (length <= 0) return path.empty() ? link : link + "/" + path;  // which fails as it should
  const std::string base(name.data(), static_cast<size_t>(length));
  struct stat by_name {};
  struct stat by_fd {};
  const bool same =
      stat(base.c_str(), &by_name) == 0 && fstat(fd, &by_fd) == 0 && by_name.st_dev == by_fd.st_dev && by_name.st_ino == by_fd.st_ino;
  if (same) return path.empty() ? base : base + "/" + path;
  const int kept = dup(fd);
  return "/proc/self/fd/" + std::to_string(kept) + (path.empty() ? "" : "/" + path);
}

void exec_emulated(const EmulatorCommand& command, const std::string& path, std::vector<std::string> argv, char* const* envp) {
  const Program program = resolve(path);
  if (program.machine != command.machine) return;
  std::string folder;
  for (const char c : command.folder) folder += c == ',' ? std::string(",,") : std::string(1, c);  // as QEMU's options want it
  std::vector<std::string> words = {emulator_of(command.machine), "-plugin", command.plugin + ",folder=" + folder};
  const std::string file = (program.path.starts_with("-") ? "./" : "") + program.path;  // no option
  if (!program.before.empty()) {
    words.insert(words.end(), {"-0", program.before.front(), file});
    words.insert(words.end(), program.before.begin() + 1, program.before.end());
  } else {
    // As the kernel (Linux 5.18) gives an empty name to a program without any.
    words.insert(words.end(), {"-0", argv.empty() ? "" : argv.front(), file});
  }
  if (!argv.empty()) words.insert(words.end(), argv.begin() + 1, argv.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execve(command.qemu.c_str(), pointers.data(), envp);
}

}  // namespace ptd::emulate
