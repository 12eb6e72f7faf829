// ProcessImage: see process_image.h.
#include "replay/process_image.h"

#include <algorithm>
#include <utility>

#include "replay/text.h"

namespace ptd::replay {

namespace {

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_loader(const MappedElf& mapped) {
  const std::string name = file_name(mapped.section->path);
  return name.starts_with("ld-") || name.starts_with("ld.so");
}

bool is_library(const MappedElf& mapped) {
  const std::string name = file_name(mapped.section->path);
  return name.ends_with(".so") || name.find(".so.") != std::string::npos || mapped.section->path.starts_with("[");
}

}  // namespace

ProcessImage::ProcessImage(ReplayMemory& memory, SpaceId space, TimeNs when, const std::string& comm) : files_(memory.files(space, when)) {
  const auto named = [&](const MappedElf& mapped) { return !comm.empty() && file_name(mapped.section->path).substr(0, 15) == comm; };
  auto program = std::find_if(files_.begin(), files_.end(), named);
  if (program == files_.end()) program = std::find_if_not(files_.begin(), files_.end(), is_library);
  if (program == files_.end()) return;
  has_program_ = true;
  std::rotate(files_.begin(), program, program + 1);
}

std::string ProcessImage::program() const { return has_program_ ? files_.front().elf->path() : std::string(); }

std::string ProcessImage::auxiliary_vector() const {
  if (!has_program_) return {};
  const MappedElf& program = files_.front();
  const size_t word = program.elf->is_64bit() ? 8 : 4;
  std::string vector;
  const auto put = [&](uint64_t type, uint64_t value) {
    for (const uint64_t number : {type, value}) {
      for (size_t i = 0; i < word; ++i) vector += static_cast<char>(number >> (8 * i));
    }
  };
  constexpr uint64_t kPhdr = 3, kPhent = 4, kPhnum = 5, kPageSize = 6, kBase = 7, kEntry = 9;
  const ElfHeaderTable& headers = program.elf->header_table();
  for (const ElfSegment& segment : program.elf->segments()) {
    if (headers.file_offset_bytes < segment.file_offset_bytes) continue;
    const uint64_t into = headers.file_offset_bytes - segment.file_offset_bytes;
    if (into >= segment.file_size_bytes) continue;
    put(kPhdr, program.bias + segment.address + into);
    put(kPhent, headers.entry_bytes);
    put(kPhnum, headers.entries);
    break;
  }
  put(kPageSize, 4096);
  const auto loader = std::find_if(files_.begin() + 1, files_.end(), is_loader);
  put(kBase, loader == files_.end() ? 0 : loader->bias);  // [linux] load_elf_interp(): the address minus that in the file
  put(kEntry, program.bias + program.elf->entry());
  put(0, 0);
  return vector;
}

std::string ProcessImage::library_list() const {
  std::string list = "<library-list-svr4 version=\"1.0\"";
  if (has_program_) list += " main-lm=\"" + hex(files_.front().section->ip) + "\"";
  list += ">\n";
  for (size_t i = has_program_ ? 1 : 0; i < files_.size(); ++i) {
    const MappedElf& mapped = files_[i];
    if (mapped.elf->dynamic_address() == 0) continue;
    list += "<library name=\"" + xml(mapped.elf->path()) + "\" lm=\"" + hex(mapped.section->ip) + "\" l_addr=\"" + hex(mapped.bias) +
            "\" l_ld=\"" + hex(mapped.bias + mapped.elf->dynamic_address()) + "\" lmid=\"0x0\"/>\n";
  }
  return list + "</library-list-svr4>\n";
}

}  // namespace ptd::replay
