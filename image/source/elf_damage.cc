// ElfDamage: reads section headers without libelf, which gives fewer sections and symbols of a damaged file, and no reason.
#include "image/source/elf_damage.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace ptd {
namespace {

constexpr uint64_t kMostSectionHeaders = 1U << 20, kMostSymbols = 4U << 20;
constexpr uint64_t kMostPlaces = 1U << 18;  // of sections that are compared with segments: a linker writes a dozen of each

template <class T>
std::optional<T> read(Bytes bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

bool is_inside(Bytes file, uint64_t offset, uint64_t size) { return offset <= file.size() && size <= file.size() - offset; }

template <class Header, class Section, class Symbol, class Chdr>
class Sections {
 public:
  explicit Sections(Bytes file) : file_(file) { trouble_ = read_headers(); }

  /// Why there are no section headers; "" if they are read, or the file has none.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  /// Why sections of DWARF, which have their names only, are not found; "" if nothing is wrong.
  [[nodiscard]] std::string names_trouble() const {
    if (!trouble_.empty()) return {};
    if (names_at_ == SHN_UNDEF) {
      const bool has_names = std::any_of(all_.begin(), all_.end(), [](const Section& section) { return section.sh_name != 0; });
      return has_names ? "no section has the names of the others (e_shstrndx)" : "";
    }
    const std::string_view own = name(all_[names_at_]);
    const bool is_other = all_[names_at_].sh_type != SHT_STRTAB || (!own.empty() && !own.ends_with("strtab"));
    return is_other ? "e_shstrndx is not the section with the names of the others" : "";
  }
  [[nodiscard]] bool has_debug_info() const {
    return std::any_of(all_.begin(), all_.end(),
                       [this](const Section& s) { return s.sh_type != SHT_NOBITS && name(s).starts_with(".debug_info"); });
  }
  [[nodiscard]] std::string symbols(bool names) const {
    for (const Elf64_Word type : {Elf64_Word{SHT_SYMTAB}, Elf64_Word{SHT_DYNSYM}}) {
      for (const Section& section : all_) {
        const bool by_name = type == SHT_SYMTAB && name(section) == ".symtab";
        if (by_name && section.sh_type != type) return ".symtab has the type of another section";
        if (section.sh_type == type) return table(section, names);
      }
    }
    return {};
  }
  /// Whether code is where both kinds of headers say: names are found by the segments' offsets. `is_loaded`: by the dynamic linker or the
  /// kernel, which need the segments; what `perf inject --jit` writes has none, or wrong ones.
  [[nodiscard]] std::string places(std::span<const ElfSegment> segments, bool is_loaded) const {
    uint64_t left = kMostPlaces;
    for (const Section& section : all_) {
      constexpr uint64_t kCode = SHF_ALLOC | SHF_EXECINSTR;
      if (section.sh_type != SHT_PROGBITS || (section.sh_flags & kCode) != kCode || section.sh_size == 0) continue;
      if (segments.size() > left) return {};
      left -= segments.size();
      bool is_held = false, is_same = false;
      for (const ElfSegment& segment : segments) {
        const uint64_t in_segment = section.sh_addr - segment.address;
        if (in_segment >= segment.memory_size_bytes) continue;
        is_held = true;
        is_same = is_same || segment.file_offset_bytes + in_segment == section.sh_offset;
      }
      if (!is_held && is_loaded) return "no segment holds " + std::string(name(section));
      if (is_held && !is_same) return "its segments and sections place " + std::string(name(section)) + " at different offsets";
    }
    return {};
  }
  [[nodiscard]] std::string debug() const {
    for (const Section& section : all_) {
      if (!name(section).starts_with(".debug_") || section.sh_type == SHT_NOBITS) continue;
      if (!is_inside(file_, section.sh_offset, section.sh_size)) return std::string(name(section)) + " lies outside the file";
      if ((section.sh_flags & SHF_COMPRESSED) == 0) continue;
      const auto packed = read<Chdr>(file_.subspan(section.sh_offset, section.sh_size), 0);
      if (!packed || (packed->ch_type != ELFCOMPRESS_ZLIB && packed->ch_type != kZstd))
        return std::string(name(section)) + " has no valid compression header";
    }
    return {};
  }

 private:
  static constexpr uint32_t kZstd = 2;  // ELFCOMPRESS_ZSTD

  std::string read_headers() {
    const auto header = read<Header>(file_, 0);
    if (!header || header->e_shoff == 0) return {};
    const auto first = read<Section>(file_, header->e_shoff);
    const uint64_t count = header->e_shnum != 0 || !first ? header->e_shnum : first->sh_size;
    if (!first || header->e_shentsize != sizeof(Section) || count > kMostSectionHeaders ||
        !is_inside(file_, header->e_shoff, count * sizeof(Section)))
      return "its section headers lie outside the file";
    all_.resize(count);
    if (count != 0) std::memcpy(all_.data(), file_.data() + header->e_shoff, count * sizeof(Section));
    const uint64_t names = header->e_shstrndx == SHN_XINDEX ? first->sh_link : header->e_shstrndx;
    if (names == SHN_UNDEF) return {};
    if (names >= count || !is_inside(file_, all_[names].sh_offset, all_[names].sh_size))
      return "the names of its sections lie outside the file";
    names_ = file_.subspan(all_[names].sh_offset, all_[names].sh_size);
    names_at_ = names;
    return {};
  }
  [[nodiscard]] std::string_view name(const Section& section) const {
    if (section.sh_name >= names_.size()) return {};
    const char* text = reinterpret_cast<const char*>(names_.data()) + section.sh_name;
    return {text, ::strnlen(text, names_.size() - section.sh_name)};
  }
  [[nodiscard]] std::string table(const Section& section, bool names) const {
    if (!is_inside(file_, section.sh_offset, section.sh_size)) return "it lies outside the file";
    if (section.sh_entsize != sizeof(Symbol) || section.sh_size % sizeof(Symbol) != 0) return "its size is not one of symbols";
    if ((section.sh_flags & SHF_COMPRESSED) != 0) return "it is marked as compressed";
    if (section.sh_link >= all_.size() || all_[section.sh_link].sh_type != SHT_STRTAB) return "it refers to no table of names";
    const Section& strings = all_[section.sh_link];
    if (!is_inside(file_, strings.sh_offset, strings.sh_size)) return "its table of names lies outside the file";
    if (!names) return {};
    const Bytes text = file_.subspan(strings.sh_offset, strings.sh_size);
    const uint64_t count = std::min(section.sh_size / sizeof(Symbol), kMostSymbols);
    uint64_t wrong = 0, name_bytes = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t at = read<Symbol>(file_, section.sh_offset + i * sizeof(Symbol))->st_name;
      wrong += at >= std::max<uint64_t>(text.size(), 1) ? 1 : 0;
      if (at < text.size())
        name_bytes += ::strnlen(reinterpret_cast<const char*>(text.data()) + at, std::min(text.size() - at, kMaxSymbolNameBytes));
    }
    if (wrong != 0) return std::to_string(wrong) + " of " + std::to_string(count) + " symbols have no valid name";
    return name_bytes <= most_name_bytes(text.size(), count) ? std::string() : "its names overlap and are not all read";
  }

  Bytes file_, names_;
  std::vector<Section> all_;
  uint64_t names_at_ = SHN_UNDEF;
  std::string trouble_;
};

/// Calls f(sections) for the class of the file. Files of the other byte order are not examined.
template <class F>
void examine(Bytes file, F&& f) {
  if (file.size() < EI_NIDENT || static_cast<uint8_t>(file[EI_DATA]) != ELFDATA2LSB) return;
  if (static_cast<uint8_t>(file[EI_CLASS]) == ELFCLASS64) {
    f(Sections<Elf64_Ehdr, Elf64_Shdr, Elf64_Sym, Elf64_Chdr>(file));
  } else if (static_cast<uint8_t>(file[EI_CLASS]) == ELFCLASS32) {
    f(Sections<Elf32_Ehdr, Elf32_Shdr, Elf32_Sym, Elf32_Chdr>(file));
  }
}

std::string mini_damage(const ElfFile& elf) {
  const auto mini = elf.read_mini();
  if (!mini.ok() && mini.error().code == ErrorCode::unsupported_compression)
    return "its .gnu_debugdata is not read (" + mini.error().message + ")";
  std::string damage = mini.ok() ? std::string() : mini.error().message;
  if (mini.ok() && !mini->empty()) {
    damage = "it holds no ELF file";
    if (mini->size() >= SELFMAG && std::memcmp(mini->data(), ELFMAG, SELFMAG) == 0)
      examine(*mini, [&](const auto& sections) { damage = sections.trouble().empty() ? sections.symbols(true) : sections.trouble(); });
  }
  return damage.empty() ? damage : "its .gnu_debugdata is damaged (" + damage + ")";
}

}  // namespace

ElfDamage find_elf_damage(const ElfFile& elf, bool names) {
  ElfDamage damage;
  if (names) damage.mini = mini_damage(elf);
  if (elf.is_core()) return damage;
  examine(elf.file()->bytes(), [&](const auto& sections) {
    damage.symbols = sections.trouble().empty() ? sections.symbols(names) : sections.trouble();
    if (damage.symbols.empty()) damage.symbols = elf.damage();
    if (damage.symbols.empty() && !elf.is_relocatable())
      damage.symbols = sections.places(elf.segments(), elf.has_fixed_addresses() || elf.dynamic_address() != 0);
    damage.debug = sections.names_trouble().empty() ? sections.debug() : sections.names_trouble();
  });
  return damage;
}

bool has_debug_info(const ElfFile& elf) {
  bool has = false;
  if (elf.is_core()) return false;
  examine(elf.file()->bytes(), [&](const auto& sections) { has = sections.has_debug_info(); });
  return has;
}

std::string symbols_sentence(const std::string& path, const std::string& damage) {
  return path + ": its symbol table is damaged (" + damage + "): functions of this file may have no name or a wrong one";
}

std::string mini_sentence(const std::string& path, const std::string& damage) {
  return path + ": " + damage + ": functions of this file may have no name";
}

std::string debug_sentence(const std::string& path, const std::string& damage) {
  return path + ": its debug information is damaged (" + damage + "): source lines and inlined functions of this file are missing";
}

}  // namespace ptd
