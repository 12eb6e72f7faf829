// UnitPass: see unit_pass.h.
#include "analysis/table/flow/unit_pass.h"

#include <algorithm>
#include <utility>

namespace ptd {
namespace {

constexpr unsigned kItemsAtOnce = 512;

TableRequest request_of(const Recording& plan, uint32_t unit) {
  TableRequest request;
  request.unit = units_of(plan)[unit];
  request.streams = {request.unit->stream};
  return request;
}

}  // namespace

UnitPass::UnitPass(const Recording& plan, uint32_t unit) : plan_(plan), unit_(unit), walk_(plan, walk_request()) {}

TableRequest UnitPass::walk_request() const {
  TableRequest request = request_of(plan_, unit_);
  request.cancelled = [this] { return reader_->cancelled && reader_->cancelled(); };
  request.progress = [this](uint64_t done, uint64_t total) {
    if (reader_->progress) reader_->progress(done, total);
  };
  return request;
}

Status UnitPass::follow_calls(const std::string& path, bool all) {
  if (!steps_) {
    steps_ = std::make_unique<UnitSteps>(plan_, unit_);
    walk_.set_on_batch(
        [this](const Batch& batch, const BlockTable& blocks, const AuxSegment& segment) { steps_->take(batch, blocks, segment); });
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

Result<bool> UnitPass::pump(const TableRequest& reader) {
  if (!failed_) return failed_.error();
  reader_ = &reader;
  if (steps_ && !keeps_calls_) steps_->drop_calls();
  for (unsigned i = 0; i < kItemsAtOnce && !over_; ++i) {
    const Result<bool> more = step();
    if (!more) {
      if (more.error().kind() != ErrorKind::cancelled) failed_ = more.error();
      return more;
    }
  }
  return !over_;
}

Result<std::vector<std::unique_ptr<Table>>> open_unit_tables(const Recording& plan, uint32_t unit, const std::vector<UnitTable>& tables,
                                                             const std::string& steps, bool all) {
  if (std::count_if(tables.begin(), tables.end(), [](const UnitTable& table) { return table.first == "calls"; }) > 1)
    return Error{ErrorCode::invalid_argument, "the table 'calls' of a unit is named twice; it can be read once", 0};
  const auto pass = std::make_shared<UnitPass>(plan, unit);
  if (!steps.empty()) {
    if (Status status = pass->follow_calls(steps, all); !status) return status.error();
  }
  std::vector<std::unique_ptr<Table>> opened;
  for (const auto& [name, wanted] : tables) {
    TableRequest request = request_of(plan, unit);
    request.columns = wanted.columns;
    request.batch_rows = wanted.batch_rows;
    request.cancelled = wanted.cancelled;
    request.progress = wanted.progress;
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
  UnitPass pass(plan, unit);
  if (Status status = pass.follow_calls(path, true); !status) return status;
  for (;;) {
    const Result<bool> more = pass.pump(request);
    if (!more) return more.error();
    if (!more.value()) return {};
  }
}

}  // namespace ptd
