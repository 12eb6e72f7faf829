// The Intel PT stream of one cpu.
#include "tests/demo/pt_stream.h"

namespace ptd::demo {
namespace {

constexpr size_t kPsbPeriodBytes = 2048;
constexpr unsigned kShortTntBranches = 6;
constexpr uint64_t kPageTable = 0x1ab2000;

}  // namespace

void PtStream::flush() {
  if (branch_count_ != 0) writer_.tnt(branches_, branch_count_);
  branches_ = branch_count_ = 0;
}

void PtStream::psb_plus(uint64_t tsc, const uint64_t* ip) {
  flush();
  last_psb_ = bytes_.size();
  const uint64_t ctc = tsc / kTscPerCtc;
  mtc_ = ctc >> kMtcPeriod;
  writer_.psb();
  writer_.tsc(tsc);
  writer_.tma(static_cast<uint16_t>(ctc & 0xffff), static_cast<uint16_t>(tsc % kTscPerCtc));
  writer_.cbr(kBusRatio);
  writer_.pip(kPageTable, false);
  writer_.mode_exec(ExecMode::bits64);
  if (ip != nullptr) writer_.fup(*ip);
  writer_.psbend();
}

void PtStream::start(uint64_t ip, uint64_t tsc) {
  psb_plus(tsc, nullptr);
  writer_.mode_exec(ExecMode::bits64);
  writer_.tip_pge(ip);
}

void PtStream::stop(uint64_t ip) {
  flush();
  writer_.fup(ip);
  writer_.tip_pgd_suppressed();
}

void PtStream::timing(uint64_t tsc) {
  while (mtc_ < tsc / kTscPerCtc >> kMtcPeriod) writer_.mtc(static_cast<uint8_t>(++mtc_ & 0xff));
}

void PtStream::psb_if_due(uint64_t ip, uint64_t tsc) {
  if (bytes_.size() - last_psb_ >= kPsbPeriodBytes) psb_plus(tsc, &ip);
}

void PtStream::conditional(bool taken) {
  branches_ = branches_ << 1 | (taken ? 1 : 0);
  if (++branch_count_ == kShortTntBranches) flush();
}

void PtStream::indirect(uint64_t target) {
  flush();
  writer_.tip(target);
}

void PtStream::event(uint64_t from, uint64_t target) {
  flush();
  writer_.fup(from);
  writer_.tip(target);
}

}  // namespace ptd::demo
