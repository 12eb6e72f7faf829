// The tables of the code image: sections, versions, findings.
#include <utility>

#include "analysis/names/finding_name.h"
#include "analysis/table/place_names.h"
#include "analysis/table/tables.h"

namespace ptd {

namespace {

std::string_view text_in(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// Columns for the bounds of get(row), null where a bound is open.
template <typename Row, typename Get>
void add_interval(std::vector<RowColumn<Row>>& columns, std::string_view first, std::string_view last, const Get& get) {
  columns.push_back(optional_column<Row, int64_t>(
      first, ColumnType::int64, [get](const Row& row) { return get(row).first.value; },
      [get](const Row& row) { return is_bounded(get(row).first); }));
  columns.push_back(optional_column<Row, int64_t>(
      last, ColumnType::int64, [get](const Row& row) { return get(row).last.value; },
      [get](const Row& row) { return is_bounded(get(row).last); }));
}

struct SectionRow {
  const Section* section = nullptr;
  SectionId id = kNoSection;
};

class SectionsTable : public HeldTable<SectionRow> {
 public:
  explicit SectionsTable(const Recording& recording) : HeldTable(recording), timeline_(recording.timeline()) {}
  Status init(const TableRequest& request) {
    using Row = SectionRow;
    time_ = request.time;
    std::vector<RowColumn<Row>> columns;
    columns.push_back(value_column<Row, uint32_t>("section", ColumnType::uint32, [](const Row& row) { return row.id; }));
    columns.push_back(value_column<Row, uint32_t>("space", ColumnType::uint32, [](const Row& row) { return row.section->space.value; }));
    columns.push_back(value_column<Row, uint64_t>("ip", ColumnType::uint64, [](const Row& row) { return row.section->ip.value; }));
    columns.push_back(
        value_column<Row, uint64_t>("size_bytes", ColumnType::uint64, [](const Row& row) { return row.section->size_bytes; }));
    add_interval(columns, "first_ns", "last_ns", [](const Row& row) { return row.section->live; });
    columns.push_back(text_column<Row>("path", ColumnType::text, [](const Row& row) { return std::string_view(row.section->path); }));
    columns.push_back(text_column<Row>("build_id", ColumnType::text, [](const Row& row) {
      return row.section->build_id.empty() ? std::string_view() : std::string_view(row.section->build_id);
    }));
    columns.push_back(value_column<Row, uint64_t>("file_offset_bytes", ColumnType::uint64,
                                                  [](const Row& row) { return row.section->file_offset_bytes; }));
    columns.push_back(
        value_column<Row, uint64_t>("known_bytes", ColumnType::uint64, [](const Row& row) { return row.section->code.bytes.size(); }));
    columns.push_back(bool_column<Row>("assumed", [](const Row& row) { return row.section->assumed; }));
    columns.push_back(text_column<Row>(
        "bytes", ColumnType::binary, [](const Row& row) { return text_in(row.section->code.bytes); }, false));
    return choose(columns, request, "sections");
  }

 protected:
  Result<bool> produce(std::vector<SectionRow>& rows) override {
    if (next_ >= timeline_.section_count()) return false;
    const auto id = static_cast<SectionId>(next_++);
    const Section& section = timeline_.section(id);
    if (section.live.overlaps(time_)) rows.push_back({&section, id});
    return true;
  }

 private:
  const Timeline timeline_;
  Interval time_;
  size_t next_ = 0;
};

struct VersionRow {
  SiteId site = kNoSite;
  uint32_t number = 0;
  Timeline::SiteInfo where{};
  Timeline::VersionInfo version;
};

class VersionsTable : public HeldTable<VersionRow> {
 public:
  explicit VersionsTable(const Recording& recording) : HeldTable(recording), timeline_(recording.timeline()), names_(recording) {}
  Status init(const TableRequest& request) {
    using Row = VersionRow;
    time_ = request.time;
    const auto find = [this](const Row& row) {
      const TimeNs when = is_bounded(row.version.possible.first) ? row.version.possible.first : row.version.possible.last;
      return names_.find(row.where.space, row.where.ip, when);
    };
    std::vector<RowColumn<Row>> columns;
    columns.push_back(value_column<Row, uint32_t>("site", ColumnType::uint32, [](const Row& row) { return row.site; }));
    columns.push_back(value_column<Row, uint32_t>("space", ColumnType::uint32, [](const Row& row) { return row.where.space.value; }));
    columns.push_back(value_column<Row, uint64_t>("ip", ColumnType::uint64, [](const Row& row) { return row.where.ip.value; }));
    columns.push_back(name_column<Row>("symbol", names_.symbols, [find](const Row& row) { return find(row).symbol; }));
    columns.push_back(optional_column<Row, uint64_t>(
        "offset", ColumnType::uint64, [find](const Row& row) { return find(row).offset_bytes; },
        [find](const Row& row) { return find(row).symbol >= 0; }));
    columns.push_back(value_column<Row, uint32_t>("size_bytes", ColumnType::uint32, [](const Row& row) { return row.where.size_bytes; }));
    columns.push_back(value_column<Row, uint32_t>("version", ColumnType::uint32, [](const Row& row) { return row.number; }));
    columns.push_back(text_column<Row>("bytes", ColumnType::binary,
                                       [](const Row& row) { return row.version.known ? text_in(row.version.bytes) : std::string_view(); }));
    add_interval(columns, "possible_first_ns", "possible_last_ns", [](const Row& row) { return row.version.possible; });
    add_interval(columns, "certain_first_ns", "certain_last_ns", [](const Row& row) {
      return row.version.certain.empty() ? Interval{kTimeMax, kTimeMin} : row.version.certain;
    });
    columns.push_back(bool_column<Row>("healed", [](const Row& row) { return any(row.version.flags, CodeFlag::healed); }));
    columns.push_back(bool_column<Row>("suspect", [](const Row& row) { return any(row.version.flags, CodeFlag::suspect); }));
    columns.push_back(bool_column<Row>("assumed", [](const Row& row) { return any(row.version.flags, CodeFlag::assumed); }));
    return choose(columns, request, "versions");
  }

 protected:
  Result<bool> produce(std::vector<VersionRow>& rows) override {
    if (site_ >= timeline_.site_count()) return false;
    const Timeline::SiteInfo where = timeline_.site(site_);
    if (number_ < where.versions) {
      VersionRow row{site_, number_, where, timeline_.version(site_, number_)};
      ++number_;
      if (row.version.possible.overlaps(time_)) rows.push_back(std::move(row));
      return true;
    }
    ++site_;
    number_ = 0;
    return true;
  }

 private:
  const Timeline timeline_;
  PlaceNames names_;
  Interval time_;
  SiteId site_ = 0;
  uint32_t number_ = 0;
};

class FindingsTable : public HeldTable<Finding> {
 public:
  explicit FindingsTable(const Recording& recording) : HeldTable(recording), records_(text_records(recording)) {}
  Status init(const TableRequest& request) {
    time_ = request.time;
    std::vector<RowColumn<Finding>> columns;
    columns.push_back(
        name_column<Finding>("kind", kinds_, [this](const Finding& finding) { return kinds_.index_of(name(finding.kind, records_)); }));
    columns.push_back(
        text_column<Finding>("what", ColumnType::text, [](const Finding& finding) { return std::string_view(finding.what); }));
    columns.push_back(
        value_column<Finding, uint32_t>("space", ColumnType::uint32, [](const Finding& finding) { return finding.space.value; }));
    columns.push_back(optional_column<Finding, uint64_t>(
        "ip", ColumnType::uint64, [](const Finding& finding) { return finding.ip.value; },
        [](const Finding& finding) { return finding.ip.value != 0; }));
    add_interval(columns, "first_ns", "last_ns", [](const Finding& finding) { return finding.time; });
    const auto bytes = [&columns](std::string_view title, std::vector<std::byte> Finding::*member) {
      columns.push_back(
          text_column<Finding>(title, ColumnType::binary, [member](const Finding& finding) { return text_in(finding.*member); }));
    };
    bytes("expected", &Finding::expected);
    bytes("found", &Finding::found);
    return choose(columns, request, "findings");
  }

 protected:
  Result<bool> produce(std::vector<Finding>& rows) override {
    for (Finding& finding : recording_.findings()) {
      if (finding.time.overlaps(time_)) rows.push_back(std::move(finding));
    }
    return false;
  }

 private:
  const TextRecords records_;
  Interval time_;
  NameList kinds_;
};

}  // namespace

Result<std::unique_ptr<Table>> open_image_table(const Recording& recording, std::string_view name, const TableRequest& request) {
  if (name == "sections") return make_table<SectionsTable>(request, recording);
  if (name == "versions") return make_table<VersionsTable>(request, recording);
  if (name == "findings") return make_table<FindingsTable>(request, recording);
  return std::unique_ptr<Table>();
}

}  // namespace ptd
