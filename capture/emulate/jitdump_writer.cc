// JitdumpWriter.
#include "capture/emulate/jitdump_writer.h"

#include <span>

#include "capture/emulate/shared/user_exec.h"
#include "perfio/format/byte_writer.h"

namespace ptd::emulate {
namespace {

constexpr uint32_t kJitMagic = 0x4A695444, kJitVersion = 1, kJitHeaderBytes = 40, kCodeLoad = 0, kCodeClose = 3;
constexpr uint64_t kArchTimestamp = 1, kRecordHeaderBytes = 16, kLoadBytes = 40;

}  // namespace

Result<std::unique_ptr<JitdumpWriter>> JitdumpWriter::create(const std::string& path, int32_t pid, uint64_t tsc) {
  auto file = perfio::OutputFile::create(path);
  if (!file) return file.error();
  std::vector<std::byte> header;
  perfio::ByteWriter(header)
      .u32(kJitMagic)
      .u32(kJitVersion)
      .u32(kJitHeaderBytes)
      .u32(kMachineX86_64)
      .u32(kCompleteJitdump)
      .u32(static_cast<uint32_t>(pid))
      .u64(tsc)
      .u64(kArchTimestamp);
  std::unique_ptr<JitdumpWriter> writer(new JitdumpWriter(std::move(*file), pid));
  if (Status status = writer->append(header); !status) return status.error();
  return writer;
}

Status JitdumpWriter::append(Bytes bytes) {
  sum_.add(bytes);
  return file_->append(bytes);
}

Status JitdumpWriter::load(uint64_t tsc, int32_t tid, uint64_t ip, Bytes code) {
  const std::string name = jit_address_name(ip);
  const uint64_t length = name.size() + 1;
  scratch_.clear();
  perfio::ByteWriter out(scratch_);
  out.u32(kCodeLoad).u32(static_cast<uint32_t>(kRecordHeaderBytes + kLoadBytes + length + code.size())).u64(tsc);
  out.u32(static_cast<uint32_t>(pid_)).u32(static_cast<uint32_t>(tid)).u64(ip).u64(ip).u64(code.size()).u64(++loads_);
  out.bytes(std::as_bytes(std::span(name.c_str(), length))).bytes(code);
  return append(scratch_);
}

Status JitdumpWriter::finish(uint64_t tsc) {
  scratch_.clear();
  perfio::ByteWriter(scratch_).u32(kCodeClose).u32(kRecordHeaderBytes).u64(tsc);
  if (Status status = append(scratch_); !status) return status;
  return file_->close();
}

}  // namespace ptd::emulate
