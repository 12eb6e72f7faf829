// The table `branches`.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/table/block_symbols.h"
#include "analysis/table/branch_walk.h"
#include "analysis/table/place_names.h"
#include "analysis/table/row_table.h"
#include "analysis/table/tables.h"

namespace ptd {

namespace {

using Groups = RowGroups<FlowBranch>;
using BranchColumn = RowColumn<FlowBranch>;

/// What the rows of a group have in common.
struct Run {
  Run(const RowContext& context, std::span<const FlowBranch> branches) : at(context) {
    for (const FlowBranch& branch : branches) {
      block_flags |= branch.block_flags;
      all_have_both &= branch.has_from && branch.has_to;
    }
  }
  RowContext at;
  uint16_t block_flags = 0;  ///< each that any of them has
  bool all_have_both = true;  ///< addresses
};

/// The address that a branch leaves.
struct FromEnd {
  static bool has(const FlowBranch& branch) { return branch.has_from; }
  static Ip ip(const FlowBranch& branch) { return branch.from; }
  static NodeId node(const FlowBranch& branch) { return branch.node; }
};
/// The address that it goes to.
struct ToEnd {
  static bool has(const FlowBranch& branch) { return branch.has_to; }
  static Ip ip(const FlowBranch& branch) { return branch.to; }
  static NodeId node(const FlowBranch& branch) { return branch.to_node; }
};

/// Rows are the branches of BranchFlow. Each of its runs is a group, which has one context.
class BranchesTable : public RowTable<FlowBranch> {
 public:
  BranchesTable(const Recording& recording, const TableRequest& request)
      : names_(recording), walk_(recording, request), branches_(recording.streams().size()) {}
  Status init(const TableRequest& request) {
    add_context();
    add_kind();
    add_end<FromEnd>("ip", {"symbol", "offset", "module"}, from_symbols_);
    add_end<ToEnd>("to", {"to_symbol", "to_offset", "to_module"}, to_symbols_);
    add_value(value_column<FlowBranch, uint32_t>("instructions", ColumnType::uint32, [](const FlowBranch& row) { return row.instructions; }));
    add_marks();
    return choose(std::move(columns_), request, "branches");
  }

 protected:
  Result<bool> produce(std::vector<FlowBranch>& rows) override {
    if (first_of_stage()) runs_.clear();
    const Result<FlowItem> item = walk_.next();
    if (!item) return item.error();
    branches_.take(item.value(), walk_, [this, &rows](const BranchFlow&, const RowContext& at, std::span<const FlowBranch> branches) {
      runs_.emplace_back(at, branches);
      add_group(rows, branches);
    });
    return item.value() != FlowItem::end;
  }

 private:
  /// std::fill_n() for the compiler: mostly a loop of constant length.
  template <typename T>
  static T* fill_values(T* out, size_t count, T value) {
    constexpr size_t kOnce = 32;
    for (; count >= kOnce; count -= kOnce, out += kOnce) {
      for (size_t i = 0; i < kOnce; ++i) out[i] = value;
    }
    return std::fill_n(out, count, value);
  }
  using Titles = std::array<std::string_view, 3>;

  void add_value(BranchColumn column) { columns_.push_back(std::move(column)); }
  /// time_ns to comm, which all tables of the flow begin with.
  void add_context() {
    add_same<int64_t>({"time_ns", ColumnType::int64, true}, [](const RowContext& at) { return at.time.value; },
                      [](const RowContext& at) { return at.time != kTimeMin; });
    add_same<uint32_t>({"stream", ColumnType::uint32, false}, [](const RowContext& at) { return at.stream; }, [](const RowContext&) { return true; });
    columns_.back().by_default = false;
    add_same<int32_t>({"cpu", ColumnType::int32, true}, [](const RowContext& at) { return at.cpu; }, [](const RowContext& at) { return at.cpu >= 0; });
    add_same<int32_t>({"pid", ColumnType::int32, true}, [](const RowContext& at) { return at.pid; }, [](const RowContext& at) { return at.pid >= 0; });
    add_same<int32_t>({"tid", ColumnType::int32, true}, [](const RowContext& at) { return at.tid; }, [](const RowContext& at) { return at.tid >= 0; });
    const auto comm = [this](const Groups& groups, Column& out) {
      int32_t* const first = out.append<int32_t>(groups.rows.size());
      int32_t* next = first;
      groups.each([&](size_t group, std::span<const FlowBranch> rows) {
        next = std::fill_n(next, rows.size(), names_.comm(runs_[group].at.tid, runs_[group].at.time));
      });
      out.add_names({first, next});
    };
    columns_.push_back(grouped({"comm", ColumnType::name, true}, false, comm, &names_.comms));
  }
  void add_kind() {
    indexes_of_kinds_.resize(branches_.streams());
    const auto fill = [this](const Groups& groups, Column& out) {
      int32_t* const first = out.append<int32_t>(groups.rows.size());
      int32_t* next = first;
      groups.each([&](size_t group, std::span<const FlowBranch> rows) {
        std::vector<int32_t>& list = indexes_of_kinds_[runs_[group].at.stream];
        if (list.empty()) list.assign(256, -1);
        int32_t* const known = list.data();
        for (const FlowBranch& row : rows) {
          const uint8_t kind = row.kind;
          if (known[kind] < 0) known[kind] = kinds_.index_of(branches_.flow(runs_[group].at.stream).kind(kind));
          *next++ = known[kind];
        }
      });
      out.add_rows(groups.rows.size(), true);
    };
    columns_.push_back(grouped({"flags", ColumnType::name, true}, true, fill, &kinds_));
  }
  void add_marks() {
    const auto fill = [this](const Groups& groups, Column& out) {
      groups.each([&](size_t group, std::span<const FlowBranch> rows) {
        const std::span<int32_t> indexes(out.append<int32_t>(rows.size()), rows.size());
        if (!MarkNames::any(runs_[group].block_flags)) {
          std::fill(indexes.begin(), indexes.end(), 0);
          return out.add_rows(indexes.size(), false);
        }
        for (size_t i = 0; i < indexes.size(); ++i) indexes[i] = marks_.index_of(rows[i].block_flags);
        out.add_names(indexes);
      });
    };
    columns_.push_back(grouped({"marks", ColumnType::name, true}, true, fill, &marks_.names));
  }
  /// A column with one value for all rows of a context.
  template <typename T, typename Get, typename Has>
  void add_same(const ColumnInfo& info, const Get& get, const Has& has) {
    const auto fill = [this, get, has](const Groups& groups, Column& out) {
      T* next = out.append<T>(groups.rows.size());
      T value{};
      bool valid = false;
      size_t count = 0;
      const auto put = [&] {
        next = fill_values(next, count, value);
        out.add_rows(count, valid);
      };
      groups.each([&](size_t group, std::span<const FlowBranch> rows) {
        const RowContext& at = runs_[group].at;
        const auto own = static_cast<T>(get(at));
        if (own != value || has(at) != valid) {
          put();
          value = own, valid = has(at), count = 0;
        }
        count += rows.size();
      });
      put();
    };
    columns_.push_back(grouped(info, true, fill, nullptr));
  }
  /// An address of the branch and its names.
  template <typename End>
  void add_end(std::string_view title, const Titles& names, std::vector<BlockSymbols>& known) {
    const auto address = [this](const Groups& groups, Column& out) {
      groups.each([&](size_t group, std::span<const FlowBranch> rows) {
        if (!runs_[group].all_have_both) {
          return out.put_optional<uint64_t>(rows, [](const FlowBranch& row, uint64_t& value) {
            value = End::ip(row).value;
            return End::has(row);
          });
        }
        uint64_t* next = out.append<uint64_t>(rows.size());
        for (const FlowBranch& row : rows) *next++ = End::ip(row).value;
        out.add_rows(rows.size(), true);
      });
    };
    columns_.push_back(grouped({title, ColumnType::uint64, true}, true, address, nullptr));
    known.resize(branches_.streams());
    const auto symbol = [this, &known](const Groups& groups, Column& out) {
      int32_t* const first = out.append<int32_t>(groups.rows.size());
      int32_t* next = first;
      groups.each([&](size_t group, std::span<const FlowBranch> rows) {
        const RowContext& at = runs_[group].at;
        known[at.stream].find(names_, at.space, at.time, rows, End{}, next);
        next += rows.size();
      });
      out.add_names({first, next});
    };
    columns_.push_back(grouped({names[0], ColumnType::name, true}, true, symbol, &names_.symbols));
    const auto offset = [](const PlaceName& name, uint64_t& value) {
      value = name.offset_bytes;
      return name.symbol >= 0;
    };
    const auto module = [](const PlaceName& name, int32_t& value) {
      value = std::max(name.module, 0);
      return name.module >= 0;
    };
    columns_.push_back(grouped({names[1], ColumnType::uint64, true}, false, place_fill<End, uint64_t>(offset), nullptr));
    columns_.push_back(grouped({names[2], ColumnType::name, true}, false, place_fill<End, int32_t>(module), &names_.modules));
  }
  /// Fills a column by get(name, value) as Column::put_optional().
  template <typename End, typename T, typename Get>
  auto place_fill(const Get& get) {
    return [this, get](const Groups& groups, Column& out) {
      groups.each([&](size_t group, std::span<const FlowBranch> rows) {
        const RowContext& at = runs_[group].at;
        out.put_optional<T>(rows, [&](const FlowBranch& row, T& value) {
          return get(End::has(row) ? names_.find(at.space, End::ip(row), at.time) : PlaceName{}, value);
        });
      });
    };
  }
  template <typename Fill>
  static BranchColumn grouped(const ColumnInfo& info, bool by_default, const Fill& fill, NameList* names) {
    return {info, by_default, nullptr, names, false, fill};
  }

  PlaceNames names_;
  FlowWalk walk_;
  BranchWalk branches_;
  NameList kinds_;
  std::vector<std::vector<int32_t>> indexes_of_kinds_;  // in kinds_: one list a stream
  MarkNames marks_;
  std::vector<BlockSymbols> from_symbols_, to_symbols_;  // one a stream
  std::vector<Run> runs_;                                // one a group
  std::vector<BranchColumn> columns_;                    // all that the table has
};

}  // namespace

Result<std::unique_ptr<Table>> open_branch_table(const Recording& recording, std::string_view name, const TableRequest& request) {
  if (name == "branches") return make_table<BranchesTable>(request, recording, request);
  return std::unique_ptr<Table>();
}

}  // namespace ptd
