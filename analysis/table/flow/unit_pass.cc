// UnitPass: see unit_pass.h.
#include "analysis/table/flow/unit_pass.h"

#include <utility>

namespace ptd {
namespace {

constexpr unsigned kItemsAtOnce = 512;

TableRequest request_of(const Recording& plan, uint32_t unit, const TableRequest& request) {
  TableRequest own;
  own.unit = units_of(plan)[unit];
  own.streams = {own.unit->stream};
  own.cancelled = request.cancelled;
  own.progress = request.progress;
  return own;
}

}  // namespace

UnitPass::UnitPass(const Recording& plan, uint32_t unit, const TableRequest& request)
    : plan_(plan), unit_(unit), walk_(plan, request_of(plan, unit, request)) {}

Status UnitPass::follow_calls(const std::string& path, bool all) {
  if (!steps_) {
    steps_ = std::make_unique<UnitSteps>(plan_, unit_);
    walk_.set_on_batch([this](const Batch& batch, const BlockTable& blocks, const AuxSegment& segment) { steps_->take(batch, blocks, segment); });
  }
  return path.empty() ? Status() : steps_->write_to(path, all);
}

Result<bool> UnitPass::step() {
  const Result<FlowItem> item = walk_.next();
  if (!item) return item.error();
  if (item.value() != FlowItem::end) {
    for (Consumer* consumer : consumers_) consumer->take_item(item.value());
    return true;
  }
  over_ = true;
  for (Consumer* consumer : consumers_) consumer->end_flow();
  if (!steps_) return false;
  if (Status status = steps_->finish(); !status) return status.error();
  return false;
}

Result<bool> UnitPass::pump() {
  if (!failed_) return failed_.error();
  if (steps_ && !keeps_calls_) steps_->drop_calls();
  for (unsigned i = 0; i < kItemsAtOnce && !over_; ++i) {
    const Result<bool> more = step();
    if (!more) {
      failed_ = more.error();
      return more;
    }
  }
  return !over_;
}

Result<std::vector<std::unique_ptr<Table>>> open_unit_tables(const Recording& plan, uint32_t unit, const std::vector<UnitTable>& tables,
                                                             const std::string& steps, bool all) {
  const auto pass = std::make_shared<UnitPass>(plan, unit, tables.front().second);
  if (!steps.empty()) {
    if (Status status = pass->follow_calls(steps, all); !status) return status.error();
  }
  std::vector<std::unique_ptr<Table>> opened;
  for (const auto& [name, wanted] : tables) {
    TableRequest request = request_of(plan, unit, {});
    request.columns = wanted.columns;
    request.batch_rows = wanted.batch_rows;
    request.pass = pass;
    auto table = open_table(plan, name, request);
    if (!table) return table.error();
    opened.push_back(std::move(*table));
  }
  return opened;
}

Status write_unit_steps(const Recording& plan, uint32_t unit, const std::string& path, const std::function<bool()>& stopped) {
  TableRequest request;
  request.cancelled = stopped;
  UnitPass pass(plan, unit, request);
  if (Status status = pass.follow_calls(path, true); !status) return status;
  for (;;) {
    const Result<bool> more = pass.pump();
    if (!more) return more.error();
    if (!more.value()) return {};
  }
}

}  // namespace ptd
