// The table `branches`.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/table/flow/branch_batch.h"
#include "analysis/table/flow/branch_nodes.h"
#include "analysis/table/flow/branch_walk.h"
#include "analysis/table/tables.h"

namespace ptd {

namespace {

/// Rows are the branches of BranchFlow, written to the columns from its runs.
class BranchesTable : public Table {
 public:
  BranchesTable(const Recording& recording, const TableRequest& request)
      : names_(recording),
        walk_(recording, request),
        branches_(walk_, recording.streams().size(), [this](uint32_t stream) { nodes_[stream] = BranchNodes(batch_->with_symbols()); }),
        streams_(recording.streams().size()) {}

  Status init(const TableRequest& request) {
    Result<std::vector<size_t>> chosen = choose_columns(kBranchColumns, request, "branches");
    if (!chosen) return chosen.error();
    batch_.emplace(names_, std::move(chosen.value()), request.batch_rows);
    nodes_.assign(streams_, BranchNodes(batch_->with_symbols()));
    return {};
  }

  [[nodiscard]] std::vector<ColumnInfo> columns() const override { return batch_->columns(); }

  [[nodiscard]] Result<RowBatch> next() override {
    batch_->begin();
    while (!batch_->full()) {
      if (left_.blocks.empty()) {
        const Result<bool> more = branches_.next();
        if (!more) return more.error();
        if (!more.value()) break;
        left_ = {branches_.flow().blocks(branches_.run()), branches_.run().instructions};
        specials_ = branches_.flow().specials(branches_.run());
      }
      add_rows();
    }
    return batch_->finish();
  }

 private:
  /// Adds the rows of the run that the batch can hold: pieces without special branches, and special branches.
  void add_rows() {
    BranchFlow& flow = branches_.flow();
    const RowContext& at = branches_.context();
    batch_->begin_rows(at);
    while (!left_.blocks.empty() && !batch_->full()) {
      const size_t block = branches_.run().count - left_.blocks.size();
      const size_t plain = specials_.empty() ? left_.blocks.size() : specials_.front().block - block;
      if (plain == 0) {
        const BranchEnds& ends = specials_.front().ends;
        batch_->add_special(at, left_, ends, flow.kind(ends.kind));
        specials_ = specials_.subspan(1);
      } else {
        batch_->add(at, left_, plain, flow, nodes_[at.stream]);
      }
    }
  }

  PlaceNames names_;
  FlowWalk walk_;
  BranchWalk branches_;
  const size_t streams_;
  std::vector<BranchNodes> nodes_;  // one a stream
  std::optional<BranchBatch> batch_;
  // Of the run that branches_ is at: what is not in a batch yet.
  BranchBlocks left_;
  std::span<const SpecialBranch> specials_;
};

}  // namespace

Result<std::unique_ptr<Table>> open_branch_table(const Recording& recording, std::string_view name, const TableRequest& request) {
  if (name == "branches") return make_table<BranchesTable>(request, recording, request);
  return std::unique_ptr<Table>();
}

}  // namespace ptd
