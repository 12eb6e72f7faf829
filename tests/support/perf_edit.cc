// The record editor: reads raw records in file order, writes them through PerfWriter.
#include "tests/support/perf_edit.h"

#include <cstring>
#include <filesystem>
#include <memory>

#include "perfio/file_header.h"
#include "perfio/format/wire.h"
#include "perfio/perf_writer.h"
#include "perfio/raw_stream.h"
#include "perfio/record_builder.h"
#include "perfio/recording_file.h"

namespace ptd::perfio {
namespace {

namespace fs = std::filesystem;

Status write_edited(const RawRecord& raw, const EditAction& action, PerfWriter& writer) {
  for (const auto& record : action.before) {
    if (Status status = writer.add_raw(record); !status) return status;
  }
  if (action.drop) return {};
  std::vector<std::byte> record(raw.bytes.begin(), raw.bytes.end());
  if (!action.replace.empty()) record = action.replace;
  Bytes payload = raw.payload;
  if (raw.header.type == kRecordAuxtrace && record.size() >= kAuxtraceRecordBytes) {
    if (action.replace_payload) payload = action.payload;
    const uint64_t size_bytes = payload.size();  // also heals a payload that the file cut short
    std::memcpy(record.data() + kRecordHeaderBytes, &size_bytes, sizeof(size_bytes));
  }
  return writer.add_raw(record, payload);
}

Status copy_features(const Features& features, PerfWriter& writer) {
  for (const RawFeature& feature : features.raw) {
    if (feature.bit == kFeatureAuxtrace || feature.bit == kFeatureCompressed) continue;
    writer.set_feature_bytes(feature.bit, feature.bytes);
  }
  return {};
}

Status copy_kcore_dirs(const std::string& from, const std::string& to) {
  std::error_code error;
  for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with("kcore_dir")) continue;
    if (Status status = copy_kcore_dir(it->path().string(), to + "/" + name); !status) return status;
  }
  return {};
}

}  // namespace

Status edit_perf_data(const std::string& from, const std::string& to, const std::function<EditAction(const EditRecord&)>& editor,
                      bool copy_kcore) {
  std::error_code error;
  const bool directory = fs::is_directory(from, error);
  const std::string data_path = directory ? from + "/data" : from;
  auto file = open_recording_file(data_path);
  if (!file) return file.error();
  ReadDamage damage;
  auto layout = read_file_header(file.value()->bytes(), data_path, damage);
  if (!layout) return layout.error();
  if (layout->pipe) return Error{ErrorCode::unsupported, from + " has the pipe form, which cannot be edited", 0};

  auto writer = PerfWriter::create(to, {layout->attrs, directory, 0});
  if (!writer) return writer.error();
  if (Status status = copy_features(layout->features, *writer.value()); !status) return status;
  const RecordBuilder builder(layout->attrs, layout->features, layout->tracing_data);
  ExpansionBudget budget;
  RawStream stream(file.value()->bytes(), layout->data_begin, layout->data_end, damage, budget);
  RawRecord raw;
  for (uint64_t number = 0; stream.next(raw); ++number) {
    Record record;
    if (!builder.build(raw, record)) record.payload = OtherRecord{};
    const EditAction action = editor({record, number, builder.attrs()});
    if (Status status = write_edited(raw, action, *writer.value()); !status) return status;
  }
  if (directory && copy_kcore) {
    if (Status status = copy_kcore_dirs(from, to); !status) return status;
  }
  return writer.value()->finish();
}

}  // namespace ptd::perfio
