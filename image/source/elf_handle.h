// A libelf descriptor that closes itself.
#pragma once

#include <libelf.h>

#include <memory>

namespace ptd {

struct ElfCloser {
  void operator()(Elf* elf) const { elf_end(elf); }
};
using ElfHandle = std::unique_ptr<Elf, ElfCloser>;

}  // namespace ptd
