// Any bytes as a sequence of calls of the C API, on handles that may be live, freed, of another type or numbers: each call returns a code,
// and whatever it opens can be iterated and freed.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "ptdecode/ptdecode.h"
#include "tests/fuzz/check.h"

namespace {

constexpr size_t kHandles = 8, kMostCalls = 256, kMostOpened = 4, kMostItems = 2000, kMostBatches = 8;

/// Reads the input from front to back; zeros after its end.
class Input {
 public:
  Input(const unsigned char* data, size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return at_ >= size_; }
  uint8_t byte() { return at_ < size_ ? data_[at_++] : uint8_t{0}; }
  uint64_t number() {  // small ones are likely
    const unsigned bytes = byte() % 9;
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) value = value << 8 | byte();
    return value;
  }
  std::vector<uint8_t> bytes() {
    const size_t low = byte(), wanted = low | (byte() % 16U) << 8U, size = std::min(wanted, size_ - std::min(at_, size_));
    std::vector<uint8_t> piece(data_ + at_, data_ + at_ + size);
    at_ += size;
    return piece;
  }
  /// A struct, usually of the right size.
  template <typename Struct>
  Struct filled() {
    Struct value = PTD_INIT(Struct);
    if (byte() % 8 == 0) value.size = number();
    return value;
  }

 private:
  const unsigned char* data_;
  size_t size_, at_ = 0;
};

class Caller {
 public:
  explicit Caller(Input input) : in_(input) {}
  ~Caller() {
    for (void* handle : handles_) {  // of any type: two of the three refuse it
      (void)ptd_cursor_free(static_cast<ptd_cursor*>(handle));
      (void)ptd_builder_free(static_cast<ptd_builder*>(handle));
      (void)ptd_close(static_cast<ptd_recording*>(handle));
    }
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void run() {
    for (size_t calls = 0; calls < kMostCalls && !in_.empty(); ++calls) {
      const uint8_t what = in_.byte() % 20;
      if (what < 8) {
        build(what);
      } else {
        use(what);
      }
    }
  }

 private:
  template <typename Handle>
  Handle* any() {
    const uint8_t choice = in_.byte();
    return static_cast<Handle*>(choice == 0xff ? reinterpret_cast<void*>(in_.number()) : handles_[choice % kHandles]);
  }
  /// A new handle replaces another one, which is freed if it is live.
  void keep(void* made) {
    void*& place = handles_[next_++ % kHandles];
    (void)ptd_cursor_free(static_cast<ptd_cursor*>(place));
    (void)ptd_builder_free(static_cast<ptd_builder*>(place));
    (void)ptd_close(static_cast<ptd_recording*>(place));
    place = made;
  }
  /// An error has a message, other results have none.
  void check(ptd_code code) {
    PTD_FUZZ_CHECK((code > PTD_END) == (message_ != nullptr));
    PTD_FUZZ_CHECK(std::string_view(ptd_code_name(code)) != "");
    ptd_free(message_);
    message_ = nullptr;
  }

  void build(uint8_t what) {
    auto* builder = what == 0 ? nullptr : any<ptd_builder>();
    const std::vector<uint8_t> bytes = in_.bytes();
    switch (what) {
      case 0: {
        ptd_builder* made = nullptr;
        check(ptd_builder_new(&made, &message_));
        return keep(made);
      }
      case 1: {
        std::vector<uint8_t> attr = bytes;
        if (in_.byte() % 4 != 0) attr.resize(128);
        const uint64_t id = in_.number();
        return check(ptd_builder_add_attr(builder, attr.data(), attr.size(), &id, 1, "e", &message_));
      }
      case 2:
        return check(ptd_builder_add_records(builder, in_.byte(), bytes.data(), bytes.size(), &message_));
      case 3: {
        const auto cpu = static_cast<int32_t>(in_.byte()) - 1;
        const int32_t tid = in_.byte() % 4 == 0 ? 7 : -1;
        const uint64_t offset = in_.byte() % 2 == 0 ? PTD_AUX_NEXT : in_.number();
        return check(ptd_builder_add_aux(builder, cpu, tid, offset, bytes.data(), bytes.size(), &message_));
      }
      case 4: {
        const auto pid = static_cast<int32_t>(in_.byte()) - 1;
        const uint64_t address = in_.number();
        const auto from_ns = static_cast<int64_t>(in_.number());
        return check(ptd_builder_add_code(builder, pid, address, bytes.data(), bytes.size(), from_ns, "f", &message_));
      }
      case 5:
        return check(ptd_builder_set_feature(builder, static_cast<uint32_t>(in_.number()), bytes.data(), bytes.size(), &message_));
      case 6: {
        auto config = in_.filled<ptd_pt_config>();
        config.pmu_type = in_.byte();
        config.time_mult = static_cast<uint32_t>(in_.number());
        config.time_shift = in_.byte();
        config.time_zero = in_.number();
        config.tsc_ctc_ratio_n = config.tsc_ctc_ratio_d = in_.byte();
        config.snapshot = in_.byte() % 2;
        return check(ptd_builder_set_pt(builder, &config, &message_));
      }
      default: {
        if (opened_++ >= kMostOpened) return;
        static const char* const kNone[] = {nullptr};
        auto options = in_.filled<ptd_open_options>();
        options.flags = in_.byte() & ~static_cast<unsigned>(PTD_OPEN_DEBUGINFOD | PTD_OPEN_ALLOW_OUTSIDE);
        options.stashes = options.debug_dirs = kNone;
        ptd_recording* made = nullptr;
        check(ptd_builder_open(builder, &options, &made, &message_));
        return keep(made);
      }
    }
  }

  void use(uint8_t what) {
    auto place = in_.filled<ptd_place>();
    place.space = in_.byte();
    place.mode = in_.byte() % 9;
    place.ip = in_.number();
    place.time_ns = in_.byte() % 2 == 0 ? PTD_TIME_UNKNOWN : static_cast<int64_t>(in_.number());
    std::array<uint8_t, 64> code{};
    size_t count = 0;
    uint32_t number = 0;
    char* text = nullptr;
    auto* recording = any<ptd_recording>();
    switch (what) {
      case 8:
        check(ptd_code_at(recording, &place, code.data(), in_.byte() % 65, &count, &number, &message_));
        PTD_FUZZ_CHECK(count <= code.size());
        return;
      case 9:
        check(ptd_disassemble(recording, &place, in_.byte(), &text, &message_));
        return ptd_free(text);
      case 10: {
        auto symbol = in_.filled<ptd_symbol>();
        return check(ptd_symbol_at(recording, &place, &symbol, &message_));
      }
      case 11:
        check(ptd_info_json(recording, &text, &message_));
        return ptd_free(text);
      case 12: {
        auto info = in_.filled<ptd_stream_info>();
        (void)ptd_stream_count(recording, &number);
        (void)ptd_get_stream(recording, in_.byte(), &info);
        (void)ptd_space_of(recording, in_.byte(), static_cast<int64_t>(in_.number()), &number);
        return;
      }
      case 13:
        (void)ptd_close(recording);
        return;
      case 14:
        (void)ptd_builder_free(any<ptd_builder>());
        return;
      case 15:
        (void)ptd_cursor_free(any<ptd_cursor>());
        return;
      case 16: {
        auto options = in_.filled<ptd_cursor_options>();
        options.kind = in_.byte() % 4;
        options.stream = in_.byte() % 2 == 0 ? PTD_NONE : in_.byte() % 8;
        if (in_.byte() % 2 == 0) {
          options.first_ns = static_cast<int64_t>(in_.number());
          options.last_ns = static_cast<int64_t>(in_.number());
        }
        options.threads = 1;
        ptd_cursor* made = nullptr;
        check(ptd_cursor_open(recording, &options, &made, &message_));
        return keep(made);
      }
      case 18:
        return read_table(recording);
      case 19:
        return read_facts(recording);
      default:
        return walk(any<ptd_cursor>());
    }
  }

  /// Some batches of a table, with options that may be of another size or out of range.
  void read_table(const ptd_recording* recording) {
    static constexpr std::array kTables = {"blocks",  "branches", "calls",    "functions", "edges",   "events",  "gaps",
                                           "samples", "findings", "sections", "versions",  "threads", "nonsense"};
    static const char* const kColumns[] = {"time_ns", "ip", nullptr};
    ptd_table_options options = PTD_TABLE_OPTIONS_INIT;
    if (in_.byte() % 8 == 0) options.size = in_.number();
    const char* name = kTables[in_.byte() % kTables.size()];
    if (in_.byte() % 4 == 0) options.columns = kColumns;
    if (in_.byte() % 4 == 0) options.stream = in_.byte();
    if (in_.byte() % 4 == 0) options.tid = static_cast<int32_t>(in_.number());
    if (in_.byte() % 2 == 0) {
      options.first_ns = static_cast<int64_t>(in_.number());
      options.last_ns = static_cast<int64_t>(in_.number());
    }
    options.batch_rows = in_.byte();
    options.threads = 1;
    ArrowArrayStream stream;
    const ptd_code code = ptd_table(recording, name, &options, &stream, &message_);
    check(code);
    if (code != PTD_OK) return;
    ArrowSchema schema;
    PTD_FUZZ_CHECK(stream.get_schema(&stream, &schema) == 0);
    const int64_t columns = schema.n_children;
    schema.release(&schema);
    for (size_t batches = 0; batches < kMostBatches; ++batches) {
      ArrowArray array;
      const int status = stream.get_next(&stream, &array);
      PTD_FUZZ_CHECK((status == 0) || (stream.get_last_error(&stream) != nullptr && array.release == nullptr));
      if (array.release == nullptr) break;
      PTD_FUZZ_CHECK(array.n_children == columns && array.length > 0);
      for (int64_t i = 0; i < columns; ++i) PTD_FUZZ_CHECK(array.children[i]->length == array.length);
      array.release(&array);
    }
    stream.release(&stream);
  }

  void read_facts(const ptd_recording* recording) {
    auto finding = in_.filled<ptd_finding>();
    auto missing = in_.filled<ptd_missing>();
    auto lost = in_.filled<ptd_lost>();
    uint32_t count = 0;
    const char* comm = nullptr;
    check(ptd_finding_count(recording, &count, &message_));
    check(ptd_get_finding(recording, in_.byte(), &finding, &message_));
    (void)ptd_missing_count(recording, &count);
    (void)ptd_get_missing(recording, in_.byte(), &missing);
    const char* warning = nullptr;
    (void)ptd_warning_count(recording, &count);
    (void)ptd_get_warning(recording, in_.byte(), &warning);
    (void)ptd_get_lost(recording, &lost);
    (void)ptd_comm_at(recording, in_.byte(), static_cast<int64_t>(in_.number()), &comm);
    PTD_FUZZ_CHECK(comm != nullptr);
  }

  void walk(ptd_cursor* cursor) {
    uint64_t sum = 0;
    for (size_t i = 0; i < kMostItems; ++i) {
      auto item = i == 0 ? in_.filled<ptd_item>() : PTD_INIT(ptd_item);
      const ptd_code code = ptd_cursor_next(cursor, &item, &message_);
      check(code);
      if (code != PTD_OK) return;
      if (item.kind == PTD_ITEM_CALL) sum += std::strlen(item.u.call.function) + std::strlen(item.u.call.comm);
      if (item.kind == PTD_ITEM_BRANCHES) PTD_FUZZ_CHECK(item.u.branches.count != 0);
      if (item.kind == PTD_ITEM_BLOCKS && item.u.blocks.count != 0) sum += item.u.blocks.blocks[0].code[0];
    }
    PTD_FUZZ_CHECK(sum != ~uint64_t{0});
  }

  Input in_;
  std::array<void*, kHandles> handles_{};
  size_t next_ = 0, opened_ = 0;
  char* message_ = nullptr;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  Caller(Input(data, size)).run();
  return 0;
}
