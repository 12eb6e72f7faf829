// Snapshots whose code is in ELF files: as a dump, and given by the user.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/coresight/support/expected.h"
#include "tests/coresight/support/folder.h"

namespace ptd::test {
namespace {

constexpr uint32_t kNopCode = 0xd503201f, kBranchToSelf = 0x14000000;

struct ElfTypes32 {
  using Header = Elf32_Ehdr;
  using Program = Elf32_Phdr;
  using Section = Elf32_Shdr;
  using Symbol = Elf32_Sym;
  static constexpr uint8_t kClass = ELFCLASS32;
};
struct ElfTypes64 {
  using Header = Elf64_Ehdr;
  using Program = Elf64_Phdr;
  using Section = Elf64_Shdr;
  using Symbol = Elf64_Sym;
  static constexpr uint8_t kClass = ELFCLASS64;
};

struct MadeSymbol {
  const char* name;
  uint64_t address, size;
  bool function;
  uint16_t section = 1;
};

template <typename T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// A program of one segment at 0x4000, as linkers write it, with a symbol table.
template <typename Types>
std::string elf_program(uint16_t machine, uint16_t type, const std::vector<uint32_t>& code, const std::vector<MadeSymbol>& made = {}) {
  constexpr size_t kCodeAt = 0x100;
  std::string names(1, '\0'), symbols = bytes_of(typename Types::Symbol{});
  for (const MadeSymbol& one : made) {
    typename Types::Symbol symbol{};
    symbol.st_name = static_cast<Elf32_Word>(names.size());
    symbol.st_info = one.function ? STT_FUNC : STT_NOTYPE;  // local
    symbol.st_shndx = one.section;
    symbol.st_value = static_cast<decltype(symbol.st_value)>(one.address);
    symbol.st_size = static_cast<decltype(symbol.st_size)>(one.size);
    symbols += bytes_of(symbol);
    names += one.name + std::string(1, '\0');
  }
  typename Types::Header header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = Types::kClass;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = type;
  header.e_machine = machine;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(typename Types::Program);
  header.e_phnum = 1;
  const size_t code_size = code.size() * 4;
  header.e_shoff = static_cast<decltype(header.e_shoff)>(kCodeAt + code_size + symbols.size() + names.size());
  header.e_shentsize = sizeof(typename Types::Section);
  header.e_shnum = 4;
  header.e_shstrndx = 3;
  typename Types::Program program{};
  program.p_type = PT_LOAD;
  program.p_flags = PF_R | PF_X;
  program.p_offset = kCodeAt;
  program.p_vaddr = program.p_paddr = 0x4000;
  program.p_filesz = program.p_memsz = static_cast<decltype(program.p_memsz)>(code_size);
  program.p_align = 4;
  typename Types::Section text{}, table{}, strings{};
  text.sh_type = SHT_PROGBITS;
  text.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  text.sh_addr = 0x4000;
  text.sh_offset = kCodeAt;
  text.sh_size = program.p_filesz;
  table.sh_type = SHT_SYMTAB;
  table.sh_offset = static_cast<decltype(table.sh_offset)>(kCodeAt + code_size);
  table.sh_size = static_cast<decltype(table.sh_size)>(symbols.size());
  table.sh_entsize = sizeof(typename Types::Symbol);
  table.sh_link = 3;
  strings.sh_type = SHT_STRTAB;
  strings.sh_offset = table.sh_offset + table.sh_size;
  strings.sh_size = static_cast<decltype(strings.sh_size)>(names.size());
  std::string file = bytes_of(header) + bytes_of(program);
  file.resize(kCodeAt, '\0');
  file.append(reinterpret_cast<const char*>(code.data()), code_size);
  return file + symbols + names + bytes_of(typename Types::Section{}) + bytes_of(text) + bytes_of(table) + bytes_of(strings);
}

std::string aarch64_program(uint16_t type = ET_EXEC) {
  return elf_program<ElfTypes64>(EM_AARCH64, type, {kNopCode, kNopCode, kBranchToSelf});
}

/// A trace unit of ETMv4 whose core runs the branch to itself at 0x4008 from `first` on.
class ProgramSnapshot : public Folder {
 public:
  explicit ProgramSnapshot(const std::string& dumps, unsigned first = 0x4000) {
    text("snapshot.ini", "[snapshot]\nversion=1.0\n[device_list]\ndevice0=cpu.ini\ndevice1=etm.ini\n[trace]\nmetadata=trace.ini\n");
    text("trace.ini",
         "[trace_buffers]\nbuffers=buffer0\n[buffer0]\nname=ETB\nfile=trace.bin\nformat=source_data\n[core_trace_sources]\ncpu_0=ETM_0\n"
         "[source_buffers]\nETM_0=ETB\n");
    text("etm.ini",
         "[device]\nname=ETM_0\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR=0x1\nTRCTRACEIDR=0x10\nTRCIDR0=0x28000ea1\n"
         "TRCIDR1=0x4100f403\nTRCIDR2=0x488\nTRCIDR8=0\n");
    text("cpu.ini", "[device]\nname=cpu_0\nclass=core\ntype=Cortex-A53\n" + dumps);
    bytes("trace.bin", {0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0x80,
                        0x01,
                        0x01,
                        0x00,
                        0x04,  // A-Sync, info, on
                        0x82,
                        first >> 2 & 0x7f,
                        first >> 9 & 0x7f,
                        first >> 16 & 0xff,
                        0x00,
                        0x31,
                        0xf7});
  }
  [[nodiscard]] Result<std::unique_ptr<Recording>> open(const std::vector<RawImage>& images = {}) const {
    OpenOptions options;
    options.path = path();
    options.images = images;
    return Recording::open(options);
  }
};

std::string flow_difference(const Recording& recording, const std::vector<Range>& expected) {
  return difference(expected, decode_ranges(recording, 0, 1)[0x10]);
}

const std::vector<Range> kFlow = {{0x4000, 0x400c, 3, true}};

TEST(SnapshotPrograms, ADumpThatIsAProgramIsReadWhereItSays) {
  const ProgramSnapshot snapshot("[dump1]\nfile=program.elf\naddress=0x0\n");
  snapshot.text("program.elf", aarch64_program());
  const auto recording = snapshot.open();
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  EXPECT_EQ(flow_difference(**recording, kFlow), "");
  EXPECT_THAT((*recording)->warnings(), testing::Contains(testing::HasSubstr("is the ELF file of a program for other addresses")));
}

// Code may run elsewhere than it is linked for. What the snapshot says of its memory counts before what such a file is as memory.
TEST(SnapshotPrograms, AProgramAtAnotherAddressIsMemoryToo) {
  for (const char* const dump :
       {"[dump1]\nfile=program.elf\naddress=0x13f00\n", "[dump1]\nfile=program.elf\naddress=0x14000\noffset=0x100\nlength=12\n"}) {
    const ProgramSnapshot snapshot(dump, 0x14000);
    snapshot.text("program.elf", aarch64_program());
    const auto recording = snapshot.open();
    ASSERT_TRUE(recording.ok()) << recording.error().message;
    EXPECT_EQ(flow_difference(**recording, {{0x14000, 0x1400c, 3, true}}), "") << dump;
  }
  const ProgramSnapshot snapshot(
      "[dump1]\nfile=program.elf\naddress=0x13f00\n[dump2]\nfile=memory.bin\naddress=0x14000\n[dump3]\nfile=program.elf\naddress=0x13f00\n",
      0x14000);
  snapshot.text("program.elf", aarch64_program());
  snapshot.words("memory.bin", {kNopCode, kBranchToSelf});
  const auto recording = snapshot.open();
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  EXPECT_EQ(flow_difference(**recording, {{0x14000, 0x14008, 2, true}}), "");
  EXPECT_EQ((*recording)->timeline().findings().size(), 1U);
}

TEST(SnapshotPrograms, MemoryThatBeginsWithAProgramIsMemory) {
  const ProgramSnapshot snapshot("[dump1]\nfile=memory.bin\naddress=0x3000\n");
  std::string memory = aarch64_program();
  memory.resize(0x1000, '\0');
  const uint32_t code[] = {kNopCode, kNopCode, kBranchToSelf};
  memory.append(reinterpret_cast<const char*>(code), sizeof code);
  snapshot.text("memory.bin", memory);
  const auto recording = snapshot.open();
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  EXPECT_EQ(flow_difference(**recording, kFlow), "");
  EXPECT_THAT((*recording)->warnings(), testing::Not(testing::Contains(testing::HasSubstr("ELF"))));
}

TEST(SnapshotPrograms, ASegmentAtItsAddressIsMemory) {
  for (const char* const dump :
       {"[dump1]\nfile=program.elf\naddress=0x4000\noffset=0x100\nlength=12\n", "[dump1]\nfile=program.elf\naddress=0x3f00\n"}) {
    const ProgramSnapshot snapshot(dump);
    snapshot.text("program.elf", aarch64_program());
    const auto recording = snapshot.open();
    ASSERT_TRUE(recording.ok()) << recording.error().message;
    EXPECT_EQ(flow_difference(**recording, kFlow), "");
    EXPECT_THAT((*recording)->warnings(), testing::Not(testing::Contains(testing::HasSubstr("ELF")))) << dump;
  }
}

TEST(SnapshotPrograms, CodeThatTheUserGives) {
  const ProgramSnapshot snapshot("");
  snapshot.text("program.elf", aarch64_program());
  snapshot.text("library.so", aarch64_program(ET_DYN));
  snapshot.words("code.bin", {0, kNopCode, kNopCode, kBranchToSelf});
  EXPECT_EQ(flow_difference(**snapshot.open({{snapshot.path() + "/program.elf", 0, 0, {}}}), kFlow), "");
  EXPECT_EQ(flow_difference(**snapshot.open({{snapshot.path() + "/code.bin", 4, 12, 0x4000}}), kFlow), "");
  const auto anywhere = snapshot.open({{snapshot.path() + "/library.so", 0, 0, {}}});
  ASSERT_FALSE(anywhere.ok());
  EXPECT_EQ(anywhere.error().code, ErrorCode::bad_image_piece);
  EXPECT_EQ(flow_difference(**snapshot.open({{snapshot.path() + "/library.so", 0x100, 12, 0x4000}}), kFlow), "");
}

TEST(SnapshotPrograms, DumpsCountBeforeTheUsersFiles) {
  const ProgramSnapshot snapshot("[dump1]\nfile=memory.bin\naddress=0x4000\n");
  snapshot.words("memory.bin", {kNopCode, kBranchToSelf});
  snapshot.text("program.elf", aarch64_program());
  const auto recording = snapshot.open({{snapshot.path() + "/program.elf", 0, 0, {}}});
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  EXPECT_EQ(flow_difference(**recording, {{0x4000, 0x4008, 2, true}}), "");
  ASSERT_EQ((*recording)->timeline().findings().size(), 1U);
  EXPECT_EQ((*recording)->timeline().findings()[0].kind, FindingKind::section_overlap);
}

// A dump of the code has no names. A program with the same bytes gives them, and one with other bytes does not.
TEST(SnapshotPrograms, ADumpsNamesAreThoseOfAnEqualProgram) {
  const ProgramSnapshot snapshot("[dump1]\nfile=memory.bin\naddress=0x4000\n");
  const std::vector<uint32_t> code = {kNopCode, kNopCode, kBranchToSelf};
  snapshot.text("program.elf",
                elf_program<ElfTypes64>(EM_AARCH64, ET_EXEC, code, {{"first", 0x4000, 8, true}, {"second", 0x4008, 4, true}}));
  const auto name_of = [&](const std::vector<RawImage>& images) {
    const auto recording = snapshot.open(images);
    EXPECT_EQ(flow_difference(**recording, kFlow), "");
    const auto found = (*recording)->symbolizer().find((*recording)->decoder_options().default_space, Ip{0x4004}, kTimeMin);
    return found.has_value() ? std::string(found->name) : std::string();
  };
  const std::vector<RawImage> program = {{snapshot.path() + "/program.elf", 0, 0, {}}};
  snapshot.words("memory.bin", {kNopCode, kNopCode, kBranchToSelf, 0, 0});  // longer than the program
  EXPECT_EQ(name_of({}), "");
  EXPECT_EQ(name_of(program), "first");
  snapshot.words("memory.bin", {kNopCode, kNopCode});  // shorter
  EXPECT_EQ(name_of(program), "first");
  snapshot.words("memory.bin", {kNopCode, kNopCode + 0x20, kBranchToSelf});  // another hint
  EXPECT_EQ(name_of(program), "");
}

// [AAELF32] "Symbol values" and "Mapping symbols".
TEST(SnapshotPrograms, NamesOfThumbCode) {
  const ProgramSnapshot snapshot("");
  snapshot.text("program.elf", elf_program<ElfTypes32>(EM_ARM, ET_EXEC, {0xbf00bf00, 0xe7fcbf00, 0xbf00bf00},
                                                       {{"$t", 0x4000, 0, false},
                                                        {"first", 0x4001, 4, true},
                                                        {"$t.1", 0x4004, 0, false},
                                                        {"second", 0x4005, 4, true},
                                                        {"$d.2", 0x4008, 0, false},
                                                        {"$data", 0x4008, 0, false},
                                                        {"constant", 0x4009, 0, false, SHN_ABS}}));
  const auto recording = snapshot.open({{snapshot.path() + "/program.elf", 0, 0, {}}});
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  const SpaceId space = (*recording)->decoder_options().default_space;
  const auto name_at = [&](uint64_t address) {
    const auto found = (*recording)->symbolizer().find(space, Ip{address}, kTimeMin);
    return found.has_value() ? std::string(found->name) + "+" + std::to_string(found->offset_bytes) : std::string();
  };
  EXPECT_EQ(name_at(0x4000), "first+0");
  EXPECT_EQ(name_at(0x4002), "first+2");
  EXPECT_EQ(name_at(0x4004), "second+0");
  EXPECT_EQ(name_at(0x4008), "$data+0");
  EXPECT_EQ(name_at(0x400a), "$data+2");
}

}  // namespace
}  // namespace ptd::test
