// Stream: a table's rows for Python, through an Arrow stream.
#pragma once

#include <nanobind/nanobind.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "control.h"
#include "exported.h"
#include "ptdecode/ptdecode_plan.h"

namespace ptd_python {

/// An Arrow stream that is read with signals and progress, row lists, or handed over as a capsule.
class Stream {
 public:
  Stream(nb::object progress) : control_(std::make_unique<Control>(std::move(progress))) {}
  ~Stream() {
    if (stream_.release != nullptr) {
      const nb::gil_scoped_release unlocked;
      stream_.release(&stream_);
    }
    if (schema_.release != nullptr) schema_.release(&schema_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  ArrowArrayStream* raw() { return &stream_; }
  Control& control() { return *control_; }

  /// [(name, format, nullable)]
  nb::list columns() {
    const ArrowSchema& all = schema();
    nb::list out;
    for (int64_t i = 0; i < all.n_children; ++i) {
      const ArrowSchema& column = *all.children[i];
      out.append(nb::make_tuple(column.name, column.dictionary != nullptr ? "dictionary" : column.format,
                                (column.flags & ARROW_FLAG_NULLABLE) != 0));
    }
    return out;
  }

  /// The next batch as a list of columns, each a list of values; None: the end.
  nb::object next_columns() {
    const ArrowSchema& all = schema();
    ArrowArray batch{};
    int status = 0;
    const bool good = run(*control_, [&] { status = stream_.get_next(&stream_, &batch); });
    if (!good) {
      if (batch.release != nullptr) batch.release(&batch);
      throw nb::python_error();
    }
    if (status != 0) raise_stream(status);
    if (batch.release == nullptr) return nb::none();
    nb::list out;
    for (int64_t i = 0; i < batch.n_children; ++i) out.append(values(*all.children[i], *batch.children[i]));
    batch.release(&batch);
    return std::move(out);
  }

  /// A capsule "arrow_array_stream". The stream belongs to the capsule afterwards. `on_empty` (a callable or None) is called at its end if
  /// it has no rows.
  nb::object capsule(nb::object on_empty);

  /// Raises what ended the stream of the capsule, if the library did.
  void raise_failure() const {
    if (failure_->code != PTD_OK) raise(failure_->code, strdup(failure_->message.c_str()));
  }

 private:
  [[noreturn]] void raise_stream(int status) {
    const char* text = stream_.get_last_error(&stream_);
    const ptd_code code = status == EBUSY ? PTD_ERROR_IN_USE : ptd_stream_code(&stream_);
    char* message = strdup(text != nullptr ? text : std::strerror(status));
    raise(code, message);
  }
  const ArrowSchema& schema() {
    if (stream_.release == nullptr) throw nb::value_error("the rows of this table were handed over; open the table again");
    if (schema_.release == nullptr) {
      if (const int status = stream_.get_schema(&stream_, &schema_); status != 0) raise_stream(status);
    }
    return schema_;
  }
  static bool bit(const void* bits, int64_t i) { return (static_cast<const uint8_t*>(bits)[i / 8] >> (i % 8) & 1) != 0; }
  static nb::list values(const ArrowSchema& schema, const ArrowArray& array) {
    nb::list names;
    if (array.dictionary != nullptr) names = values(*schema.dictionary, *array.dictionary);
    const char form = schema.format[0];
    const void* valid = array.null_count != 0 ? array.buffers[0] : nullptr;
    const void* data = array.buffers[form == 'u' || form == 'z' ? 2 : 1];
    const auto* offsets = static_cast<const int32_t*>(array.buffers[1]);
    nb::list out;
    for (int64_t i = 0; i < array.length; ++i) {
      if (valid != nullptr && !bit(valid, i)) {
        out.append(nb::none());
        continue;
      }
      switch (form) {
        case 'b':
          out.append(nb::bool_(bit(data, i)));
          break;
        case 'i':
          if (array.dictionary != nullptr) {
            out.append(names[static_cast<size_t>(static_cast<const int32_t*>(data)[i])]);
          } else {
            out.append(nb::int_(static_cast<const int32_t*>(data)[i]));
          }
          break;
        case 'I':
          out.append(nb::int_(static_cast<const uint32_t*>(data)[i]));
          break;
        case 'l':
          out.append(nb::int_(static_cast<const int64_t*>(data)[i]));
          break;
        case 'L':
          out.append(nb::int_(static_cast<const uint64_t*>(data)[i]));
          break;
        case 'u':
          out.append(nb::str(static_cast<const char*>(data) + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i])));
          break;
        default:
          out.append(nb::bytes(static_cast<const char*>(data) + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i])));
      }
    }
    return out;
  }

  std::unique_ptr<Control> control_;
  ArrowArrayStream stream_{};
  ArrowSchema schema_{};
  std::shared_ptr<StreamFailure> failure_ = std::make_shared<StreamFailure>();  // of the stream that was handed over
};

/// The garbage collector follows the progress callback of a stream, because it may refer to an object that owns the stream.
inline int traverse_stream(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Stream>(self)->control().progress.ptr());
  return 0;
}
inline int clear_stream(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Stream>(self)->control().forget_progress();
  return 0;
}
inline PyType_Slot stream_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_stream)}, {Py_tp_clear, reinterpret_cast<void*>(clear_stream)}, {0, nullptr}};

inline int exported_next(ArrowArrayStream* stream, ArrowArray* out) {
  auto* data = static_cast<Exported*>(stream->private_data);
  if (!data->control->needs_polls()) return finish_batch(*data, data->next(out), *out);
  const nb::gil_scoped_acquire locked;
  int status = 0;
  const bool good = run(*data->control, [&] { status = data->next(out); });
  if (good) return finish_batch(*data, status, *out);
  // The consumer reports its own error; the interpreter raises KeyboardInterrupt again when the consumer returns to it.
  const nb::python_error raised;
  data->error = "interrupted";
  if (on_main_thread() && raised.matches(PyExc_KeyboardInterrupt)) {
    PyErr_SetInterrupt();
  } else {
    if (const std::string text = shown(raised); !text.empty()) data->error = "the progress callback raised " + text;
  }
  if (status == 0 && out->release != nullptr) out->release(out);
  *out = ArrowArray{};
  return ECANCELED;
}

inline nb::object Stream::capsule(nb::object on_empty) {
  (void)schema();
  auto data = std::make_unique<Exported>();
  data->control = std::move(control_);
  control_ = std::make_unique<Control>(nb::none());
  data->inner = stream_;
  data->on_empty = std::move(on_empty);
  data->failure = failure_;
  stream_.release = nullptr;
  auto stream = std::make_unique<ArrowArrayStream>();
  stream->get_schema = [](ArrowArrayStream* self, ArrowSchema* out) {
    auto* exported = static_cast<Exported*>(self->private_data);
    return exported->inner.get_schema(&exported->inner, out);
  };
  stream->get_next = exported_next;
  stream->get_last_error = [](ArrowArrayStream* self) -> const char* {
    auto* exported = static_cast<Exported*>(self->private_data);
    return exported->error.empty() ? exported->inner.get_last_error(&exported->inner) : exported->error.c_str();
  };
  stream->release = [](ArrowArrayStream* self) {
    auto* exported = static_cast<Exported*>(self->private_data);
    exported->inner.release(&exported->inner);
    const nb::gil_scoped_acquire locked;  // the control refers to a Python object
    delete exported;
    self->release = nullptr;
  };
  stream->private_data = data.release();
  PyObject* capsule = PyCapsule_New(stream.get(), "arrow_array_stream", [](PyObject* self) {
    auto* owned = static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(self, "arrow_array_stream"));
    if (owned->release != nullptr) owned->release(owned);
    delete owned;
  });
  if (capsule == nullptr) {
    stream->release(stream.get());
    throw nb::python_error();
  }
  stream.release();
  return nb::steal(capsule);
}

}  // namespace ptd_python
