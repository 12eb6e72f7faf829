// The extension module ptdecode._native: the C API of libptdecode as Python objects.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "control.h"
#include "file_path.h"
#include "ptdecode/ptdecode_plan.h"
#include "stream.h"

namespace nb = nanobind;
using namespace nb::literals;

using namespace ptd_python;

namespace {

/// Strings as a list that ends with NULL; null itself if the argument is None.
class StringList {
 public:
  template <typename String>
  explicit StringList(const std::optional<std::vector<String>>& strings) : given_(strings.has_value()) {
    for (size_t i = 0; strings && i < strings->size(); ++i) strings_.emplace_back((*strings)[i].c_str());
    for (const std::string& string : strings_) pointers_.push_back(string.c_str());
    pointers_.push_back(nullptr);
  }
  [[nodiscard]] const char* const* get() const { return given_ ? pointers_.data() : nullptr; }

 private:
  bool given_;
  std::vector<std::string> strings_;
  std::vector<const char*> pointers_;
};
using Strings = std::optional<std::vector<std::string>>;
using Paths = std::optional<std::vector<FilePath>>;

/// The options of opening, as keyword arguments of ptdecode.open().
struct OpenArguments {
  Paths symfs, debug_dirs, stashes, kcore_after, images;
  std::optional<FilePath> build_id_cache, running_kernel, guestmount, guestkallsyms, guestmodules, guestvmlinux, modules;
  uint64_t slack_ns = 0, flags = 0, clock_hz = 0;
};

class Recording {
 public:
  explicit Recording(ptd_recording* handle) : handle_(handle) {}
  ~Recording() { close(); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void close() {
    ptd_close(handle_);
    handle_ = nullptr;
  }

  nb::list streams() const {
    uint32_t count = 0;
    check([&](char**) { return ptd_stream_count(handle(), &count); });
    nb::list out;
    for (uint32_t i = 0; i < count; ++i) {
      ptd_stream_info info = PTD_INIT(ptd_stream_info);
      check([&](char**) { return ptd_get_stream(handle(), i, &info); });
      out.append(nb::make_tuple(i, info.cpu, info.tid, info.size_bytes, info.first_ns, info.last_ns, info.protocol, info.source));
    }
    return out;
  }

  std::vector<std::string> warnings() const {
    uint32_t count = 0;
    check([&](char**) { return ptd_warning_count(handle(), &count); });
    std::vector<std::string> out;
    for (uint32_t i = 0; i < count; ++i) {
      const char* text = nullptr;
      check([&](char**) { return ptd_get_warning(handle(), i, &text); });
      out.emplace_back(text);
    }
    return out;
  }

  std::string info_json() const {
    ptd_recording* const recording = handle();
    char* text = nullptr;
    run_checked([&](const ptd_control&, char** message) { return ptd_info_json(recording, &text, message); }, [&] { ptd_free(text); });
    std::string out = text;
    ptd_free(text);
    return out;
  }

  std::string plan_json() const {
    char* text = nullptr;
    check([&](char** message) { return ptd_plan_json(handle(), &text, message); });
    std::string out = text;
    ptd_free(text);
    return out;
  }
  void unit_steps(uint32_t unit, const FilePath& output) const {
    ptd_recording* const recording = handle();
    run_checked(
        [&](const ptd_control& control, char** message) { return ptd_unit_steps(recording, unit, output.c_str(), &control, message); });
  }

  struct TableArguments {
    Strings columns, functions;
    Paths steps;
    std::optional<uint32_t> stream, unit;
    int32_t cpu = -1, pid = -1, tid = -1;
    int64_t first_ns = 0, last_ns = 0;
    uint32_t batch_rows = 0, threads = 0;
  };
  std::unique_ptr<Stream> table(const std::string& name, const TableArguments& arguments, nb::object progress) const {
    auto stream = std::make_unique<Stream>(std::move(progress));
    const StringList columns(arguments.columns), functions(arguments.functions), steps(arguments.steps);
    ptd_table_options options = PTD_TABLE_OPTIONS_INIT;
    options.columns = columns.get();
    options.functions = functions.get();
    options.stream = arguments.stream.value_or(PTD_NONE);
    options.cpu = arguments.cpu;
    options.pid = arguments.pid;
    options.tid = arguments.tid;
    options.first_ns = arguments.first_ns;
    options.last_ns = arguments.last_ns;
    options.batch_rows = arguments.batch_rows;
    options.threads = arguments.threads;
    options.control = &stream->control().control;
    if (arguments.unit || arguments.steps) {
      const uint32_t unit = arguments.unit.value_or(PTD_NONE);
      check([&](char** message) { return ptd_plan_table(handle(), name.c_str(), unit, steps.get(), &options, stream->raw(), message); });
    } else {
      check([&](char** message) { return ptd_table(handle(), name.c_str(), &options, stream->raw(), message); });
    }
    return stream;
  }

  /// Several tables of a unit, from one decode, which writes its steps to `steps` too, if it is given.
  nb::list unit_tables(uint32_t unit, const std::vector<std::pair<std::string, Strings>>& tables,
                       const std::optional<FilePath>& steps) const {
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<StringList> columns;
    std::vector<ptd_table_options> options(tables.size(), ptd_table_options PTD_TABLE_OPTIONS_INIT);
    std::vector<const ptd_table_options*> pointers;
    std::vector<const char*> names;
    columns.reserve(tables.size());
    for (size_t i = 0; i < tables.size(); ++i) {
      streams.push_back(std::make_unique<Stream>(nb::none()));
      columns.emplace_back(tables[i].second);
      options[i].columns = columns.back().get();
      options[i].control = &streams[i]->control().control;
      pointers.push_back(&options[i]);
      names.push_back(tables[i].first.c_str());
    }
    names.push_back(nullptr);
    std::vector<ArrowArrayStream> raw(tables.size());
    check([&](char** message) {
      return ptd_unit_tables(handle(), unit, names.data(), pointers.data(), steps ? steps->c_str() : nullptr, raw.data(), message);
    });
    nb::list out;
    for (size_t i = 0; i < tables.size(); ++i) {
      *streams[i]->raw() = raw[i];
      out.append(nb::cast(streams[i].release(), nb::rv_policy::take_ownership));
    }
    return out;
  }

  std::optional<uint32_t> space_of(int32_t pid, int64_t time_ns) const {
    uint32_t space = PTD_NONE;
    check([&](char**) { return ptd_space_of(handle(), pid, time_ns, &space); });
    return space == PTD_NONE ? std::nullopt : std::optional(space);
  }
  nb::tuple code_at(uint32_t space, uint64_t ip, int64_t time_ns, size_t size_bytes) const {
    const ptd_place place = place_of(space, ip, time_ns);
    std::vector<uint8_t> bytes(size_bytes);
    size_t count = 0;
    uint32_t versions = 0;
    check([&](char** message) { return ptd_code_at(handle(), &place, bytes.data(), bytes.size(), &count, &versions, message); });
    return nb::make_tuple(nb::bytes(reinterpret_cast<const char*>(bytes.data()), count), versions);
  }
  std::string disassemble(uint32_t space, uint64_t ip, int64_t time_ns, uint32_t instructions) const {
    const ptd_place place = place_of(space, ip, time_ns);
    char* text = nullptr;
    check([&](char** message) { return ptd_disassemble(handle(), &place, instructions, &text, message); });
    std::string out = text;
    ptd_free(text);
    return out;
  }
  nb::tuple symbol_at(uint32_t space, uint64_t ip, int64_t time_ns) const {
    const ptd_place place = place_of(space, ip, time_ns);
    ptd_symbol symbol = PTD_INIT(ptd_symbol);
    check([&](char** message) { return ptd_symbol_at(handle(), &place, &symbol, message); });
    return nb::make_tuple(symbol.name, symbol.module, symbol.offset_bytes, symbol.start, symbol.size_bytes, symbol.file, symbol.line);
  }

 private:
  ptd_recording* handle() const {
    if (handle_ == nullptr) raise(PTD_ERROR_INVALID_HANDLE, strdup("the recording is closed"));
    return handle_;
  }
  static ptd_place place_of(uint32_t space, uint64_t ip, int64_t time_ns) {
    ptd_place place = PTD_INIT(ptd_place);
    place.space = space;
    place.ip = ip;
    place.time_ns = time_ns;
    return place;
  }
  ptd_recording* handle_;  // null: closed
};

/// Opens with `open`, which gets the options; used by open() and Builder.open().
template <typename Open>
std::unique_ptr<Recording> open_with(const OpenArguments& arguments, nb::object progress, const Open& open) {
  Control control(std::move(progress));
  const StringList symfs(arguments.symfs), debug_dirs(arguments.debug_dirs), stashes(arguments.stashes), kcore_after(arguments.kcore_after),
      images(arguments.images);
  ptd_open_options options = PTD_INIT(ptd_open_options);
  options.flags = arguments.flags;
  options.symfs = symfs.get();
  options.debug_dirs = debug_dirs.get();
  options.stashes = stashes.get();
  options.kcore_after = kcore_after.get();
  options.images = images.get();
  const auto text = [](const std::optional<FilePath>& given) { return given ? given->c_str() : nullptr; };
  options.build_id_cache = text(arguments.build_id_cache);
  options.running_kernel = text(arguments.running_kernel);
  options.guestmount = text(arguments.guestmount);
  options.guestkallsyms = text(arguments.guestkallsyms);
  options.guestmodules = text(arguments.guestmodules);
  options.guestvmlinux = text(arguments.guestvmlinux);
  options.modules = text(arguments.modules);
  options.slack_ns = arguments.slack_ns;
  options.clock_hz = arguments.clock_hz;
  options.control = &control.control;
  ptd_recording* handle = nullptr;
  char* message = nullptr;
  ptd_code code = PTD_OK;
  if (!run(control, [&] { code = open(options, &handle, &message); })) {
    ptd_close(handle);
    ptd_free(message);
    throw nb::python_error();
  }
  if (code != PTD_OK) raise(code, message);
  return std::make_unique<Recording>(handle);
}

class Builder {
 public:
  Builder() {
    check([&](char** message) { return ptd_builder_new(&handle_, message); });
  }
  ~Builder() { ptd_builder_free(handle_); }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  void add_attr(nb::bytes attr, const std::vector<uint64_t>& ids, const std::string& name) {
    check([&](char** message) {
      return ptd_builder_add_attr(handle_, attr.data(), attr.size(), ids.data(), ids.size(), name.c_str(), message);
    });
  }
  void add_records(uint32_t ring, nb::bytes bytes) {
    check([&](char** message) { return ptd_builder_add_records(handle_, ring, bytes.data(), bytes.size(), message); });
  }
  void add_aux(nb::bytes bytes, int32_t cpu, int32_t tid, uint64_t offset_bytes) {
    check([&](char** message) { return ptd_builder_add_aux(handle_, cpu, tid, offset_bytes, bytes.data(), bytes.size(), message); });
  }
  void add_code(uint64_t address, nb::bytes bytes, int32_t pid, int64_t from_ns, const std::string& name) {
    check([&](char** message) {
      return ptd_builder_add_code(handle_, pid, address, bytes.data(), bytes.size(), from_ns, name.c_str(), message);
    });
  }
  void set_feature(uint32_t feature, nb::bytes bytes) {
    check([&](char** message) { return ptd_builder_set_feature(handle_, feature, bytes.data(), bytes.size(), message); });
  }
  void set_pt(uint32_t pmu_type, uint16_t time_shift, uint32_t time_mult, uint64_t time_zero, uint32_t ratio_n, uint32_t ratio_d,
              uint32_t max_nonturbo_ratio, const std::optional<std::string>& cpuid) {
    ptd_pt_config config = PTD_INIT(ptd_pt_config);
    config.pmu_type = pmu_type;
    config.time_shift = time_shift;
    config.time_mult = time_mult;
    config.time_zero = time_zero;
    config.tsc_ctc_ratio_n = ratio_n;
    config.tsc_ctc_ratio_d = ratio_d;
    config.max_nonturbo_ratio = max_nonturbo_ratio;
    config.cpuid = cpuid ? cpuid->c_str() : nullptr;
    check([&](char** message) { return ptd_builder_set_pt(handle_, &config, message); });
  }
  std::unique_ptr<Recording> open(const OpenArguments& arguments, nb::object progress) {
    return open_with(arguments, std::move(progress), [this](const ptd_open_options& options, ptd_recording** out, char** message) {
      return ptd_builder_open(handle_, &options, out, message);
    });
  }

 private:
  ptd_builder* handle_ = nullptr;
};

}  // namespace

NB_MODULE(_native, module) {
  error_type = nb::none();
  module.def("set_error_type", [](nb::object type) { error_type = std::move(type); });
  module.def("check_signals", [] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
  module.def("version", [] { return ptd_version(); });
  module.def("build_info", [] { return ptd_build_info(); });
  module.def("table_names", [] { return ptd_table_names(); });
  module.attr("NO_SPACE") = PTD_NONE;

  nb::class_<OpenArguments>(module, "OpenArguments")
      .def(nb::init<>())
      .def_rw("symfs", &OpenArguments::symfs, nb::arg().none())
      .def_rw("debug_dirs", &OpenArguments::debug_dirs, nb::arg().none())
      .def_rw("stashes", &OpenArguments::stashes, nb::arg().none())
      .def_rw("kcore_after", &OpenArguments::kcore_after, nb::arg().none())
      .def_rw("images", &OpenArguments::images, nb::arg().none())
      .def_rw("build_id_cache", &OpenArguments::build_id_cache, nb::arg().none())
      .def_rw("running_kernel", &OpenArguments::running_kernel, nb::arg().none())
      .def_rw("guestmount", &OpenArguments::guestmount, nb::arg().none())
      .def_rw("guestkallsyms", &OpenArguments::guestkallsyms, nb::arg().none())
      .def_rw("guestmodules", &OpenArguments::guestmodules, nb::arg().none())
      .def_rw("guestvmlinux", &OpenArguments::guestvmlinux, nb::arg().none())
      .def_rw("modules", &OpenArguments::modules, nb::arg().none())
      .def_rw("slack_ns", &OpenArguments::slack_ns)
      .def_rw("clock_hz", &OpenArguments::clock_hz)
      .def_rw("flags", &OpenArguments::flags);
  using Arguments = Recording::TableArguments;
  nb::class_<Arguments>(module, "TableArguments")
      .def(nb::init<>())
      .def_rw("columns", &Arguments::columns, nb::arg().none())
      .def_rw("functions", &Arguments::functions, nb::arg().none())
      .def_rw("steps", &Arguments::steps, nb::arg().none())
      .def_rw("stream", &Arguments::stream, nb::arg().none())
      .def_rw("unit", &Arguments::unit, nb::arg().none())
      .def_rw("cpu", &Arguments::cpu)
      .def_rw("pid", &Arguments::pid)
      .def_rw("tid", &Arguments::tid)
      .def_rw("first_ns", &Arguments::first_ns)
      .def_rw("last_ns", &Arguments::last_ns)
      .def_rw("batch_rows", &Arguments::batch_rows)
      .def_rw("threads", &Arguments::threads);
  nb::class_<Stream>(module, "Stream", nb::type_slots(stream_slots))
      .def("columns", &Stream::columns)
      .def("next_columns", &Stream::next_columns)
      .def("capsule", &Stream::capsule, nb::arg().none())
      .def("raise_failure", &Stream::raise_failure);
  nb::class_<Recording>(module, "Recording")
      .def("close", &Recording::close)
      .def("streams", &Recording::streams)
      .def("warnings", &Recording::warnings)
      .def("info_json", &Recording::info_json)
      .def(
          "table",
          [](const Recording& self, const std::string& name, const Arguments& arguments, nb::object progress) {
            return self.table(name, arguments, std::move(progress)).release();
          },
          nb::rv_policy::take_ownership, "name"_a, "arguments"_a, "progress"_a.none())
      .def("plan_json", &Recording::plan_json)
      .def("unit_steps", &Recording::unit_steps, "unit"_a, "output"_a)
      .def("unit_tables", &Recording::unit_tables, "unit"_a, "tables"_a, "steps"_a.none())
      .def("space_of", &Recording::space_of)
      .def("code_at", &Recording::code_at)
      .def("disassemble", &Recording::disassemble)
      .def("symbol_at", &Recording::symbol_at);
  module.def(
      "open",
      [](const FilePath& path, const OpenArguments& arguments, nb::object progress) {
        return open_with(arguments, std::move(progress),
                         [&path](const ptd_open_options& options, ptd_recording** out, char** message) {
                           return ptd_open(path.c_str(), &options, out, message);
                         })
            .release();
      },
      nb::rv_policy::take_ownership, "path"_a, "arguments"_a, "progress"_a.none());
  module.def(
      "plan_write",
      [](const FilePath& path, const FilePath& output, const OpenArguments& arguments, uint64_t unit_bytes, uint32_t units,
         nb::object progress) {
        const auto write = [&](const ptd_open_options& open, ptd_recording**, char** message) {
          ptd_plan_options options = PTD_INIT(ptd_plan_options);
          options.unit_bytes = unit_bytes;
          options.units = units;
          options.open = &open;
          return ptd_plan_write(path.c_str(), output.c_str(), &options, message);
        };
        (void)open_with(arguments, std::move(progress), write);
      },
      "path"_a, "output"_a, "arguments"_a, "unit_bytes"_a, "units"_a, "progress"_a.none());
  module.def(
      "plan_open",
      [](const FilePath& path, const Paths& traces, bool without_trace) {
        const StringList list(traces);
        ptd_recording* handle = nullptr;
        check([&](char** message) {
          return ptd_plan_open(path.c_str(), list.get(), without_trace ? PTD_PLAN_WITHOUT_TRACE : 0, &handle, message);
        });
        return std::make_unique<Recording>(handle).release();
      },
      nb::rv_policy::take_ownership, "path"_a, "traces"_a.none(), "without_trace"_a);
  nb::class_<Builder>(module, "Builder")
      .def(nb::init<>())
      .def("add_attr", &Builder::add_attr)
      .def("add_records", &Builder::add_records)
      .def("add_aux", &Builder::add_aux)
      .def("add_code", &Builder::add_code)
      .def("set_feature", &Builder::set_feature)
      .def("set_pt", &Builder::set_pt, "pmu_type"_a, "time_shift"_a, "time_mult"_a, "time_zero"_a, "tsc_ctc_ratio_n"_a, "tsc_ctc_ratio_d"_a,
           "max_nonturbo_ratio"_a, "cpuid"_a.none())
      .def(
          "open",
          [](Builder& self, const OpenArguments& arguments, nb::object progress) {
            return self.open(arguments, std::move(progress)).release();
          },
          nb::rv_policy::take_ownership, "arguments"_a, "progress"_a.none());
}
