// Tables as Arrow C streams: see arrow_stream.h.
#include "capi/arrow_stream.h"

#include <atomic>
#include <cerrno>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "capi/forked.h"

namespace ptd::capi {

namespace {

// What release() of each struct frees. Children are owned by their parent's private_data, but a consumer may move them out, which it marks
// by release == nullptr; each child therefore frees only what is its own. The destructors release the children, so that an exception leaves
// nothing allocated.

template <typename Struct>
void release_if_there(Struct* owned) {
  if (owned != nullptr && owned->release != nullptr) owned->release(owned);
}

/// The parts of an ArrowSchema or ArrowArray.
template <typename Struct>
struct Parts {
  Parts() = default;
  ~Parts() {
    for (const auto& child : children) release_if_there(child.get());
    release_if_there(dictionary.get());
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  Struct& add_child() {
    children.push_back(std::make_unique<Struct>());
    pointers.push_back(children.back().get());
    return *children.back();
  }

  std::vector<std::unique_ptr<Struct>> children;
  std::vector<Struct*> pointers;
  std::unique_ptr<Struct> dictionary;
};

struct SchemaData : Parts<ArrowSchema> {
  std::string name;
};

void release_schema(ArrowSchema* schema) {
  delete static_cast<SchemaData*>(schema->private_data);
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

/// `format` is static. Does not throw.
void finish_schema(ArrowSchema& schema, std::unique_ptr<SchemaData> data, const char* format, bool nullable) {
  schema = ArrowSchema{};
  schema.format = format;
  schema.name = data->name.c_str();
  schema.flags = nullable ? ARROW_FLAG_NULLABLE : 0;
  schema.n_children = static_cast<int64_t>(data->pointers.size());
  schema.children = data->pointers.empty() ? nullptr : data->pointers.data();
  schema.dictionary = data->dictionary.get();
  schema.release = release_schema;
  schema.private_data = data.release();
}

void fill_schema(ArrowSchema& schema, const ColumnInfo& column) {
  auto data = std::make_unique<SchemaData>();
  data->name = column.name;
  if (column.type == ColumnType::name) {
    data->dictionary = std::make_unique<ArrowSchema>();
    finish_schema(*data->dictionary, std::make_unique<SchemaData>(), "u", false);
  }
  finish_schema(schema, std::move(data), format_of(column.type), column.nullable);
}

void fill_schema(ArrowSchema& schema, const std::vector<ColumnInfo>& columns) {
  auto data = std::make_unique<SchemaData>();
  for (const ColumnInfo& column : columns) fill_schema(data->add_child(), column);
  finish_schema(schema, std::move(data), "+s", false);
}

struct ArrayData : Parts<ArrowArray> {
  std::unique_ptr<Column> column;
  NameSnapshot names;
  std::vector<const void*> buffers;
};

void release_array(ArrowArray* array) {
  delete static_cast<ArrayData*>(array->private_data);
  array->release = nullptr;
}

/// Empty buffers must not be null pointers.
const void* buffer(const void* bytes) {
  static const uint64_t kEmpty[8] = {};
  return bytes != nullptr ? bytes : kEmpty;
}

/// Does not throw.
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
  for (Column& column : batch.columns) fill_array(data->add_child(), std::move(column));
  finish_array(array, std::move(data), batch.rows, 0);
}

/// The errno that a consumer of Arrow streams reports with the message.
int errno_of(const Error& error) {
  return error.kind() == ErrorKind::cancelled ? ECANCELED : error.kind() == ErrorKind::usage ? EINVAL : EIO;
}

enum class StreamUse : uint8_t {
  idle,
  busy,
  released,  ///< while it was busy: whoever used it frees it
};

struct StreamData {
  Origin origin;
  std::shared_ptr<const OpenedRecording> recording;
  std::shared_ptr<Control> control;
  std::unique_ptr<Table> table;  // destroyed before the recording, which it reads
  std::string error;
  const char* sentence = nullptr;       // of the last error
  std::atomic<ptd_code> code = PTD_OK;  // likewise
  std::atomic<StreamUse> use = StreamUse::idle;
  int failed = 0;  // the errno that ended the table, whose parts may be in any state; kReading while it is read
  bool over = false;
};

constexpr int kReading = -1;

int set_error(StreamData& data, int status, ptd_code code, const char* sentence) {
  data.sentence = sentence;
  data.code = code;
  return status;
}

int set_error(StreamData& data, const Error& error) {
  data.error = valid_utf8(error.message);
  return set_error(data, errno_of(error), code_of(error), data.error.c_str());
}

/// The stream is not used any more. Frees it if it was released meanwhile.
int end_use(StreamData* data, int status) {
  StreamUse expected = StreamUse::busy;
  if (data->use.compare_exchange_strong(expected, StreamUse::idle)) return status;
  delete data;
  return ECANCELED;
}

/// Runs `body`, which returns 0 or an errno, unless another thread or a callback is using the stream. Does not throw.
template <typename Body>
int guarded_stream(ArrowArrayStream* stream, const Body& body) {
  if (stream == nullptr || stream->release == nullptr) return EINVAL;
  auto* data = static_cast<StreamData*>(stream->private_data);
  StreamUse expected = StreamUse::idle;
  if (in_callback_of(data->control->owner()) || !data->use.compare_exchange_strong(expected, StreamUse::busy)) return EBUSY;
  int status = EIO;
  try {
    const bool lacks_threads = data->origin.is_forked() && data->table->has_threads();
    status = lacks_threads ? set_error(*data, EAGAIN, PTD_ERROR_RESOURCES, kForkedSentence) : body(*data);
  } catch (const Cancelled&) {
    status = set_error(*data, ECANCELED, PTD_ERROR_CANCELLED, "the caller cancelled the operation");
  } catch (const std::bad_alloc&) {
    status = set_error(*data, ENOMEM, PTD_ERROR_OUT_OF_MEMORY, "there is not enough memory");
  } catch (const std::system_error& error) {
    const bool forked = error.code() == std::errc::operation_not_permitted;  // see ParallelDecode::next()
    status = set_error(*data, EAGAIN, PTD_ERROR_RESOURCES, forked ? kForkedSentence : "the system refused a resource, such as a thread");
  } catch (...) {
    status = set_error(*data, EIO, PTD_ERROR_RESOURCES, "internal error");
  }
  if (data->failed == kReading) data->failed = status;
  return end_use(data, status);
}

/// Calls `body` with a struct that it may fill. It becomes *out on success, and is released otherwise.
template <typename Struct, typename Body>
int filled(ArrowArrayStream* stream, Struct* out, const Body& body) {
  Struct made{};
  const int status = guarded_stream(stream, [&](StreamData& data) {
    return out == nullptr ? set_error(data, EINVAL, PTD_ERROR_NULL_ARGUMENT, "out is NULL") : body(data, made);
  });
  if (status == 0) {
    *out = made;
  } else {
    release_if_there(&made);
  }
  return status;
}

int get_schema(ArrowArrayStream* stream, ArrowSchema* out) {
  return filled(stream, out, [](StreamData& data, ArrowSchema& made) {
    fill_schema(made, data.table->columns());
    return 0;
  });
}

/// Reads the next batch; an error ends the table.
int read_batch(StreamData& data, ArrowArray& out) {
  data.failed = kReading;
  Result<RowBatch> batch = data.table->next();
  if (!batch) return set_error(data, data.recording->cause_of(batch.error()));
  if (const auto error = data.recording->shrunk_error(batch->rows == 0)) return set_error(data, *error);
  data.over = batch->rows == 0;
  if (data.over) {
    data.control->finish();
  } else {
    fill_array(out, std::move(*batch));
  }
  return 0;
}

int get_next(ArrowArrayStream* stream, ArrowArray* out) {
  // An array that is left as it is, is released: the end of the stream.
  return filled(stream, out,
                [](StreamData& data, ArrowArray& made) { return data.over || data.failed != 0 ? data.failed : read_batch(data, made); });
}

const char* get_last_error(ArrowArrayStream* stream) {
  if (stream == nullptr || stream->release == nullptr) return nullptr;
  return static_cast<const StreamData*>(stream->private_data)->sentence;
}

void release_stream(ArrowArrayStream* stream) {
  if (stream == nullptr || stream->release == nullptr) return;
  auto* data = static_cast<StreamData*>(stream->private_data);
  stream->release = nullptr;
  if (data->use.exchange(StreamUse::released) == StreamUse::busy) return;
  if (!in_callback_of(data->control->number())) {
    delete data;
    return;
  }
  // This thread is one that the stream waits for when it is freed.
  try {
    std::thread([data] { delete data; }).detach();
  } catch (const std::system_error&) {  // no thread: the memory is lost
  }
}

}  // namespace

void export_stream(std::shared_ptr<const OpenedRecording> recording, std::unique_ptr<Table> table, std::shared_ptr<Control> control,
                   ArrowArrayStream& out) {
  auto data = std::make_unique<StreamData>();
  data->recording = std::move(recording);
  data->table = std::move(table);
  data->control = std::move(control);
  out.get_schema = get_schema;
  out.get_next = get_next;
  out.get_last_error = get_last_error;
  out.release = release_stream;
  out.private_data = data.release();
}

}  // namespace ptd::capi

ptd_code ptd_stream_code(const ArrowArrayStream* stream) {
  if (stream == nullptr) return PTD_ERROR_NULL_ARGUMENT;
  if (stream->release != ptd::capi::release_stream) return PTD_ERROR_INVALID_HANDLE;
  return static_cast<const ptd::capi::StreamData*>(stream->private_data)->code;
}
