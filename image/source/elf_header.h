// ELF file headers for output: memory cores and small test programs.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ptd {

/// Returns the header of a little-endian 64-bit file whose program headers follow directly. `type`, `machine`: as in elf(5).
inline Elf64_Ehdr elf_header(uint16_t type, uint16_t machine, size_t segments) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = type;
  header.e_machine = machine;
  header.e_version = EV_CURRENT;
  header.e_phoff = header.e_ehsize = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = static_cast<Elf64_Half>(segments);
  return header;
}

}  // namespace ptd
