// Passes the records of a raw ground truth to EtmEncoder.
#include "capture/emulate/etm/etm_stream.h"

#include <array>
#include <vector>

#include "capture/emulate/etm/etm_encoder.h"
#include "perfio/output_file.h"

namespace ptd::emulate {
namespace {

class Transcoder {
 public:
  Transcoder(const TruthFileWriter::Lookup& lookup, int32_t tid, const EtmMachineOptions& machine, perfio::OutputFile& packet_file,
             perfio::OutputFile& truth_file)
      : lookup_(lookup),
        machine_(machine),
        packet_file_(packet_file),
        truth_file_(truth_file),
        encoder_(packets_, static_cast<uint32_t>(tid), {machine.whole_machine, machine.ete}),
        truth_(truth_bytes_) {}

  void block(uint64_t number, uint64_t first, uint64_t count, bool whole) {
    const TruthBlock* block = lookup_(number);
    if (block == nullptr || first > block->lengths.size() || count > block->lengths.size() - first) return;
    uint64_t at = 0;
    for (uint64_t i = 0; i < first + count; ++i) {
      if (i >= first) {
        const ArmInsn insn = classify_arm(Bytes(block->bytes).subspan(at), ExecMode::a64);
        const EtmEncoder::Synced synced = encoder_.insn(block->ip + at, insn, i == first);
        if (synced.twice) truth_.psb(synced.first_offset_bytes, synced.first_time);
        if (synced.here) truth_.psb(synced.offset_bytes, synced.time);
        if (synced.here) synced_bytes_ = synced.offset_bytes;
        if (synced.here) asked_ = false;
      }
      if (i == first) tell(number, first, count, whole);
      at += block->lengths[i];
    }
  }
  void psb(uint64_t tsc) { encoder_.ask_sync(tsc); }
  void time(uint64_t tsc) {
    time_ = tsc;
    if (machine_.whole_machine && !asked_ && encoder_.written_bytes() - synced_bytes_ >= machine_.sync_bytes) {
      encoder_.ask_sync(tsc);
      asked_ = true;
    }
    encoder_.stamp(tsc);
  }
  void event(uint64_t kind, uint64_t ip) {
    const auto what = static_cast<TruthEvent>(kind);
    if (what == TruthEvent::context) return encoder_.context(static_cast<uint8_t>(ip & 3), static_cast<uint32_t>(ip >> 8));
    if (what >= TruthEvent::exception) {
      encoder_.traced_exception(ip, static_cast<uint32_t>(kind) - static_cast<uint32_t>(TruthEvent::exception));
      return truth_.event(TruthEvent::interrupt, ip);
    }
    encoder_.exception(ip, what == TruthEvent::software_interrupt ? EtmEncoder::kTrap : EtmEncoder::kIrq);
    truth_.event(what, ip);
  }
  void lose() {
    encoder_.lose();
    truth_.lose();
  }
  void recover() {
    if (machine_.whole_machine) encoder_.ask_sync(time_);
    encoder_.recover();
    truth_.recover();
  }
  void end() {
    encoder_.flush();
    truth_.end();
  }
  void flush() { encoder_.flush(); }
  /// Writes what there is to the files.
  Status write_out() {
    encoder_.taken(packets_.size());
    Status status = packet_file_.append(packets_);
    if (status.ok()) status = truth_file_.append(truth_bytes_);
    packets_.clear();
    truth_bytes_.clear();
    return status;
  }

 private:
  void tell(uint64_t number, uint64_t first, uint64_t count, bool whole) {
    if (whole) return truth_.block(static_cast<uint32_t>(number));
    truth_.part(static_cast<uint32_t>(number), static_cast<unsigned>(first), static_cast<unsigned>(count));
  }
  const TruthFileWriter::Lookup& lookup_;
  const EtmMachineOptions machine_;
  uint64_t synced_bytes_ = 0, time_ = 0;
  bool asked_ = false;  ///< for a synchronisation
  perfio::OutputFile& packet_file_;
  perfio::OutputFile& truth_file_;
  std::vector<std::byte> packets_, truth_bytes_;
  EtmEncoder encoder_;
  TruthLog truth_;
};

}  // namespace

Status encode_etm(Bytes log, const TruthFileWriter::Lookup& lookup, int32_t tid, const EtmFiles& files,
                  const std::function<void(Bytes)>& on_passed, const EtmMachineOptions& machine) {
  auto packets = perfio::OutputFile::create(files.packets);
  if (!packets) return packets.error();
  auto truth = perfio::OutputFile::create(files.truth);
  if (!truth) return truth.error();
  Transcoder to(lookup, tid, machine, **packets, **truth);
  Status status;
  const auto on_record = [&](uint64_t tag, const std::array<uint64_t, 3>& field) {
    if (tag >= static_cast<uint64_t>(TruthTag::block)) {
      const uint64_t number = tag - static_cast<uint64_t>(TruthTag::block);
      const TruthBlock* block = lookup(number);
      if (block != nullptr) to.block(number, 0, block->lengths.size(), true);
      return;
    }
    switch (static_cast<TruthTag>(tag)) {
      case TruthTag::part:
        return to.block(field[0], field[1], field[2], false);
      case TruthTag::psb:
        return to.psb(field[1]);
      case TruthTag::event:
        return to.event(field[0], field[1]);
      case TruthTag::time:
        return to.time(field[0]);
      case TruthTag::lose:
        return to.lose();
      case TruthTag::recover:
        return to.recover();
      case TruthTag::end:
        return to.end();
      default:
        return;
    }
  };
  for_each_log_record(log, on_record, [&](Bytes passed) {
    if (status.ok()) status = to.write_out();
    on_passed(passed);
  });
  to.flush();
  if (status.ok()) status = to.write_out();
  if (status.ok()) status = (*packets)->close();
  return status.ok() ? (*truth)->close() : status;
}

}  // namespace ptd::emulate
