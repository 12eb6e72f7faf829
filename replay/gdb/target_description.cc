// TargetDescription: see target_description.h. Names and order: [GDB] "Standard Target Features".
#include "replay/gdb/target_description.h"

#include <string_view>

#include "replay/gdb/packets.h"

namespace ptd::replay {

/// `count` registers NAME0, NAME1, ..., or one NAME.
struct TargetDescription::Feature {
  std::string_view name;
  unsigned bits = 0;
  std::string_view type = "int";
  unsigned count = 0, first = 0;
};

Machine machine_of(ExecMode mode) {
  switch (mode) {
    case ExecMode::bits16:
    case ExecMode::bits32:
      return Machine::i386;
    case ExecMode::a64:
      return Machine::aarch64;
    case ExecMode::a32:
    case ExecMode::t32:
      return Machine::arm;
    default:
      return Machine::amd64;
  }
}

void TargetDescription::add(const char* feature, const std::vector<Feature>& registers) {
  xml_ += std::string("<feature name=\"") + feature + "\">\n";
  for (const Feature& each : registers) {
    for (unsigned i = 0; i < (each.count == 0 ? 1 : each.count); ++i) {
      std::string name(each.name);
      if (each.count != 0) name += std::to_string(each.first + i);
      if (name == "pc" || name == "rip" || name == "eip") pc_ = static_cast<unsigned>(bytes_.size());
      xml_ += "<reg name=\"" + name + "\" bitsize=\"" + std::to_string(each.bits) + "\" type=\"" + std::string(each.type) + "\" regnum=\"" +
              std::to_string(bytes_.size()) + "\"/>\n";
      bytes_.push_back(each.bits / 8);
    }
  }
  xml_ += "</feature>\n";
}

TargetDescription::TargetDescription(Machine machine) : machine_(machine) {
  static constexpr const char* kNames[] = {"i386:x86-64", "i386", "aarch64", "arm"};
  xml_ = std::string("<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n<target>\n<architecture>") +
         kNames[static_cast<unsigned>(machine)] + "</architecture>\n<osabi>GNU/Linux</osabi>\n";
  const auto x87 = [&](std::vector<Feature> registers) {
    for (const char* name : {"cs", "ss", "ds", "es", "fs", "gs"}) registers.push_back({name, 32, "int32"});
    registers.push_back({"st", 80, "i387_ext", 8});
    for (const char* name : {"fctrl", "fstat", "ftag", "fiseg", "fioff", "foseg", "fooff", "fop"}) registers.push_back({name, 32, "int"});
    add("org.gnu.gdb.i386.core", registers);
  };
  switch (machine) {
    case Machine::amd64: {
      std::vector<Feature> core;
      for (const char* name : {"rax", "rbx", "rcx", "rdx", "rsi", "rdi"}) core.push_back({name, 64, "int64"});
      for (const char* name : {"rbp", "rsp"}) core.push_back({name, 64, "data_ptr"});
      core.push_back({"r", 64, "int64", 8, 8});
      core.push_back({"rip", 64, "code_ptr"});
      core.push_back({"eflags", 32, "int32"});
      x87(std::move(core));
      add("org.gnu.gdb.i386.sse", {{"xmm", 128, "uint128", 16}, {"mxcsr", 32, "int32"}});
      add("org.gnu.gdb.i386.linux", {{"orig_rax", 64, "int64"}});
      add("org.gnu.gdb.i386.segments", {{"fs_base", 64, "int64"}, {"gs_base", 64, "int64"}});
      break;
    }
    case Machine::i386: {
      std::vector<Feature> core;
      for (const char* name : {"eax", "ecx", "edx", "ebx"}) core.push_back({name, 32, "int32"});
      for (const char* name : {"esp", "ebp"}) core.push_back({name, 32, "data_ptr"});
      for (const char* name : {"esi", "edi"}) core.push_back({name, 32, "int32"});
      core.push_back({"eip", 32, "code_ptr"});
      core.push_back({"eflags", 32, "int32"});
      x87(std::move(core));
      add("org.gnu.gdb.i386.sse", {{"xmm", 128, "uint128", 8}, {"mxcsr", 32, "int32"}});
      add("org.gnu.gdb.i386.linux", {{"orig_eax", 32, "int"}});
      break;
    }
    case Machine::aarch64:
      add("org.gnu.gdb.aarch64.core", {{"x", 64, "int64", 31}, {"sp", 64, "data_ptr"}, {"pc", 64, "code_ptr"}, {"cpsr", 32, "int32"}});
      break;
    case Machine::arm:
      add("org.gnu.gdb.arm.core",
          {{"r", 32, "uint32", 13}, {"sp", 32, "data_ptr"}, {"lr", 32, "int"}, {"pc", 32, "code_ptr"}, {"cpsr", 32, "int"}});
      break;
  }
  xml_ += "</target>\n";
}

uint16_t TargetDescription::elf_machine() const {
  constexpr uint16_t kNumbers[] = {62, 3, 183, 40};
  return kNumbers[static_cast<unsigned>(machine_)];
}

std::string TargetDescription::one_register(uint64_t number, const uint64_t* pc) const {
  if (number >= bytes_.size()) return {};
  const unsigned size = bytes_[number];
  if (number != pc_ || pc == nullptr) return std::string(size_t{2} * size, 'x');
  std::string bytes;
  for (unsigned i = 0; i < size; ++i) bytes += static_cast<char>(*pc >> (8 * i));
  return to_hex(bytes);
}

std::string TargetDescription::all_registers(const uint64_t* pc) const {
  std::string text;
  for (size_t i = 0; i < bytes_.size(); ++i) text += one_register(i, pc);
  return text;
}

}  // namespace ptd::replay
