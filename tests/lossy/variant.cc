// Makes damaged or shifted variants of a recording in directory form, for `lossy --damaged` (see kUsage).
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "perfio/format/record_encode.h"
#include "tests/support/perf_edit.h"

namespace {

using namespace ptd;
using namespace ptd::perfio;

constexpr const char* kUsage =
    "usage: variant RECORDING OUT --burst FIRST,N   drops N pokes of one ring, from its poke FIRST on, and says so with a LOST record\n"
    "       variant RECORDING OUT --drop N,S        drops every N-th poke, from poke S on, and says nothing\n"
    "       variant RECORDING OUT --base-after N    the base copy with the first N pokes applied\n";

struct Poke {
  uint64_t addr = 0;
  std::vector<std::byte> new_bytes;
};

std::vector<Poke> pokes_of(const std::string& path) {
  std::vector<Poke> pokes;
  auto reader = PerfReader::open(path);
  if (!reader.ok()) return pokes;
  (void)(*reader)->read([&](const Record& record) {
    if (const auto* poke = std::get_if<TextPokeRecord>(&record.payload)) pokes.push_back({poke->addr, poke->new_bytes});
    return true;
  });
  return pokes;
}

/// Drops `count` pokes of the ring that has the `first`th poke of the file, and the other records of that ring between them, as if it had
/// been full. Records about the trace itself are kept.
Status drop_burst(const std::string& from, const std::string& to, uint64_t first, uint64_t count) {
  uint64_t seen = 0, left = count, dropped = 0;
  std::optional<uint32_t> ring;
  return edit_perf_data(from, to, [&](const EditRecord& edit) {
    EditAction action;
    const bool poke = std::holds_alternative<TextPokeRecord>(edit.record.payload);
    const bool begins = poke && seen++ == first;
    if (begins) ring = edit.record.sample_id.cpu;
    if (!ring || static_cast<uint32_t>(edit.record.sample_id.cpu) != *ring || edit.record.sample_id.time == 0) return action;
    const bool of_trace =
        std::holds_alternative<AuxRecord>(edit.record.payload) || std::holds_alternative<ItraceStartRecord>(edit.record.payload);
    if (left > 0 && !of_trace) {
      left -= poke ? 1 : 0;
      ++dropped;
      action.drop = true;
    } else if (left == 0) {  // the ring has space again: the next record is written after the loss
      std::vector<std::byte> lost;
      EncodeContext context;
      context.sample_id = edit.record.sample_id;
      if (encode_record(LostRecord{edit.record.sample_id.id, dropped, false}, context, edit.attrs[edit.record.attr_index], lost)) {
        action.before.push_back(lost);
        ring.reset();
      }
    }
    return action;
  });
}

Status drop_each(const std::string& from, const std::string& to, uint64_t nth, uint64_t residue) {
  uint64_t seen = 0;
  return edit_perf_data(from, to, [&](const EditRecord& edit) {
    EditAction action;
    action.drop = std::holds_alternative<TextPokeRecord>(edit.record.payload) && seen++ % nth == residue;
    return action;
  });
}

bool apply_to_copy(const std::string& kcore, const std::vector<Poke>& pokes, size_t count) {
  std::fstream file(kcore, std::ios::in | std::ios::out | std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return false;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  if (!file.read(reinterpret_cast<char*>(segments.data()), static_cast<std::streamsize>(segments.size() * sizeof(Elf64_Phdr))))
    return false;
  size_t applied = 0;
  for (size_t i = 0; i < std::min(count, pokes.size()); ++i) {
    for (const Elf64_Phdr& segment : segments) {
      const uint64_t offset = pokes[i].addr - segment.p_vaddr;
      if (segment.p_type != PT_LOAD || offset >= segment.p_filesz || segment.p_filesz - offset < pokes[i].new_bytes.size()) continue;
      file.seekp(static_cast<std::streamoff>(segment.p_offset + offset));
      file.write(reinterpret_cast<const char*>(pokes[i].new_bytes.data()), static_cast<std::streamsize>(pokes[i].new_bytes.size()));
      ++applied;
      break;
    }
  }
  std::printf("%zu of the first %zu pokes applied\n", applied, count);
  return static_cast<bool>(file.flush());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const std::string from = argv[1], to = argv[2], what = argv[3];
  if (what == "--burst" || what == "--drop") {
    char* rest = nullptr;
    const uint64_t first = std::strtoull(argv[4], &rest, 10);
    const uint64_t count = *rest == ',' ? std::strtoull(rest + 1, nullptr, 10) : 0;
    const Status status = what == "--burst" ? drop_burst(from, to, first, count) : drop_each(from, to, std::max<uint64_t>(first, 1), count);
    if (!status.ok()) std::fprintf(stderr, "variant: %s\n", status.error().message.c_str());
    return status.ok() ? 0 : 1;
  }
  const Status copied = edit_perf_data(from, to, [](const EditRecord&) { return EditAction{}; });
  if (what != "--base-after" || !copied.ok()) return 1;
  return apply_to_copy(to + "/kcore_dir/kcore", pokes_of(from), std::strtoull(argv[4], nullptr, 10)) ? 0 : 1;
}
