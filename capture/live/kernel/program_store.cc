// ProgramStore: see program_store.h. Each entry is a feature section of one program or one BTF, after its bit and its length.
#include "capture/live/kernel/program_store.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "capture/live/kernel/bpf_programs.h"
#include "image/base/system_error.h"
#include "perfio/format/byte_writer.h"
#include "perfio/format/feature_encode.h"
#include "perfio/format/features.h"
#include "perfio/format/wire.h"

namespace ptd::live {

using namespace perfio;

Result<ProgramStore> ProgramStore::create() {
  const int fd = memfd_create("ptdecode-bpf", MFD_CLOEXEC);
  if (fd < 0) return system_error("memory file", ErrorCode::read_failed);
  return ProgramStore(fd);
}

ProgramStore::~ProgramStore() {
  if (fd_ >= 0) close(fd_);
}
ProgramStore::ProgramStore(ProgramStore&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), size_bytes_(other.size_bytes_), types_(std::move(other.types_)) {}
ProgramStore& ProgramStore::operator=(ProgramStore&& other) noexcept {
  std::swap(fd_, other.fd_);
  size_bytes_ = other.size_bytes_;
  types_ = std::move(other.types_);
  return *this;
}

Status ProgramStore::append(uint32_t bit, Bytes bytes) {
  std::vector<std::byte> entry;
  ByteWriter(entry).u64(bit).u64(bytes.size()).bytes(bytes);
  for (size_t done = 0; done < entry.size();) {
    const ssize_t got = pwrite(fd_, entry.data() + done, entry.size() - done, static_cast<off_t>(size_bytes_ + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return system_error("memory file", ErrorCode::read_failed);
    done += static_cast<size_t>(got);
  }
  size_bytes_ += entry.size();
  return {};
}

Status ProgramStore::add(const BpfProgInfo& program) {
  Features one;
  one.bpf_progs = {program};
  if (Status status = append(kFeatureBpfProgInfo, encode_features(one, {}, 0).at(kFeatureBpfProgInfo)); !status) return status;
  if (program.btf_id == 0 || std::find(types_.begin(), types_.end(), program.btf_id) != types_.end()) return {};
  types_.push_back(program.btf_id);
  Features types;
  types.bpf_btf[program.btf_id] = read_bpf_types(program.btf_id);
  if (types.bpf_btf[program.btf_id].empty()) return {};
  return append(kFeatureBpfBtf, encode_features(types, {}, 0).at(kFeatureBpfBtf));
}

void ProgramStore::take(Features& features) const {
  std::vector<std::byte> all(static_cast<size_t>(size_bytes_));
  size_t have = 0;
  while (have < all.size()) {
    const ssize_t got = pread(fd_, all.data() + have, all.size() - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  std::vector<EventAttr> no_attrs;
  Cursor in(Bytes(all).first(have));
  while (in.remaining() >= 16) {
    const uint64_t bit = in.u64();
    const Bytes section = in.take(in.u64());
    if (!in.ok() || !parse_feature(static_cast<uint32_t>(bit), section, features, no_attrs)) break;
  }
}

}  // namespace ptd::live
