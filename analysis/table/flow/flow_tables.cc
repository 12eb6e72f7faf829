// The tables of the flow but `branches`: blocks, edges, events, gaps.
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "analysis/table/code_keys.h"
#include "analysis/table/flow/branch_walk.h"
#include "analysis/table/flow/flow_walk.h"
#include "analysis/table/flow/unit_pass.h"
#include "analysis/table/place_names.h"
#include "analysis/table/tables.h"
#include "image/base/fnv.h"
#include "ptdecode/guest.h"

namespace ptd {

namespace {

/// The earlier of two moments: whatever the order of streams, the first of several. Unknown moments come last.
TimeNs earlier(TimeNs a, TimeNs b) { return a == kTimeMin || (b != kTimeMin && b < a) ? b : a; }

/// Rows of the flow. `Row` has a member `at`, its RowContext.
template <typename Row>
class FlowTable : public RowTable<Row>, private UnitPass::Consumer {
 public:
  FlowTable(const Recording& recording, const TableRequest& request)
      : names_(recording),
        codes_(recording),
        request_(request),
        own_walk_(request_.pass ? nullptr : std::make_unique<FlowWalk>(recording, request)),
        walk_(request_.pass ? request_.pass->walk() : *own_walk_) {
    if (request_.pass) request_.pass->add(*this);
  }
  ~FlowTable() override {
    if (request_.pass) request_.pass->remove(*this);
  }
  FlowTable(const FlowTable&) = delete;
  FlowTable& operator=(const FlowTable&) = delete;

 protected:
  /// Appends the rows of the item that the walk has come to.
  virtual void take(FlowItem item, std::vector<Row>& rows) = 0;
  /// A stream of several is over: frees what was kept for it.
  virtual void end_stream(uint32_t) {}
  /// Appends the rows that come at the end.
  virtual void end(std::vector<Row>&) {}
  Result<bool> produce(std::vector<Row>& rows) final { return request_.pass ? produce_shared(rows) : produce_own(rows); }

  using Columns = std::vector<RowColumn<Row>>;

  /// time_ns to comm, which all tables of the flow begin with.
  Columns context_columns() {
    const auto dated = [](const Row& row) { return row.at.time != kTimeMin; };
    Columns columns;
    columns.push_back(optional_column<Row, int64_t>(
        "time_ns", ColumnType::int64, [](const Row& row) { return row.at.time.value; }, dated));
    columns.push_back(value_column<Row, uint32_t>(
        "stream", ColumnType::uint32, [](const Row& row) { return row.at.stream; }, false));
    columns.push_back(optional_column<Row, int32_t>(
        "cpu", ColumnType::int32, [](const Row& row) { return row.at.cpu; }, [](const Row& row) { return row.at.cpu >= 0; }));
    columns.push_back(optional_column<Row, int32_t>(
        "pid", ColumnType::int32, [](const Row& row) { return row.at.pid; }, [](const Row& row) { return row.at.pid >= 0; }));
    columns.push_back(optional_column<Row, int32_t>(
        "tid", ColumnType::int32, [](const Row& row) { return row.at.tid; }, [](const Row& row) { return row.at.tid >= 0; }));
    columns.push_back(value_column<Row, uint32_t>(
        "space", ColumnType::uint32, [](const Row& row) { return row.at.space.value; }, false));
    columns.push_back(name_column<Row>(
        "comm", names_.comms, [this](const Row& row) { return names_.comm(row.at.tid, row.at.time); }, false));
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
    columns.push_back(optional_column<Row, uint64_t>(
        titles[1], ColumnType::uint64, [find](const Row& row) { return find(row).offset_bytes; },
        [find](const Row& row) { return find(row).symbol >= 0; }, false));
    columns.push_back(name_column<Row>(
        titles[2], names_.modules, [find](const Row& row) { return find(row).module; }, false));
  }
  template <typename Get, typename Has>
  void add_address(Columns& columns, std::string_view title, const Get& get, const Has& has) {
    columns.push_back(optional_column<Row, uint64_t>(
        title, ColumnType::uint64, [get](const Row& row) { return get(row).value; }, has));
  }
  /// The code that get(row) returns, on request.
  template <typename Get>
  void add_code(Columns& columns, std::array<std::string_view, 2> titles, const Get& get) {
    columns.push_back(name_column<Row>(
        titles[0], codes_.codes, [get](const Row& row) { return get(row).code; }, false));
    columns.push_back(optional_column<Row, uint64_t>(
        titles[1], ColumnType::uint64, [get](const Row& row) { return get(row).offset_bytes; },
        [get](const Row& row) { return get(row).code >= 0; }, false));
  }
  /// Whether a column of code is wanted: rows of one address with different code are then apart.
  static bool asks_for_code(const TableRequest& request) {
    return std::any_of(request.columns.begin(), request.columns.end(),
                       [](const std::string& name) { return name.find("code") != std::string::npos; });
  }
  /// "ambiguous suspect": what is uncertain about the code; null: nothing.
  template <typename Flags>
  RowColumn<Row> marks_column(const Flags& flags_of) {
    return name_column<Row>("marks", marks_.names, [this, flags_of](const Row& row) { return marks_.index_of(flags_of(row)); });
  }

  PlaceNames names_;
  CodeKeys codes_;

 private:
  Result<bool> produce_own(std::vector<Row>& rows) {
    const Result<FlowItem> item = walk_.next();
    if (!item) return item.error();
    if (!walk_.ended().empty()) this->fill_now();
    for (const uint32_t stream : walk_.ended()) end_stream(stream);
    if (item.value() == FlowItem::end) {
      end(rows);
      return false;
    }
    take(item.value(), rows);
    return true;
  }
  Result<bool> produce_shared(std::vector<Row>& rows) {
    if (waiting_.empty() && !ended_) {
      const Result<bool> more = request_.pass->pump(request_);
      if (!more) return more;
    }
    rows.insert(rows.end(), waiting_.begin(), waiting_.end());
    waiting_.clear();
    return !ended_;
  }
  void take_item(FlowItem item) final { take(item, waiting_); }
  void end_flow() final {
    end(waiting_);
    ended_ = true;
  }
  const TableRequest request_;
  const std::unique_ptr<FlowWalk> own_walk_;
  std::vector<Row> waiting_;  ///< of a shared walk
  bool ended_ = false;

 protected:
  FlowWalk& walk_;
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
    columns.push_back(
        value_column<BlockRow, uint32_t>("size_bytes", ColumnType::uint32, [](const BlockRow& row) { return row.code.size(); }));
    columns.push_back(bool_column<BlockRow>("taken", [](const BlockRow& row) { return has(row.block_flags, BlockFlag::taken); }));
    columns.push_back(marks_column([](const BlockRow& row) { return row.block_flags; }));
    columns.push_back(text_column<BlockRow>(
        "bytes", ColumnType::binary,
        [](const BlockRow& row) { return std::string_view(reinterpret_cast<const char*>(row.code.data()), row.code.size()); }, false));
    return choose(columns, request, "blocks");
  }

 protected:
  void take(FlowItem item, std::vector<BlockRow>& rows) override {
    if (item != FlowItem::blocks || !walk_.wanted()) return;
    const BlockTable& table = walk_.item().table();
    for (const Block& block : walk_.item().blocks()) {
      const BlockInfo& info = table.info(block.node);
      rows.push_back({walk_.context(), info.ip, table.bytes(block.node), block.instructions, block.flags});
    }
    end_group(rows);
  }
};

/// The blocks of one place and content.
struct BlockCountRow {
  RowContext at;  ///< of the first time
  Ip ip;
  uint32_t size_bytes = 0, instructions = 0;
  uint64_t hash = 0;  ///< of its bytes
  CodeKeys::Key code;
  uint64_t count = 0, uncertain = 0;
};

class BlockCountsTable : public FlowTable<BlockCountRow> {
 public:
  BlockCountsTable(const Recording& recording, const TableRequest& request)
      : FlowTable(recording, request), nodes_(recording.streams().size()) {}
  Status init(const TableRequest& request) {
    using Row = BlockCountRow;
    const auto always = [](const Row&) { return true; };
    const auto ip = [](const Row& row) { return row.ip; };
    with_code_ = asks_for_code(request);
    Columns columns;
    columns.push_back(value_column<Row, uint64_t>("count", ColumnType::uint64, [](const Row& row) { return row.count; }));
    columns.push_back(value_column<Row, uint64_t>("uncertain", ColumnType::uint64, [](const Row& row) { return row.uncertain; }));
    columns.push_back(value_column<Row, uint32_t>("space", ColumnType::uint32, [](const Row& row) { return row.at.space.value; }));
    columns.push_back(value_column<Row, uint64_t>("ip", ColumnType::uint64, [](const Row& row) { return row.ip.value; }));
    add_names(columns, {"symbol", "offset", "module"}, ip, always, true);
    columns.push_back(value_column<Row, uint32_t>("instructions", ColumnType::uint32, [](const Row& row) { return row.instructions; }));
    columns.push_back(value_column<Row, uint32_t>("size_bytes", ColumnType::uint32, [](const Row& row) { return row.size_bytes; }));
    columns.push_back(value_column<Row, uint64_t>("hash", ColumnType::uint64, [](const Row& row) { return row.hash; }));
    columns.push_back(optional_column<Row, int64_t>(
        "first_ns", ColumnType::int64, [](const Row& row) { return row.at.time.value; },
        [](const Row& row) { return row.at.time != kTimeMin; }));
    add_code(columns, {"code", "code_offset"}, [](const Row& row) { return row.code; });
    return choose(columns, request, "block_counts");
  }

 protected:
  void take(FlowItem item, std::vector<BlockCountRow>&) override {
    if (item == FlowItem::blocks && walk_.wanted()) count();
  }
  void end_stream(uint32_t stream) override { nodes_[stream] = {}; }
  void end(std::vector<BlockCountRow>& rows) override {
    for (auto& [key, row] : counts_) rows.push_back(row);
    counts_.clear();
    const auto order = [](const BlockCountRow& a, const BlockCountRow& b) {
      return std::tie(b.count, a.at.space, a.ip, a.size_bytes, a.instructions, a.hash, a.at.time) <
             std::tie(a.count, b.at.space, b.ip, b.size_bytes, b.instructions, b.hash, b.at.time);
    };
    std::sort(rows.begin(), rows.end(), order);
  }

 private:
  using Key = std::tuple<uint32_t, uint64_t, uint32_t, uint32_t, uint64_t, CodeKeys::Key>;  ///< space, ip, instructions, size, hash, code
  /// The row that a node counts for, at these times.
  struct Known {
    BlockCountRow* row = nullptr;
    Interval valid;
  };
  void count() {
    const BlockTable& table = walk_.item().table();
    std::vector<Known>& nodes = nodes_[walk_.stream()];
    if (nodes.size() < table.size()) nodes.resize(table.size());
    const TimeNs time = walk_.context().time;
    for (const Block& block : walk_.item().blocks()) {
      Known& known = nodes[block.node];
      if (known.row == nullptr || known.row->instructions != block.instructions || !known.valid.contains(time))
        known = row_of(table, block);
      ++known.row->count;
      known.row->at.time = earlier(known.row->at.time, time);
      if ((block.flags & kUncertainFlags) != 0) ++known.row->uncertain;
    }
  }
  Known row_of(const BlockTable& table, const Block& block) {
    const BlockInfo& info = table.info(block.node);
    const Bytes bytes = table.bytes(block.node);
    const SpaceId space = space_at(info.space, info.ip);
    const auto size = static_cast<uint32_t>(bytes.size());
    const uint64_t hash = fnv1a(bytes);
    const CodeKeys::Found code = with_code_ ? codes_.find(space, info.ip, walk_.context().time) : CodeKeys::Found{};
    const auto [at, is_new] = counts_.try_emplace(Key(space.value, info.ip.value, block.instructions, size, hash, code.key));
    if (is_new) {
      at->second = {walk_.context(), info.ip, size, block.instructions, hash, code.key, 0, 0};
      at->second.at.space = space;
    }
    return {&at->second, code.valid};
  }

  bool with_code_ = false;
  std::vector<std::vector<Known>> nodes_;  ///< one a stream, by node
  std::map<Key, BlockCountRow> counts_;
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
  CodeKeys::Key code, to_code;
  uint64_t count = 0, uncertain = 0;
};

class EdgesTable : public FlowTable<EdgeRow> {
 public:
  EdgesTable(const Recording& recording, const TableRequest& request) : FlowTable(recording, request), flows_(recording.streams().size()) {
    if (!request.pass) walk_.set_past_end([this](uint32_t stream, uint64_t segment) { return flows_[stream].is_open_before(segment); });
  }
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
    columns.push_back(optional_column<EdgeRow, int64_t>(
        "first_ns", ColumnType::int64, [](const EdgeRow& row) { return row.at.time.value; },
        [](const EdgeRow& row) { return row.at.time != kTimeMin; }));
    columns.push_back(value_column<EdgeRow, uint64_t>(
        "uncertain", ColumnType::uint64, [](const EdgeRow& row) { return row.uncertain; }, false));
    add_code(columns, {"code", "code_offset"}, [](const EdgeRow& row) { return row.code; });
    add_code(columns, {"to_code", "to_code_offset"}, [](const EdgeRow& row) { return row.to_code; });
    with_code_ = asks_for_code(request);
    return choose(columns, request, "edges");
  }

 protected:
  void take(FlowItem item, std::vector<EdgeRow>&) override {
    flows_[walk_.stream()].take(item, walk_.item());
    count(walk_.stream());
  }
  void end_stream(uint32_t stream) override {
    flows_[stream].finish();
    count(stream);
    flows_[stream] = {};
  }
  void end(std::vector<EdgeRow>& rows) override {
    for (uint32_t stream = 0; stream < flows_.size(); ++stream) end_stream(stream);
    for (EdgeRow& row : edges_) rows.push_back(row);
    edges_.clear();
    known_.clear();
    const auto order = [](const EdgeRow& a, const EdgeRow& b) {
      if (a.count != b.count) return a.count > b.count;
      return std::tie(a.at.space, a.from, a.to, a.kind, a.at.time) < std::tie(b.at.space, b.from, b.to, b.kind, b.at.time);
    };
    std::sort(rows.begin(), rows.end(), order);
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
  struct Known {
    EdgeRow* edge = nullptr;  ///< at these times
    Interval valid;
    std::vector<EdgeRow*> edges;
  };
  void count(uint32_t stream) {
    BranchFlow& flow = flows_[stream];
    RowContext context;
    while (const BranchRun* const run = next_run(walk_, stream, flow, context)) {
      flow.each(*run, [&](const FlowBranch& branch, const BranchEnds& ends) {
        const bool uncertain = (branch.block.flags & kUncertainFlags) != 0;
        if (ends.has_from && ends.has_to) add(context, ends, kinds_.index_of(flow.kind(ends.kind)), uncertain);
      });
    }
  }
  void add(const RowContext& at, const BranchEnds& ends, int32_t kind, bool uncertain) {
    const SpaceId space = space_at(at.space, ends.from);
    Known& known = known_[Key{space.value, kind, ends.from.value, ends.to.value}];
    if (known.edge == nullptr || !known.valid.contains(at.time)) [[unlikely]]
      look_up(known, at, ends, kind, space);
    ++known.edge->count;
    known.edge->at.time = earlier(known.edge->at.time, at.time);
    known.edge->uncertain += uncertain ? 1 : 0;
  }
  // Sets the edge that branches with these ends count for at this time: there is one for each code that was there.
  void look_up(Known& known, const RowContext& at, const BranchEnds& ends, int32_t kind, SpaceId space) {
    CodeKeys::Found code, to_code;
    if (with_code_) {
      code = codes_.find(at.space, ends.from, at.time);
      to_code = codes_.find(at.space, ends.to, at.time);
    }
    known.valid = intersect(code.valid, to_code.valid);
    for (EdgeRow* edge : known.edges) {
      known.edge = edge;
      if (edge->code == code.key && edge->to_code == to_code.key) return;
    }
    known.edge = known.edges.emplace_back(&edges_.emplace_back(EdgeRow{at, ends.from, ends.to, kind, code.key, to_code.key, 0, 0}));
    known.edge->at.space = space;
  }

  std::vector<BranchFlow> flows_;  ///< one a stream
  KindNames kinds_;
  std::unordered_map<Key, Known, Hash> known_;
  std::deque<EdgeRow> edges_;
  bool with_code_ = false;
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
    columns.push_back(
        value_column<EventRow, uint64_t>("payload", ColumnType::uint64, [](const EventRow& row) { return row.event.payload; }));
    columns.push_back(value_column<EventRow, uint64_t>("aux", ColumnType::uint64, [](const EventRow& row) { return row.event.aux; }));
    columns.push_back(value_column<EventRow, uint64_t>("offset_bytes", ColumnType::uint64,
                                                       [](const EventRow& row) { return row.event.stream_offset_bytes; }));
    return choose(columns, request, "events");
  }

 protected:
  void take(FlowItem item, std::vector<EventRow>& rows) override {
    if (item != FlowItem::event || !walk_.wanted()) return;
    const Event& event = walk_.item().event();
    if ((event.flags & kEventStatus) == 0) rows.push_back({walk_.context(), event, kinds_.index_of(name(event.kind))});
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
    columns.push_back(
        value_column<GapRow, uint64_t>("lost_bytes", ColumnType::uint64, [](const GapRow& row) { return row.gap.lost_bytes; }));
    return choose(columns, request, "gaps");
  }

 protected:
  void take(FlowItem item, std::vector<GapRow>& rows) override {
    if (item != FlowItem::gap || !walk_.wanted()) return;
    const Gap& gap = walk_.item().gap();
    rows.push_back({walk_.context(), gap, reasons_.index_of(name(gap.reason))});
  }

 private:
  NameList reasons_;
};

}  // namespace

Result<std::unique_ptr<Table>> open_flow_table(const Recording& recording, std::string_view name, const TableRequest& request) {
  if (name == "blocks") return make_table<BlocksTable>(request, recording, request);
  if (name == "block_counts") return make_table<BlockCountsTable>(request, recording, request);
  if (name == "edges") return make_table<EdgesTable>(request, recording, request);
  if (name == "events") return make_table<EventsTable>(request, recording, request);
  if (name == "gaps") return make_table<GapsTable>(request, recording, request);
  return std::unique_ptr<Table>();
}

}  // namespace ptd
