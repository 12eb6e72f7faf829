// The table `calls` of a unit: those that begin and end in one group of it.
#include <utility>

#include "analysis/table/call_columns.h"
#include "analysis/table/flow/unit_pass.h"
#include "analysis/table/tables.h"

namespace ptd {

namespace {

class UnitCallsTable : public RowTable<CallRow> {
 public:
  UnitCallsTable(const Recording& plan, const TableRequest& request)
      : request_(request), pass_(*request_.pass), columns_(plan, pass_.steps()->functions()) {
    pass_.keep_calls();
  }
  Status init(const TableRequest& request) {
    std::vector<RowColumn<CallRow>> columns = columns_.all();
    columns.push_back(value_column<CallRow, uint32_t>("group", ColumnType::uint32, [](const CallRow& row) { return row.group; }));
    return choose(columns, request, "calls");
  }

 protected:
  Result<bool> produce(std::vector<CallRow>& rows) override {
    bool over = false;
    if (calls_.empty()) pass_.steps()->give_calls(calls_);
    if (calls_.empty()) {
      const Result<bool> more = pass_.pump(request_);
      if (!more) return more;
      over = !more.value();
      pass_.steps()->give_calls(calls_);
    }
    for (const FinishedCall& call : calls_) rows.push_back({call.step, call.pid, call.tid, call.group});
    calls_.clear();
    return !over;
  }

 private:
  const TableRequest request_;
  UnitPass& pass_;
  CallColumns columns_;
  std::vector<FinishedCall> calls_;
};

}  // namespace

Result<std::unique_ptr<Table>> open_unit_table(const Recording& recording, std::string_view name, const TableRequest& request) {
  if (request.pass == nullptr || name == "edges" || name == "block_counts" || name == "events" || name == "gaps")
    return std::unique_ptr<Table>();
  if (name != "calls")
    return Error{ErrorCode::invalid_argument, "the table '" + std::string(name) + "' is not one that a unit makes with others", 0};
  if (Status status = request.pass->follow_calls({}); !status) return status.error();
  return make_table<UnitCallsTable>(request, recording, request);
}

}  // namespace ptd
