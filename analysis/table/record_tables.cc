// The table of samples: events of the recording that are no trace.
#include <utility>

#include "analysis/table/place_names.h"
#include "analysis/table/tables.h"
#include "recording/data/json_text.h"
#include "recording/data/other_events.h"

namespace ptd {

namespace {

constexpr size_t kMostSamples = 10'000'000;

class SamplesTable : public HeldTable<OtherEvent> {
 public:
  explicit SamplesTable(const Recording& recording) : HeldTable(recording), names_(recording) {}
  Status init(const TableRequest& request) {
    using Row = OtherEvent;
    if (is_read_once(request.path)) {
      return Error{ErrorCode::not_recorded,
                   "the samples of a recording from a pipe cannot be read: its bytes are gone; write it to a file and open that", 0};
    }
    request_ = request;
    std::vector<RowColumn<Row>> columns;
    const auto id = [&columns](std::string_view title, int32_t Row::*member) {
      columns.push_back(optional_column<Row, int32_t>(
          title, ColumnType::int32, [member](const Row& row) { return row.*member; },
          [member](const Row& row) { return row.*member >= 0; }));
    };
    columns.push_back(optional_column<Row, int64_t>(
        "time_ns", ColumnType::int64, [](const Row& row) { return row.time.value; }, [](const Row& row) { return row.time != kTimeMin; }));
    id("cpu", &Row::cpu);
    id("pid", &Row::pid);
    id("tid", &Row::tid);
    columns.push_back(name_column<Row>(
        "comm", names_.comms, [this](const Row& row) { return names_.comm(row.tid, row.time); }, false));
    columns.push_back(name_column<Row>("event", events_, [this](const Row& row) {
      return row.name < samples_.names.size() ? events_.index_of(samples_.names[row.name]) : -1;
    }));
    columns.push_back(value_column<Row, uint64_t>("period", ColumnType::uint64, [](const Row& row) { return row.period; }));
    const auto has_ip = [](const Row& row) { return row.ip.value != 0; };
    const auto space = [this](const Row& row) { return recording_.contexts().at_thread(row.tid, row.time).space; };
    const auto place = [this, has_ip, space](const Row& row) {
      return has_ip(row) ? names_.find(is_kernel_half(row.ip) ? kKernelSpace : space(row), row.ip, row.time) : PlaceName{};
    };
    columns.push_back(value_column<Row, uint32_t>(
        "space", ColumnType::uint32, [space](const Row& row) { return space(row).value; }, false));
    columns.push_back(optional_column<Row, uint64_t>(
        "ip", ColumnType::uint64, [](const Row& row) { return row.ip.value; }, has_ip));
    columns.push_back(name_column<Row>("symbol", names_.symbols, [place](const Row& row) { return place(row).symbol; }));
    columns.push_back(optional_column<Row, uint64_t>(
        "offset", ColumnType::uint64, [place](const Row& row) { return place(row).offset_bytes; },
        [place](const Row& row) { return place(row).symbol >= 0; }, false));
    columns.push_back(name_column<Row>(
        "module", names_.modules, [place](const Row& row) { return place(row).module; }, false));
    columns.push_back(fields_column());
    columns.push_back(value_column<Row, uint32_t>(
        "event_number", ColumnType::uint32, [](const Row& row) { return row.name; }, false));
    columns.push_back(text_column<Row>(
        "raw", ColumnType::binary,
        [](const Row& row) {
          return row.raw.empty() ? std::string_view() : std::string_view(reinterpret_cast<const char*>(row.raw.data()), row.raw.size());
        },
        false));
    return choose(columns, request, "samples");
  }

 protected:
  Result<bool> produce(std::vector<OtherEvent>& rows) override {
    const std::vector<Interval> times = request_.time == Interval{} ? std::vector<Interval>{} : std::vector{request_.time};
    Result<OtherEvents> read = read_other_events(request_.path, times, kMostSamples);
    if (!read) return read.error();
    if (const Status same = request_.unchanged ? request_.unchanged() : Status{}; !same) return same.error();
    samples_ = std::move(read.value());
    const auto matches = [](int32_t filter, int32_t value) { return filter == -1 || filter == value; };
    for (OtherEvent& event : samples_.events) {
      if (matches(request_.cpu, event.cpu) && matches(request_.pid, event.pid) && matches(request_.tid, event.tid))
        rows.push_back(std::move(event));
    }
    samples_.events.clear();
    if (samples_.left_out == 0) return false;
    return Error{ErrorCode::too_large, std::to_string(samples_.left_out) + " samples are more than this table holds; choose a shorter time",
                 0};
  }

 private:
  /// A list of (name, value) as one JSON object in text.
  static RowColumn<OtherEvent> fields_column() {
    const auto fill = [](std::span<const OtherEvent> rows, Column& out) {
      for (const OtherEvent& row : rows) {
        if (row.fields.empty()) {
          out.put_no_text();
          continue;
        }
        std::string json = "{";
        for (const TracepointField& field : row.fields) {
          if (json.size() > 1) json += ',';
          add_json_text(*field.name, json);
          json += ':';
          if (field.number) {
            json += field.value;
          } else {
            add_json_text(valid_utf8(field.value), json);
          }
        }
        out.put_text(json + "}");
      }
    };
    return {{"fields", ColumnType::text, true}, true, fill, nullptr};
  }

  TableRequest request_;
  PlaceNames names_;
  OtherEvents samples_;
  NameList events_;
};

}  // namespace

Result<std::unique_ptr<Table>> open_record_table(const Recording& recording, std::string_view name, const TableRequest& request) {
  if (name == "samples") return make_table<SamplesTable>(request, recording);
  return std::unique_ptr<Table>();
}

}  // namespace ptd
