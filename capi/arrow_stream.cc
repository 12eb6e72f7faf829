// Tables as Arrow C streams: see arrow_stream.h.
#include "capi/arrow_stream.h"

#include <atomic>
#include <cerrno>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace ptd::capi {

namespace {

// What release() of each struct frees. Children are owned by their parent's private_data, but a consumer may move them out, which it marks
// by release == nullptr; each child therefore frees only what is its own.

struct SchemaData {
  std::string name;
  std::vector<std::unique_ptr<ArrowSchema>> children;
  std::vector<ArrowSchema*> pointers;
  std::unique_ptr<ArrowSchema> dictionary;
};

void release_schema(ArrowSchema* schema) {
  auto* data = static_cast<SchemaData*>(schema->private_data);
  for (const auto& child : data->children) {
    if (child->release != nullptr) child->release(child.get());
  }
  if (data->dictionary && data->dictionary->release != nullptr) data->dictionary->release(data->dictionary.get());
  delete data;
  schema->release = nullptr;
}

const char* format_of(ColumnType type) {
  switch (type) {
    case ColumnType::boolean:
      return "b";
    case ColumnType::int32:
    case ColumnType::name:  // of the indexes
      return "i";
    case ColumnType::uint32:
      return "I";
    case ColumnType::int64:
      return "l";
    case ColumnType::uint64:
      return "L";
    case ColumnType::text:
      return "u";
    case ColumnType::binary:
      break;
  }
  return "z";
}

/// `format` is static.
void fill_schema(ArrowSchema& schema, const char* format, std::string_view name, bool nullable) {
  auto data = std::make_unique<SchemaData>();
  data->name = name;
  schema = ArrowSchema{};
  schema.format = format;
  schema.name = data->name.c_str();
  schema.flags = nullable ? ARROW_FLAG_NULLABLE : 0;
  schema.release = release_schema;
  schema.private_data = data.release();
}

void fill_schema(ArrowSchema& schema, const std::vector<ColumnInfo>& columns) {
  fill_schema(schema, "+s", {}, false);
  auto* data = static_cast<SchemaData*>(schema.private_data);
  for (const ColumnInfo& column : columns) {
    data->children.push_back(std::make_unique<ArrowSchema>());
    ArrowSchema& child = *data->children.back();
    fill_schema(child, format_of(column.type), column.name, column.nullable);
    if (column.type == ColumnType::name) {
      auto* child_data = static_cast<SchemaData*>(child.private_data);
      child_data->dictionary = std::make_unique<ArrowSchema>();
      fill_schema(*child_data->dictionary, "u", {}, false);
      child.dictionary = child_data->dictionary.get();
    }
    data->pointers.push_back(&child);
  }
  schema.n_children = static_cast<int64_t>(data->pointers.size());
  schema.children = data->pointers.data();
}

struct ArrayData {
  std::unique_ptr<Column> column;
  NameSnapshot names;
  std::vector<const void*> buffers;
  std::vector<std::unique_ptr<ArrowArray>> children;
  std::vector<ArrowArray*> pointers;
  std::unique_ptr<ArrowArray> dictionary;
};

void release_array(ArrowArray* array) {
  auto* data = static_cast<ArrayData*>(array->private_data);
  for (const auto& child : data->children) {
    if (child->release != nullptr) child->release(child.get());
  }
  if (data->dictionary && data->dictionary->release != nullptr) data->dictionary->release(data->dictionary.get());
  delete data;
  array->release = nullptr;
}

/// Empty buffers must not be null pointers.
const void* buffer(const void* bytes) {
  static const uint64_t kEmpty[8] = {};
  return bytes != nullptr ? bytes : kEmpty;
}

void finish_array(ArrowArray& array, std::unique_ptr<ArrayData> data, size_t rows, size_t nulls) {
  array = ArrowArray{};
  array.length = static_cast<int64_t>(rows);
  array.null_count = static_cast<int64_t>(nulls);
  array.n_buffers = static_cast<int64_t>(data->buffers.size());
  array.buffers = data->buffers.data();
  array.n_children = static_cast<int64_t>(data->pointers.size());
  array.children = data->pointers.empty() ? nullptr : data->pointers.data();
  array.dictionary = data->dictionary.get();
  array.release = release_array;
  array.private_data = data.release();
}

std::unique_ptr<ArrowArray> dictionary_of(const NameSnapshot& names) {
  auto data = std::make_unique<ArrayData>();
  data->names = names;
  data->buffers = {nullptr, buffer(names.offsets.get()), buffer(names.bytes.get())};
  auto array = std::make_unique<ArrowArray>();
  finish_array(*array, std::move(data), static_cast<size_t>(names.count), 0);
  return array;
}

void fill_array(ArrowArray& array, Column column) {
  auto data = std::make_unique<ArrayData>();
  data->column = std::make_unique<Column>(std::move(column));
  const Column& kept = *data->column;
  const ColumnType type = kept.info().type;
  const size_t rows = kept.rows(), nulls = kept.nulls();
  data->buffers.push_back(nulls == 0 ? nullptr : kept.valid().data());
  if (type == ColumnType::text || type == ColumnType::binary) data->buffers.push_back(buffer(kept.offsets().data()));
  data->buffers.push_back(buffer(kept.values().data()));
  if (type == ColumnType::name) data->dictionary = dictionary_of(kept.names());
  finish_array(array, std::move(data), rows, nulls);
}

void fill_array(ArrowArray& array, RowBatch batch) {
  auto data = std::make_unique<ArrayData>();
  data->buffers = {nullptr};
  for (Column& column : batch.columns) {
    data->children.push_back(std::make_unique<ArrowArray>());
    fill_array(*data->children.back(), std::move(column));
    data->pointers.push_back(data->children.back().get());
  }
  finish_array(array, std::move(data), batch.rows, 0);
}

/// The errno that a consumer of Arrow streams reports with the message.
int errno_of(const Error& error) { return error.kind() == ErrorKind::cancelled ? ECANCELED : error.kind() == ErrorKind::usage ? EINVAL : EIO; }

struct StreamData {
  std::shared_ptr<const OpenedRecording> recording;
  std::unique_ptr<Table> table;  // destroyed before the recording, which it reads
  std::string error;
  std::atomic<bool> in_use = false;
  bool over = false;
};

/// Runs `body`, which returns 0 or an errno, unless another thread is using the stream.
template <typename Body>
int guarded(ArrowArrayStream* stream, const Body& body) {
  auto* data = static_cast<StreamData*>(stream->private_data);
  if (data->in_use.exchange(true)) return EBUSY;
  int status = EIO;
  try {
    status = body(*data);
  } catch (const std::bad_alloc&) {
    data->error = "there is not enough memory";
    status = ENOMEM;
  } catch (const std::exception& error) {
    data->error = error.what();
  }
  data->in_use = false;
  return status;
}

int get_schema(ArrowArrayStream* stream, ArrowSchema* out) {
  return guarded(stream, [out](StreamData& data) {
    fill_schema(*out, data.table->columns());
    return 0;
  });
}

int get_next(ArrowArrayStream* stream, ArrowArray* out) {
  return guarded(stream, [out](StreamData& data) {
    *out = ArrowArray{};  // released: the end of the stream
    if (data.over) return 0;
    Result<RowBatch> batch = data.table->next();
    if (!batch) {
      data.error = batch.error().message;
      data.over = true;
      return errno_of(batch.error());
    }
    data.over = batch->rows == 0;
    if (!data.over) fill_array(*out, std::move(*batch));
    return 0;
  });
}

const char* get_last_error(ArrowArrayStream* stream) {
  const auto* data = static_cast<const StreamData*>(stream->private_data);
  return data->error.empty() ? nullptr : data->error.c_str();
}

void release_stream(ArrowArrayStream* stream) {
  delete static_cast<StreamData*>(stream->private_data);
  stream->release = nullptr;
}

}  // namespace

void export_stream(std::shared_ptr<const OpenedRecording> recording, std::unique_ptr<Table> table, ArrowArrayStream& out) {
  auto data = std::make_unique<StreamData>();
  data->recording = std::move(recording);
  data->table = std::move(table);
  out.get_schema = get_schema;
  out.get_next = get_next;
  out.get_last_error = get_last_error;
  out.release = release_stream;
  out.private_data = data.release();
}

}  // namespace ptd::capi
