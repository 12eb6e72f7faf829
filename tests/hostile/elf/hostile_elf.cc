// ELF files, damaged in their headers, tables and debug information, through every function that reads symbols, lines and code: no crash,
// no hang, no memory out of proportion.
#include <elf.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "image/source/code_source.h"
#include "image/source/elf_damage.h"
#include "image/symbols/file_symbols.h"
#include "image/symbols/module_file.h"
#include "image/symbols/source_lines.h"
#include "image/symbols/source_warnings.h"
#include "tests/hostile/guard.h"
#include "tests/hostile/temp_dir.h"

namespace ptd::test {
namespace {

using File = std::vector<std::byte>;

/// A part of a file that one kind of damage is for.
struct Part {
  std::string name;
  uint64_t at = 0, size_bytes = 0;
};

struct Seed {
  std::string name;
  File file;
  std::vector<Part> parts;         ///< headers and non-empty sections, those with tables twice
  std::vector<uint64_t> offsets;   ///< of code, for look-ups
  std::vector<NamedRange> loaded;  ///< of a relocatable file: its functions, as if the kernel had loaded it
  std::string program;             ///< of a separate debug file: the file that has the code
};

template <typename T>
T get(const File& file, uint64_t at) {
  T value{};
  if (at + sizeof(T) <= file.size()) std::memcpy(&value, file.data() + at, sizeof(T));
  return value;
}

template <typename T>
void put(File& file, uint64_t at, T value) {
  if (at + sizeof(T) <= file.size()) std::memcpy(file.data() + at, &value, sizeof(T));
}

Seed read_seed(const std::string& path) {
  Seed seed;
  seed.name = path.substr(path.rfind('/') + 1);
  const auto mapped = MappedFile::open(path);
  if (!mapped.ok()) return seed;
  seed.file.assign((*mapped)->bytes().begin(), (*mapped)->bytes().end());
  const auto header = get<Elf64_Ehdr>(seed.file, 0);
  seed.parts = {{"ELF header", 0, sizeof header},
                {"program headers", header.e_phoff, uint64_t{header.e_phnum} * header.e_phentsize},
                {"section headers", header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize}};
  const auto strings = get<Elf64_Shdr>(seed.file, header.e_shoff + uint64_t{header.e_shstrndx} * header.e_shentsize);
  for (unsigned i = 1; i < header.e_shnum; ++i) {
    const auto section = get<Elf64_Shdr>(seed.file, header.e_shoff + uint64_t{i} * header.e_shentsize);
    if (section.sh_type == SHT_NOBITS || section.sh_size == 0 || section.sh_offset + section.sh_size > seed.file.size()) continue;
    const Part part{reinterpret_cast<const char*>(seed.file.data()) + strings.sh_offset + section.sh_name, section.sh_offset,
                    section.sh_size};
    const bool is_code = (section.sh_flags & SHF_EXECINSTR) != 0;
    for (uint64_t at = 0; is_code && at < part.size_bytes; at += 1 + part.size_bytes / 200) seed.offsets.push_back(part.at + at);
    seed.parts.push_back(part);
    if (!is_code && !part.name.starts_with(".rodata") && !part.name.starts_with(".data")) seed.parts.push_back(part);
  }
  std::erase_if(seed.parts, [](const Part& part) { return part.size_bytes == 0; });
  if (header.e_type != ET_REL) return seed;
  for (const Part& table : seed.parts) {
    if (table.name != ".symtab") continue;
    const auto names = std::ranges::find(seed.parts, ".strtab", &Part::name);
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.size_bytes; at += sizeof(Elf64_Sym)) {
      const auto symbol = get<Elf64_Sym>(seed.file, table.at + at);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= SHN_LORESERVE) continue;
      const Ip ip{0xffffffffc0000000 + symbol.st_shndx * uint64_t{0x10000} + symbol.st_value};
      seed.loaded.push_back({kKernelSpace,
                             ip,
                             symbol.st_size,
                             {kTimeMin, kTimeMax},
                             reinterpret_cast<const char*>(seed.file.data()) + names->at + symbol.st_name,
                             "m"});
    }
    break;
  }
  return seed;
}

/// Values at which sizes, offsets and counts go wrong.
uint64_t odd_value(std::mt19937_64& random, uint64_t file_bytes) {
  static constexpr std::array<uint64_t, 14> kValues = {
      0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, ~uint64_t{0} >> 1, uint64_t{1} << 63, ~uint64_t{0}};
  const uint64_t choice = random() % 18;
  if (choice < kValues.size()) return kValues[choice];
  return choice < 16 ? random() % (file_bytes + 1) : ~uint64_t{0} - random() % 4096;
}

/// Damages one place. The size of the file stays, except for cuts.
std::string damage(File& file, const Seed& seed, std::mt19937_64& random) {
  const Part& part = seed.parts[random() % seed.parts.size()];
  const uint64_t at = part.at + random() % part.size_bytes, left = part.at + part.size_bytes - at;
  const uint64_t how = random() % 8;
  const uint64_t value = odd_value(random, file.size());
  switch (how) {
    case 0:
      put(file, at, static_cast<uint8_t>(random()));
      break;
    case 1:
      put(file, at, static_cast<uint8_t>(value));
      break;
    case 2:
      put(file, at & ~uint64_t{1}, static_cast<uint16_t>(value));
      break;
    case 3:
      put(file, at & ~uint64_t{3}, static_cast<uint32_t>(value));
      break;
    case 4:
      put(file, at & ~uint64_t{7}, value);
      break;
    case 5: {  // a LEB128 number that is large or does not end, a string without an end
      const std::byte fill = random() % 2 == 0 ? std::byte{0xff} : std::byte{0x80};
      std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(at), std::min<uint64_t>(left, 1 + random() % 24), fill);
      break;
    }
    case 6: {  // content from elsewhere in the part: references that lead back, opcodes in other places
      const uint64_t from = part.at + random() % part.size_bytes;
      const uint64_t size = std::min({left, part.at + part.size_bytes - from, 1 + random() % 256});
      std::memmove(file.data() + at, file.data() + from, size);
      break;
    }
    default:
      if (random() % 4 == 0) {
        file.resize(at);
      } else {
        std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(at), std::min<uint64_t>(left, 1 + random() % 512), std::byte{0});
      }
  }
  return part.name + "+" + std::to_string(at - part.at) + " way " + std::to_string(how);
}

/// What a file gave.
struct Found {
  size_t names = 0, extents = 0, frames = 0, statements = 0;
};

void read_lines(SourceLines& lines, const std::vector<uint64_t>& addresses, Found& found) {
  for (const uint64_t address : addresses) found.frames += lines.place(address).frames.size() + lines.inlined(address).functions.size();
  (void)lines.visit([&found](const SourceUnit& unit) {
    found.statements += unit.statements.size();
    return unit.statements.size() < (1U << 22);
  });
}

Found read_all(const TempDir& folder, const std::string& name, const Seed& seed) {
  const std::string path = folder / name;
  Found found;
  auto warnings = std::make_shared<SourceWarnings>();
  if (const auto elf = ElfFile::open(path); elf.ok()) {
    const ElfDamage damage = find_elf_damage(**elf, true);
    (void)symbols_sentence(path, damage.symbols + damage.debug);
    const std::vector<ElfSymbol> symbols = (*elf)->read_symbols();
    (void)(*elf)->read_plt(symbols);
    (void)(*elf)->executable_pages();
    for (const uint64_t offset : seed.offsets) (void)(*elf)->code_section_end(offset);
  }
  (void)read_kcore(path);
  std::vector<std::string> files = {path};
  if (!seed.program.empty()) files.insert(files.begin(), seed.program);
  FileSymbols names("m", files, warnings, nullptr, nullptr);
  std::vector<uint64_t> addresses;
  for (const uint64_t offset : seed.offsets) {
    uint64_t distance = 0;
    found.names += names.find(offset, distance) ? 1 : 0;
    (void)names.pick(offset);
    found.extents += names.frame_at(offset) ? 1 : 0;
    (void)names.landing_of(offset);
    (void)names.sites_of(offset);
    (void)names.names_at(offset);
    if (const auto address = names.address_of(offset)) addresses.push_back(*address);
  }
  (void)names.offsets_of("main");
  names.visit_functions([](std::string_view, uint64_t) {});
  if (SourceLines* lines = names.source()) read_lines(*lines, addresses, found);
  if (!seed.loaded.empty()) {
    std::vector<const NamedRange*> loaded;
    for (const NamedRange& range : seed.loaded) loaded.push_back(&range);
    if (const auto module = ModuleFile::open(path, "", loaded, warnings)) {
      addresses.clear();
      for (const NamedRange& range : seed.loaded) addresses.push_back(module->address_of(range.ip).value_or(0));
      read_lines(module->lines(), addresses, found);
    }
  }
  CodeSourceOptions options;
  options.symfs = {folder.path()};
  options.debug_dirs = {folder.path()};
  CodeSource source(options);
  for (const std::string& id : {std::string(), std::string("00")}) (void)source.find({"/" + name, id, 0, seed.file.size()});
  (void)source.find_debug_file(path, path);
  return found;
}

int run(int count, char** words) {
  const uint64_t mutations = std::strtoull(words[1], nullptr, 0), first = std::strtoull(words[2], nullptr, 0);
  const TempDir folder;
  std::vector<std::string> findings;
  for (int i = 3; i < count; ++i) {
    Seed seed = read_seed(words[i]);
    if (seed.offsets.empty() && i > 3) {
      seed.program = words[i - 1];
      seed.offsets = read_seed(seed.program).offsets;
    }
    if (seed.parts.empty()) findings.push_back(seed.name + " is not an ELF file");
    for (uint64_t n = 0; n < mutations && !seed.parts.empty(); ++n) {
      std::mt19937_64 random(first + n);
      File file = seed.file;
      std::string what;
      for (uint64_t places = n == 0 ? 0 : n % 4 == 3 ? 1 + random() % 4 : 1; places != 0 && !file.empty(); --places) {
        if (file.size() == seed.file.size()) what += " " + damage(file, seed, random);
      }
      folder.write("file", file);
      CaseGuard guard(seed.name + " seed " + std::to_string(first + n) + what);
      const Found found = read_all(folder, "file", seed);
      guard.end(findings);
      if (n != 0) continue;
      std::printf("%s, undamaged: %zu names, %zu extents, %zu source lines, %zu statements\n", seed.name.c_str(), found.names,
                  found.extents, found.frames, found.statements);
      if (found.names + found.extents + found.frames == 0) findings.push_back(seed.name + ": nothing is found in the undamaged file");
    }
  }
  for (const std::string& finding : findings) std::printf("%s\n", finding.c_str());
  const Worst& worst = CaseGuard::worst();
  std::printf("worst case: %.2f s (%s), %ld MiB (%s)\n", worst.seconds, worst.slowest.c_str(), worst.growth_mib, worst.largest.c_str());
  std::printf("%d files, %llu mutations each: %zu findings\n", count - 3, static_cast<unsigned long long>(mutations), findings.size());
  return findings.empty() && count > 3 ? 0 : 1;
}

}  // namespace
}  // namespace ptd::test

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s MUTATIONS FIRST-SEED FILE...\nA separate debug file follows the file that has the code.\n", argv[0]);
    return 2;
  }
  return ptd::test::run(argc, argv);
}
