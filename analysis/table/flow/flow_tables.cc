// The tables of the flow but `branches`: blocks, edges, events, gaps.
#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "analysis/table/flow/branch_walk.h"
#include "analysis/table/flow/flow_walk.h"
#include "analysis/table/place_names.h"
#include "analysis/table/tables.h"

namespace ptd {

namespace {

/// Rows of the flow. `Row` has a member `at`, its RowContext.
template <typename Row>
class FlowTable : public RowTable<Row> {
 public:
  FlowTable(const Recording& recording, const TableRequest& request) : names_(recording), walk_(recording, request) {}

 protected:
  using Columns = std::vector<RowColumn<Row>>;

  /// time_ns to comm, which all tables of the flow begin with.
  Columns context_columns() {
    const auto dated = [](const Row& row) { return row.at.time != kTimeMin; };
    Columns columns;
    columns.push_back(optional_column<Row, int64_t>("time_ns", ColumnType::int64, [](const Row& row) { return row.at.time.value; }, dated));
    columns.push_back(value_column<Row, uint32_t>("stream", ColumnType::uint32, [](const Row& row) { return row.at.stream; }, false));
    columns.push_back(optional_column<Row, int32_t>("cpu", ColumnType::int32, [](const Row& row) { return row.at.cpu; },
                                                    [](const Row& row) { return row.at.cpu >= 0; }));
    columns.push_back(optional_column<Row, int32_t>("pid", ColumnType::int32, [](const Row& row) { return row.at.pid; },
                                                    [](const Row& row) { return row.at.pid >= 0; }));
    columns.push_back(optional_column<Row, int32_t>("tid", ColumnType::int32, [](const Row& row) { return row.at.tid; },
                                                    [](const Row& row) { return row.at.tid >= 0; }));
    columns.push_back(name_column<Row>("comm", names_.comms, [this](const Row& row) { return names_.comm(row.at.tid, row.at.time); }, false));
    for (RowColumn<Row>& column : columns) column.same_in_group = true;
    return columns;
  }
  /// The names of an address that get(row) returns; null where has(row) is false.
  template <typename Get, typename Has>
  void add_names(Columns& columns, std::array<std::string_view, 3> titles, const Get& get, const Has& has, bool by_default) {
    const auto find = [this, get, has](const Row& row) {
      return has(row) ? names_.find(row.at.space, get(row), row.at.time) : PlaceName{};
    };
    const auto symbol = [this, get, has](const Row& row) { return has(row) ? names_.symbol(row.at.space, get(row), row.at.time) : -1; };
    columns.push_back(name_column<Row>(titles[0], names_.symbols, symbol, by_default));
    columns.push_back(optional_column<Row, uint64_t>(titles[1], ColumnType::uint64, [find](const Row& row) { return find(row).offset_bytes; },
                                                     [find](const Row& row) { return find(row).symbol >= 0; }, false));
    columns.push_back(name_column<Row>(titles[2], names_.modules, [find](const Row& row) { return find(row).module; }, false));
  }
  template <typename Get, typename Has>
  void add_address(Columns& columns, std::string_view title, const Get& get, const Has& has) {
    columns.push_back(optional_column<Row, uint64_t>(title, ColumnType::uint64, [get](const Row& row) { return get(row).value; }, has));
  }
  /// "ambiguous suspect": what is uncertain about the code; null: nothing.
  template <typename Flags>
  RowColumn<Row> marks_column(const Flags& flags_of) {
    return name_column<Row>("marks", marks_.names, [this, flags_of](const Row& row) { return marks_.index_of(flags_of(row)); });
  }

  PlaceNames names_;
  FlowWalk walk_;
  MarkNames marks_;
};

struct BlockRow {
  RowContext at;
  Ip ip;
  Bytes code;
  uint16_t instructions = 0, block_flags = 0;
};

class BlocksTable : public FlowTable<BlockRow> {
 public:
  using FlowTable::FlowTable;
  Status init(const TableRequest& request) {
    const auto always = [](const BlockRow&) { return true; };
    const auto ip = [](const BlockRow& row) { return row.ip; };
    Columns columns = context_columns();
    columns.push_back(value_column<BlockRow, uint64_t>("ip", ColumnType::uint64, [](const BlockRow& row) { return row.ip.value; }));
    add_names(columns, {"symbol", "offset", "module"}, ip, always, true);
    columns.push_back(
        value_column<BlockRow, uint32_t>("instructions", ColumnType::uint32, [](const BlockRow& row) { return row.instructions; }));
    columns.push_back(value_column<BlockRow, uint32_t>("size_bytes", ColumnType::uint32, [](const BlockRow& row) { return row.code.size(); }));
    columns.push_back(bool_column<BlockRow>("taken", [](const BlockRow& row) { return has(row.block_flags, BlockFlag::taken); }));
    columns.push_back(marks_column([](const BlockRow& row) { return row.block_flags; }));
    columns.push_back(text_column<BlockRow>("bytes", ColumnType::binary, [](const BlockRow& row) {
      return std::string_view(reinterpret_cast<const char*>(row.code.data()), row.code.size());
    }, false));
    return choose(columns, request, "blocks");
  }

 protected:
  Result<bool> produce(std::vector<BlockRow>& rows) override {
    const Result<FlowItem> item = walk_.next();
    if (!item) return item.error();
    if (item.value() == FlowItem::end) return false;
    if (item.value() != FlowItem::blocks || !walk_.wanted()) return true;
    const BlockTable& table = walk_.item().table();
    for (const Block& block : walk_.item().blocks()) {
      const BlockInfo& info = table.info(block.node);
      rows.push_back({walk_.context(), info.ip, table.bytes(block.node), block.instructions, block.flags});
    }
    end_group(rows);
    return true;
  }
};

/// Kinds of branches as indexes into a list of names. The names are static, so that one is known by its address.
class KindNames {
 public:
  int32_t index_of(const char* kind) {
    const auto address = reinterpret_cast<uintptr_t>(kind);
    Known& known = known_[(address * 0x9E3779B97F4A7C15ULL) >> (64 - kBits)];
    if (known.kind != kind) known = {kind, names.index_of(kind)};
    return known.index;
  }
  NameList names;

 private:
  static constexpr unsigned kBits = 6;
  struct Known {
    const char* kind = nullptr;
    int32_t index = -1;
  };
  std::array<Known, size_t{1} << kBits> known_;
};

/// A branch and how often it was taken.
struct EdgeRow {
  RowContext at;  ///< of its first time
  Ip from, to;
  int32_t kind = -1;
  uint64_t count = 0;
};

class EdgesTable : public FlowTable<EdgeRow> {
 public:
  EdgesTable(const Recording& recording, const TableRequest& request)
      : FlowTable(recording, request), branches_(walk_, recording.streams().size()) {}
  Status init(const TableRequest& request) {
    const auto always = [](const EdgeRow&) { return true; };
    const auto from = [](const EdgeRow& row) { return row.from; };
    const auto to = [](const EdgeRow& row) { return row.to; };
    Columns columns;
    columns.push_back(value_column<EdgeRow, uint64_t>("count", ColumnType::uint64, [](const EdgeRow& row) { return row.count; }));
    columns.push_back(name_column<EdgeRow>("flags", kinds_.names, [](const EdgeRow& row) { return row.kind; }));
    columns.push_back(value_column<EdgeRow, uint32_t>("space", ColumnType::uint32, [](const EdgeRow& row) { return row.at.space.value; }));
    columns.push_back(value_column<EdgeRow, uint64_t>("ip", ColumnType::uint64, [](const EdgeRow& row) { return row.from.value; }));
    add_names(columns, {"symbol", "offset", "module"}, from, always, true);
    columns.push_back(value_column<EdgeRow, uint64_t>("to", ColumnType::uint64, [](const EdgeRow& row) { return row.to.value; }));
    add_names(columns, {"to_symbol", "to_offset", "to_module"}, to, always, true);
    columns.push_back(optional_column<EdgeRow, int64_t>("first_ns", ColumnType::int64, [](const EdgeRow& row) { return row.at.time.value; },
                                                        [](const EdgeRow& row) { return row.at.time != kTimeMin; }));
    return choose(columns, request, "edges");
  }

 protected:
  Result<bool> produce(std::vector<EdgeRow>& rows) override {
    if (!counted_) {
      if (Status status = count(); !status) return status.error();
      counted_ = true;
    }
    for (auto& [key, row] : edges_) rows.push_back(row);
    edges_.clear();
    const auto order = [](const EdgeRow& a, const EdgeRow& b) {
      if (a.count != b.count) return a.count > b.count;
      return std::tie(a.at.space, a.from, a.to, a.kind) < std::tie(b.at.space, b.from, b.to, b.kind);
    };
    std::sort(rows.begin(), rows.end(), order);
    return false;
  }

 private:
  struct Key {
    uint32_t space = 0;
    int32_t kind = 0;
    uint64_t from = 0, to = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t hash = (key.from * 0x9E3779B97F4A7C15ULL) ^ key.to;
      hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9ULL + (uint64_t{key.space} << 8) + static_cast<uint32_t>(key.kind);
      return static_cast<size_t>(hash ^ (hash >> 32));
    }
  };
  Status count() {
    for (;;) {
      const Result<bool> more = branches_.next();
      if (!more) return more.error();
      if (!more.value()) return {};
      BranchFlow& flow = branches_.flow();
      flow.each(branches_.run(), [&](const FlowBranch&, const BranchEnds& ends) {
        if (ends.has_from && ends.has_to) add(branches_.context(), ends, kinds_.index_of(flow.kind(ends.kind)));
      });
    }
  }
  void add(const RowContext& at, const BranchEnds& ends, int32_t kind) {
    const SpaceId space = is_kernel_half(ends.from) ? kKernelSpace : at.space;
    EdgeRow& edge = edges_[Key{space.value, kind, ends.from.value, ends.to.value}];
    if (edge.count++ != 0) return;
    edge = EdgeRow{at, ends.from, ends.to, kind, 1};
    edge.at.space = space;
  }

  BranchWalk branches_;
  KindNames kinds_;
  std::unordered_map<Key, EdgeRow, Hash> edges_;
  bool counted_ = false;
};

struct EventRow {
  RowContext at;
  Event event;
  int32_t kind = -1;
};

class EventsTable : public FlowTable<EventRow> {
 public:
  using FlowTable::FlowTable;
  Status init(const TableRequest& request) {
    const auto has_from = [](const EventRow& row) { return (row.event.flags & kEventHasFrom) != 0; };
    const auto has_to = [](const EventRow& row) { return (row.event.flags & kEventHasTo) != 0; };
    const auto from = [](const EventRow& row) { return row.event.from; };
    const auto to = [](const EventRow& row) { return row.event.to; };
    Columns columns = context_columns();
    columns.push_back(name_column<EventRow>("event", kinds_, [](const EventRow& row) { return row.kind; }));
    add_address(columns, "ip", from, has_from);
    add_names(columns, {"symbol", "offset", "module"}, from, has_from, false);
    add_address(columns, "to", to, has_to);
    add_names(columns, {"to_symbol", "to_offset", "to_module"}, to, has_to, false);
    columns.push_back(value_column<EventRow, uint64_t>("payload", ColumnType::uint64, [](const EventRow& row) { return row.event.payload; }));
    columns.push_back(value_column<EventRow, uint64_t>("aux", ColumnType::uint64, [](const EventRow& row) { return row.event.aux; }));
    columns.push_back(
        value_column<EventRow, uint64_t>("offset_bytes", ColumnType::uint64, [](const EventRow& row) { return row.event.stream_offset_bytes; }));
    return choose(columns, request, "events");
  }

 protected:
  Result<bool> produce(std::vector<EventRow>& rows) override {
    const Result<FlowItem> item = walk_.next();
    if (!item) return item.error();
    if (item.value() == FlowItem::end) return false;
    if (item.value() != FlowItem::event || !walk_.wanted()) return true;
    const Event& event = walk_.item().event();
    if ((event.flags & kEventStatus) == 0) rows.push_back({walk_.context(), event, kinds_.index_of(name(event.kind))});
    return true;
  }

 private:
  NameList kinds_;
};

struct GapRow {
  RowContext at;
  Gap gap;
  int32_t reason = -1;
};

class GapsTable : public FlowTable<GapRow> {
 public:
  using FlowTable::FlowTable;
  Status init(const TableRequest& request) {
    const auto has_ip = [](const GapRow& row) { return row.gap.ip.value != 0; };
    const auto ip = [](const GapRow& row) { return row.gap.ip; };
    Columns columns = context_columns();
    columns.push_back(name_column<GapRow>("reason", reasons_, [](const GapRow& row) { return row.reason; }));
    add_address(columns, "ip", ip, has_ip);
    add_names(columns, {"symbol", "offset", "module"}, ip, has_ip, true);
    columns.push_back(
        value_column<GapRow, uint64_t>("offset_bytes", ColumnType::uint64, [](const GapRow& row) { return row.gap.stream_offset_bytes; }));
    columns.push_back(value_column<GapRow, uint64_t>("lost_bytes", ColumnType::uint64, [](const GapRow& row) { return row.gap.lost_bytes; }));
    return choose(columns, request, "gaps");
  }

 protected:
  Result<bool> produce(std::vector<GapRow>& rows) override {
    const Result<FlowItem> item = walk_.next();
    if (!item) return item.error();
    if (item.value() == FlowItem::end) return false;
    if (item.value() != FlowItem::gap || !walk_.wanted()) return true;
    const Gap& gap = walk_.item().gap();
    rows.push_back({walk_.context(), gap, reasons_.index_of(name(gap.reason))});
    return true;
  }

 private:
  NameList reasons_;
};

}  // namespace

Result<std::unique_ptr<Table>> open_flow_table(const Recording& recording, std::string_view name, const TableRequest& request) {
  if (name == "blocks") return make_table<BlocksTable>(request, recording, request);
  if (name == "edges") return make_table<EdgesTable>(request, recording, request);
  if (name == "events") return make_table<EventsTable>(request, recording, request);
  if (name == "gaps") return make_table<GapsTable>(request, recording, request);
  return std::unique_ptr<Table>();
}

}  // namespace ptd
